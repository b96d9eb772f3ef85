"""One request at an endpoint: its headers, and its body within bounds of size and time."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from codecs import BOM_UTF8
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec

from cpaas_provider.delivery.receiver.http.load_limits import LoadLimiter, Slot, WaitTimer
from cpaas_provider.delivery.receiver.http.responses import (
    BODY_TIMEOUT,
    INVALID_JSON,
    MAX_BODY,
    OVERLOADED,
    REQUEST_TIMEOUT,
    TOO_LARGE,
    UNSUPPORTED_MEDIA_TYPE,
    Message,
    RefusalError,
)

GRACE_SECONDS = 2.0
MIN_BYTES_PER_SECOND = 32 * 1024
"""How slowly a body may come, after a while of grace."""

GRACE_PARTS = 8
"""Parts that the time of grace is counted in."""

DISPLACEABLE_AFTER = 0.5
"""Seconds after which one whose body is not there makes room for others."""

REST_SECONDS = 0.2
"""How long what is left of a refused request is read."""

Result = TypeVar("Result")
Receive = Callable[[], Awaitable[Message]]
Scope = dict[str, Any]

_JSON_TYPE = re.compile(r"(application|text)/([a-z0-9!#$&^_.+-]+\+)?json")


class ClientDisconnectError(Exception):
    """Who sent it no longer waits for an answer."""


def part_of_grace() -> float:
    """Return the seconds in which waiting is counted."""
    return min(GRACE_SECONDS, BODY_TIMEOUT) / GRACE_PARTS


class BoundedRequest:
    """A request that is being read, and waits for its answer.

    :param wait_timer: count the time it waits
    """

    __slots__ = (
        "_headers",
        "_moved",
        "_over",
        "_receive",
        "_size",
        "_slot",
        "_task",
        "_timeout",
        "_wait_timer",
        "_waited",
        "read_whole",
    )  # fmt: skip

    def __init__(self, scope: Scope, receive: Receive, wait_timer: WaitTimer) -> None:
        self._headers: list[tuple[bytes, bytes]] = scope["headers"]
        self._receive = receive
        self._wait_timer = wait_timer
        self._slot: Slot | None = None
        self._task: asyncio.Task[Any] | None = None
        self._size = 0
        self._moved = False
        self.read_whole = False

    def enter(self, limiter: LoadLimiter, conn_id: str) -> None:
        """Take a place, now that something speaks for the request.

        :raises RefusalError: when there is none
        """
        self._slot = Slot(limiter, conn_id, self._is_slow, self._send_away)

    def done(self) -> None:
        """Give back the place it took."""
        self._wait_timer.discard(self._count)
        slot, self._slot = self._slot, None
        if slot is not None:
            slot.leave()

    def header(self, name: bytes) -> str | None:
        """Return a header by its name in lower case, or ``None``."""
        for key, value in self._headers:
            if key == name:
                return value.decode("latin-1")
        return None

    async def body(self) -> bytes:
        """Return the body.

        :raises RefusalError: 413 as soon as it is known to be over 256 KiB, 408 when it comes too slowly, 503 for lack
            of room
        :raises ClientDisconnectError: when the sender hung up
        """
        length = self.header(b"content-length")
        # A number this long may be of more digits than Python reads.
        if length and length.isdecimal() and (len(length) > 10 or int(length) > MAX_BODY):
            raise RefusalError(TOO_LARGE)
        try:
            return await self.within(self._body_timeout, self._pieces())
        except TimeoutError:
            raise RefusalError(OVERLOADED if self._moved else REQUEST_TIMEOUT) from None

    async def within(self, seconds: Callable[[], float], work: Awaitable[Result]) -> Result:
        """Wait for something, as ``asyncio.timeout`` does, at a small part of its cost.

        :param seconds: returns how many seconds it may take
        :raises TimeoutError: when it took longer
        """
        task = self._task = asyncio.current_task()
        if task is None:
            raise RuntimeError("A request must be read in an asyncio task.")
        cancelling, self._over, self._timeout, self._waited = task.cancelling(), False, seconds, 0.0
        self._wait_timer.add(self._count)
        try:
            return await work
        except asyncio.CancelledError:
            if self._over and task.uncancel() <= cancelling:
                raise TimeoutError from None
            raise
        finally:
            self._task = None

    async def take_rest(self) -> None:
        """Read on for a moment, and keep nothing of it: what was sent together with the head is there by then."""
        self.done()
        size = 0
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(REST_SECONDS):
                while not self.read_whole and size <= MAX_BODY:
                    message = await self._receive()
                    size += len(message.get("body", b""))
                    self.read_whole = not message.get("more_body", False)

    async def _pieces(self) -> bytes:
        slot, body = self._slot, bytearray()
        if slot is None:
            raise RuntimeError("A body can be read only after the request was admitted.")
        while not self.read_whole:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnectError
            piece = message.get("body", b"")
            if len(body) + len(piece) > MAX_BODY:
                raise RefusalError(TOO_LARGE)
            slot.take(len(piece))
            body += piece
            self._size = len(body)
            self.read_whole = not message.get("more_body", False)
        slot.stay()
        return bytes(body)

    def _count(self, seconds: float) -> None:
        """Count how long it has waited, and end that where it has been for too long."""
        if self._task is not None:
            self._waited += seconds
            if self._waited >= self._timeout():
                self._give_up()

    def _body_timeout(self) -> float:
        return min(BODY_TIMEOUT, GRACE_SECONDS + self._size / MIN_BYTES_PER_SECOND)

    def _give_up(self) -> None:
        if self._task is not None and not self._over:
            self._over = True
            self._task.cancel()

    def _is_slow(self) -> bool:
        return self._waited >= DISPLACEABLE_AFTER

    def _send_away(self) -> None:
        self._moved = True
        self._give_up()

    def check_type(self) -> None:
        """See that the body says it is JSON.

        :raises RefusalError: 415 otherwise
        """
        media_type = self.header(b"content-type") or ""
        encoding = self.header(b"content-encoding")
        if media_type == "application/json" and encoding is None:
            return
        media_type = media_type.partition(";")[0].strip().lower()
        if not _JSON_TYPE.fullmatch(media_type) or (encoding and encoding.strip().lower() != "identity"):
            raise RefusalError(UNSUPPORTED_MEDIA_TYPE)


def read_json(raw: bytes) -> tuple[str, Any]:
    """Return a body's text and what it says.

    :raises RefusalError: 422 when it is not JSON in UTF-8, or nested deeper than can be read
    """
    try:
        # The codec that does so is written in Python.
        text = raw.removeprefix(BOM_UTF8).decode()
        return text, _value(text)
    except (ValueError, RecursionError):
        raise RefusalError(INVALID_JSON) from None


def _value(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        # What it refuses, such as NaN or half a character, Python may read.
        return _value_for_python(text)


def _value_for_python(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        raise
    except ValueError:
        # A whole number of more digits than Python turns into one. It is JSON all the same.
        return json.loads(text, parse_int=float)
