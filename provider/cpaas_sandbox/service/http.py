"""One HTTP exchange: request and answer as plain data, and an ASGI connection that can also be reset."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import socket
import struct
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs

from pydantic_core import to_json

from cpaas_sandbox.core.errors import FieldError, ServiceError, invalid_field

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

# With a linger time of zero, close() sends a reset instead of an end of stream.
_RESET = struct.pack("ii", 1, 0)
MAX_BODY = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Request:
    """A checked request, as handlers receive it: the id in the path, if any, and the fields of body or query."""

    method: str
    path: str
    id: str = ""
    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Answer:
    """A response: bytes are sent as they are, other bodies as JSON, None as no body."""

    status: int
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    content_type: str = "application/json"


def _finite(literal: str) -> float:
    value = float(literal)
    if not math.isfinite(value):
        raise ValueError("number out of range")
    return value


def read_json(raw: bytes) -> Any:
    """Parse a body; raise the 400 for anything but UTF-8 JSON with finite numbers and whole characters."""
    try:
        text = raw.decode("utf-8")
        value = json.loads(text, parse_constant=_finite, parse_float=_finite)
        if "\\u" in text:
            to_json(value)  # raises for half a surrogate pair
    except (ValueError, RecursionError) as error:
        raise invalid_field("body", "the body is not valid JSON", "json_invalid") from error
    return value


def read_query(raw: bytes) -> dict[str, str]:
    """Parse a query string; the first value of a repeated name counts."""
    try:
        parameters = parse_qs(raw.decode("latin-1"), keep_blank_values=True, max_num_fields=100)
    except ValueError as error:
        raise invalid_field("query", "too many query parameters", "too_long") from error
    return {name: values[0] for name, values in parameters.items()}


class DisconnectedError(Exception):
    """The client closed the connection before its request was complete."""


class Wire:
    """The connection of one request. ``cut_off`` is set when the sandbox is reset or ends."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, cut_off: asyncio.Event) -> None:
        self._receive = receive
        self._send = send
        self.cut_off = cut_off
        self.method: str = scope["method"]
        self.raw_path: str = scope["raw_path"].partition(b"?")[0].decode("latin-1")
        self.query: bytes = scope["query_string"]
        self.status: int | None = None
        self.received = b""
        self._headers: list[tuple[bytes, bytes]] = scope["headers"]

    def header(self, name: str) -> str | None:
        """Return the first request header of this name."""
        wanted = name.lower().encode()
        return next((value.decode("latin-1") for key, value in self._headers if key == wanted), None)

    async def body(self) -> bytes:
        """Read the whole body; raise `DisconnectedError`, or the 413 if the body is too large."""
        chunks, size, more = [], 0, True
        while more:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise DisconnectedError
            chunks.append(message.get("body", b""))
            more = message.get("more_body", False)
            size += len(chunks[-1])
            if size > MAX_BODY:
                text = f"The body is larger than {MAX_BODY} bytes"
                raise ServiceError(413, text, [FieldError("body", text, "too_large")], {"Connection": "close"})
        self.received = b"".join(chunks)
        return self.received

    async def answer(self, answer: Answer) -> None:
        """Send a whole response."""
        await self.send(await self.start(answer))

    async def start(self, answer: Answer) -> bytes:
        """Send status and headers; return the body, which is left to send."""
        body, headers = b"", dict(answer.headers)
        if answer.body is not None:
            body = answer.body if isinstance(answer.body, bytes) else to_json(answer.body)
            headers = {"Content-Type": answer.content_type, "Content-Length": str(len(body))} | headers
        self.status = answer.status
        pairs = [(name.lower().encode(), value.encode("latin-1")) for name, value in headers.items()]
        await self._send({"type": "http.response.start", "status": answer.status, "headers": pairs})
        return body

    async def send(self, body: bytes, more: bool = False) -> None:
        """Send a part of the body; without ``more``, the last part."""
        await self._send({"type": "http.response.body", "body": body, "more_body": more})

    def write_ahead(self, answer: Answer) -> None:
        """Write a whole response to the connection, before the one that the request gets.

        ASGI cannot do this, as in ``drop``.
        """
        body = answer.body if isinstance(answer.body, bytes) else to_json(answer.body)
        head = (
            f"HTTP/1.1 {answer.status} OK\r\nContent-Type: {answer.content_type}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        self._send.__self__.transport.write(head.encode("latin-1") + body)  # type: ignore[attr-defined] # as in drop

    async def drop(self, how: str = "reset") -> None:
        """End the TCP connection at once, by a reset or an end of stream; unsent bytes are lost.

        ASGI cannot do this. The ``send`` of uvicorn is a method of the object that holds the transport.
        """
        transport = self._send.__self__.transport  # type: ignore[attr-defined] # a bound method of uvicorn
        connection = transport.get_extra_info("socket")
        if how == "reset" and connection is not None and not transport.is_closing():
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        transport.abort()
        while (await self._receive())["type"] != "http.disconnect":
            continue

    async def pause(self, seconds: float) -> None:
        """Wait; return early when the sandbox is reset or ends."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.cut_off.wait()

    async def hold(self, seconds: float) -> None:
        """Wait; return early when the client disconnects, or the sandbox is reset or ends."""
        waiting = [asyncio.ensure_future(self._receive()), asyncio.ensure_future(self.cut_off.wait())]
        try:
            await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waiting:
                task.cancel()
