"""One request at a door: its headers, and its body within bounds of size and time."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import Awaitable, Callable
from typing import Any

from cpaas_provider.delivery.answers import (
    BODY_SECONDS,
    FULL,
    MAX_BODY,
    NO_JSON_TYPE,
    NOT_JSON,
    TOO_LARGE,
    TOO_SLOW,
    Message,
    RefusalError,
)
from cpaas_provider.delivery.rooms import Guest, Room

GRACE_SECONDS = 2.0
LEAST_BYTES_A_SECOND = 32 * 1024
"""How slowly a body may come, after a while of grace."""

TURNS = 8
"""Parts that the time of grace is counted in."""

DISPLACED_AFTER = 0.5
"""Seconds after which one whose body is not there makes room for others."""

REST_SECONDS = 0.2
"""How long what is left of a refused request is read."""

Receive = Callable[[], Awaitable[Message]]
Scope = dict[str, Any]

_JSON_TYPE = re.compile(r"(application|text)/([a-z0-9!#$&^_.+-]+\+)?json")


class SenderGoneError(Exception):
    """Who sent it no longer waits for an answer."""


class Posted:
    """A request that is being read."""

    __slots__ = ("_guest", "_headers", "_limit", "_moved", "_receive", "_size", "_waited", "read_whole")

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self._headers: list[tuple[bytes, bytes]] = scope["headers"]
        self._receive = receive
        self._guest: Guest | None = None
        self._limit: asyncio.Timeout | None = None
        self._size = 0
        self._waited = 0.0
        self._moved = False
        self.read_whole = False

    def enter(self, room: Room, conn_id: str) -> None:
        """Take a place, now that something speaks for the request.

        :raises RefusalError: when there is none
        """
        self._guest = Guest(room, conn_id, self._is_slow, self._send_away)

    def done(self) -> None:
        """Give back the place it took."""
        guest, self._guest = self._guest, None
        if guest is not None:
            guest.leave()

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
        :raises SenderGoneError: when the sender hung up
        """
        length = self.header(b"content-length")
        # A number this long may be of more digits than Python reads.
        if length and length.isdecimal() and (len(length) > 10 or int(length) > MAX_BODY):
            raise RefusalError(TOO_LARGE)
        piece = min(GRACE_SECONDS, BODY_SECONDS) / TURNS
        try:
            async with asyncio.timeout(None) as self._limit:
                timer = _Turns(piece, self._waits_on)
                try:
                    return await self._pieces()
                finally:
                    timer.end()
        except TimeoutError:
            raise RefusalError(FULL if self._moved else TOO_SLOW) from None
        finally:
            self._limit = None

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
        guest, body = self._guest, bytearray()
        if guest is None:
            raise RuntimeError("A body is read once the request has a place.")
        while not self.read_whole:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise SenderGoneError
            piece = message.get("body", b"")
            if len(body) + len(piece) > MAX_BODY:
                raise RefusalError(TOO_LARGE)
            guest.take(len(piece))
            body += piece
            self._size = len(body)
            self.read_whole = not message.get("more_body", False)
        guest.stay()
        return bytes(body)

    def _waits_on(self, seconds: float) -> bool:
        """Count how long it has been waited for, and tell whether it may be for longer."""
        self._waited += seconds
        if self._waited < min(BODY_SECONDS, GRACE_SECONDS + self._size / LEAST_BYTES_A_SECOND):
            return True
        self._end_wait()
        return False

    def _end_wait(self) -> None:
        if self._limit is not None and not self._limit.expired():
            self._limit.reschedule(asyncio.get_running_loop().time())

    def _is_slow(self) -> bool:
        return self._waited >= DISPLACED_AFTER

    def _send_away(self) -> None:
        self._moved = True
        self._end_wait()

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
            raise RefusalError(NO_JSON_TYPE)


class _Turns:
    """Counts time in small parts, each of them once, however late it is.

    So what the server itself takes, where it has more to do than it can, is not counted against a sender whose body
    may have been there for long.

    :param count: is told of each part, and says whether to go on
    """

    __slots__ = ("_count", "_loop", "_seconds", "_timer")

    def __init__(self, seconds: float, count: Callable[[float], bool]) -> None:
        self._loop = asyncio.get_running_loop()
        self._seconds = seconds
        self._count = count
        self._timer = self._loop.call_later(seconds, self._turn)

    def end(self) -> None:
        """Count no more."""
        self._timer.cancel()

    def _turn(self) -> None:
        if self._count(self._seconds):
            self._timer = self._loop.call_later(self._seconds, self._turn)


def read_json(raw: bytes) -> tuple[str, Any]:
    """Return a body's text and what it says.

    :raises RefusalError: 422 when it is not JSON in UTF-8, or nested deeper than can be read
    """
    try:
        text = raw.decode("utf-8-sig")
        return text, _value(text)
    except (ValueError, RecursionError):
        raise RefusalError(NOT_JSON) from None


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        raise
    except ValueError:
        # A whole number of more digits than Python turns into one. It is JSON all the same.
        return json.loads(text, parse_int=float)
