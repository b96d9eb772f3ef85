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
from starlette.types import Receive, Scope

from cpaas_provider.delivery.receiver.http import responses
from cpaas_provider.delivery.receiver.http.load_limits import LoadLimiter, Slot, WaitTimer
from cpaas_provider.delivery.receiver.http.responses import BODY_TIMEOUT, MAX_BODY, RefusalError

GRACE_SECONDS = 2.0
MIN_BYTES_PER_SECOND = 32 * 1024
"""The lowest rate at which a body may arrive after ``GRACE_SECONDS``."""

GRACE_PARTS = 8
"""Steps in which ``GRACE_SECONDS`` are counted."""

DISPLACEABLE_AFTER = 0.5
"""Seconds after which a request whose body has not arrived may be displaced."""

REST_SECONDS = 0.2
"""How long the rest of a refused request is read."""

Result = TypeVar("Result")

_JSON_TYPE = re.compile(r"(application|text)/([a-z0-9!#$&^_.+-]+\+)?json")


class ClientDisconnectError(Exception):
    """The sender closed the connection before the response."""


def part_of_grace() -> float:
    """Return the length of the steps in which waiting time is counted, in seconds."""
    return min(GRACE_SECONDS, BODY_TIMEOUT) / GRACE_PARTS


class BoundedRequest:
    """A request whose body is read, and which then waits for its response.

    :param wait_timer: counts the time it waits
    :param limiter: limits the requests of its endpoint
    """

    __slots__ = (
        "_headers", "_limiter", "_moved", "_over", "_receive", "_size", "_slot", "_task", "_timeout", "_wait_timer",
        "_waited", "read_whole",
    )  # fmt: skip

    def __init__(self, scope: Scope, receive: Receive, wait_timer: WaitTimer, limiter: LoadLimiter) -> None:
        self._headers: list[tuple[bytes, bytes]] = scope["headers"]
        self._receive = receive
        self._wait_timer = wait_timer
        self._limiter = limiter
        self._slot: Slot | None = None
        self._task: asyncio.Task[Any] | None = None
        self._size = 0
        self._moved = False
        self.read_whole = False

    def enter(self, conn_id: str) -> None:
        """Take a place within the limits, once the token or the headers make the request plausible.

        :raises RefusalError: when there is none
        """
        slot = Slot(conn_id, self._is_slow, self._send_away)
        self._limiter.enter(slot)
        self._slot = slot

    def done(self) -> None:
        """Give its place back."""
        self._wait_timer.discard(self._count)
        # The slot refers to the request: without this only a garbage collection would free both.
        slot, self._slot = self._slot, None
        if slot is not None:
            self._limiter.leave(slot)

    def header(self, name: bytes) -> str | None:
        """Return a header by its name in lower case, or ``None``."""
        for key, value in self._headers:
            if key == name:
                return value.decode("latin-1")
        return None

    async def body(self) -> bytes:
        """Return the body.

        :raises RefusalError: 413 for more than 256 KiB, 408 when the body arrives too slowly, 503 when a limit is
            reached
        :raises ClientDisconnectError: when the sender closed the connection
        """
        length = self.header(b"content-length")
        # Python refuses to read numbers of very many digits.
        if length and length.isdecimal() and (len(length) > 10 or int(length) > MAX_BODY):
            raise RefusalError(responses.TOO_LARGE)
        try:
            return await self.within(self._body_timeout, self._pieces())
        except TimeoutError:
            raise RefusalError(responses.OVERLOADED if self._moved else responses.REQUEST_TIMEOUT) from None

    async def within(self, seconds: Callable[[], float], work: Awaitable[Result]) -> Result:
        """Wait as ``asyncio.timeout`` does, at a small part of its cost.

        :param seconds: returns how many seconds ``work`` may take
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
        """Read and drop the rest of the body for a moment. What the sender sent with the head arrives by then."""
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
                raise RefusalError(responses.TOO_LARGE)
            self._limiter.take(slot, len(piece))
            body += piece
            self._size = len(body)
            self.read_whole = not message.get("more_body", False)
        self._limiter.end_waiting(slot)
        return bytes(body)

    def _count(self, seconds: float) -> None:
        """Add to the time the request has waited, and end the wait after its time limit."""
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
        """Check that the headers declare JSON.

        :raises RefusalError: 415 otherwise
        """
        media_type = self.header(b"content-type") or ""
        encoding = self.header(b"content-encoding")
        if media_type == "application/json" and encoding is None:
            return
        media_type = media_type.partition(";")[0].strip().lower()
        if not _JSON_TYPE.fullmatch(media_type) or (encoding and encoding.strip().lower() != "identity"):
            raise RefusalError(responses.UNSUPPORTED_MEDIA_TYPE)


def read_json(raw: bytes) -> tuple[str, Any]:
    """Return a body as text and as a value.

    :raises RefusalError: 422 when it is not JSON in UTF-8, or is nested too deeply
    """
    try:
        # The codec utf-8-sig is written in Python, and slow.
        text = raw.removeprefix(BOM_UTF8).decode()
        return text, _value(text)
    except (ValueError, RecursionError):
        raise RefusalError(responses.INVALID_JSON) from None


def _value(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        # Python reads some of what msgspec refuses, such as NaN or half of a surrogate pair.
        return _python_value(text)


def _python_value(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        raise
    except ValueError:
        # An integer of more digits than Python converts is valid JSON.
        return json.loads(text, parse_int=float)
