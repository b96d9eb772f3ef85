"""One request at a door: its headers, and its body within bounds of size and time."""

from __future__ import annotations

import asyncio
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

Receive = Callable[[], Awaitable[Message]]
Scope = dict[str, Any]

_JSON_TYPE = re.compile(r"(application|text)/([a-z0-9!#$&^_.+-]+\+)?json")


class SenderGoneError(Exception):
    """Who sent it no longer waits for an answer."""


class Room:
    """How much a door may have in hand: requests, and bytes of their bodies."""

    def __init__(self, most: int, most_bytes: int) -> None:
        self._left = most
        self._bytes_left = most_bytes

    def enter(self) -> None:
        """Take in one request.

        :raises RefusalError: when there is no room
        """
        if self._left <= 0:
            raise RefusalError(FULL)
        self._left -= 1

    def take(self, size: int) -> None:
        """Take in a piece of a body.

        :raises RefusalError: when there is no room
        """
        if size > self._bytes_left:
            raise RefusalError(FULL)
        self._bytes_left -= size

    def leave(self, size: int) -> None:
        """Let a request go, with as much of its body as was taken in."""
        self._left += 1
        self._bytes_left += size


class Posted:
    """A request that is being read.

    :param room: has room for one more, or this raises ``RefusalError``
    """

    __slots__ = ("_headers", "_receive", "_room", "_size", "read_whole")

    def __init__(self, scope: Scope, receive: Receive, room: Room) -> None:
        room.enter()
        self._headers: list[tuple[bytes, bytes]] = scope["headers"]
        self._receive = receive
        self._room = room
        self._size = 0
        self.read_whole = False

    def done(self) -> None:
        """Give back the room it took."""
        self._room.leave(self._size)

    def header(self, name: bytes) -> str | None:
        """Return a header by its name in lower case, or ``None``."""
        for key, value in self._headers:
            if key == name:
                return value.decode("latin-1")
        return None

    async def body(self) -> bytes:
        """Return the body.

        :raises RefusalError: 413 as soon as it is known to be over 256 KiB, 408 after 10 s, 503 for lack of room
        :raises SenderGoneError: when the sender hung up
        """
        length = self.header(b"content-length")
        # A number this long may be of more digits than Python reads.
        if length and length.isdecimal() and (len(length) > 10 or int(length) > MAX_BODY):
            raise RefusalError(TOO_LARGE)
        try:
            async with asyncio.timeout(BODY_SECONDS):
                return await self._pieces()
        except TimeoutError:
            raise RefusalError(TOO_SLOW) from None

    async def _pieces(self) -> bytes:
        body = bytearray()
        while not self.read_whole:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise SenderGoneError
            piece = message.get("body", b"")
            if len(body) + len(piece) > MAX_BODY:
                raise RefusalError(TOO_LARGE)
            self._room.take(len(piece))
            self._size += len(piece)
            body += piece
            self.read_whole = not message.get("more_body", False)
        return bytes(body)

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
