"""One HTTP exchange at ASGI level: bounded reading, answering, and really dropping the connection."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

from cpaas_provider.sandbox.core.errors import FieldError, ServiceError
from cpaas_provider.sandbox.service.exchange import MAX_BODY, Answer, dump

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

JSON = "application/json"
# close() on a socket that lingers for no time sends a reset instead of an end of stream
_RESET = struct.pack("ii", 1, 0)


class DisconnectedError(Exception):
    """The client went away."""


class Wire:
    """What a request's handling sees of the connection."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, cut_off: asyncio.Event) -> None:
        self._receive = receive
        self._send = send
        self.cut_off = cut_off
        self.method: str = scope["method"]
        self.raw_path: str = scope["raw_path"].partition(b"?")[0].decode("latin-1")
        self.query: bytes = scope["query_string"]
        self.status: int | None = None
        self._headers: list[tuple[bytes, bytes]] = scope["headers"]

    def header(self, name: str) -> str | None:
        """Return a request header, the first of its name."""
        wanted = name.lower().encode()
        return next((value.decode("latin-1") for key, value in self._headers if key == wanted), None)

    async def body(self) -> bytes:
        """Read the whole body; raise `DisconnectedError`, or a 413 where it is too large."""
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
        return b"".join(chunks)

    async def answer(self, answer: Answer) -> None:
        """Send a whole answer."""
        if answer.body is None:
            await self.start(answer.status, answer.headers)
            await self.send(b"")
        else:
            await self.raw(answer.status, dump(answer.body), answer.headers)

    async def raw(
        self, status: int, body: bytes, headers: Mapping[str, str] | None = None, content_type: str = JSON
    ) -> None:
        """Send a body as it is."""
        own = {"Content-Type": content_type, "Content-Length": str(len(body))}
        await self.start(status, own | dict(headers or {}))
        await self.send(body)

    async def start(self, status: int, headers: Mapping[str, str]) -> None:
        """Send status and headers."""
        self.status = status
        pairs = [(name.lower().encode(), value.encode("latin-1")) for name, value in headers.items()]
        await self._send({"type": "http.response.start", "status": status, "headers": pairs})

    async def send(self, body: bytes, more: bool = False) -> None:
        """Send a part of the body, or the last of it."""
        await self._send({"type": "http.response.body", "body": body, "more_body": more})

    async def drop(self, how: str = "reset") -> None:
        """End the TCP connection at once, with whatever was not yet sent: by a reset, or by an end of stream.

        ASGI knows no such thing; uvicorn's ``send`` belongs to the object that holds the transport.
        """
        transport = self._send.__self__.transport  # type: ignore[attr-defined] # a bound method of uvicorn's
        connection = transport.get_extra_info("socket")
        if how == "reset" and connection is not None and not transport.is_closing():
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        transport.abort()
        while (await self._receive())["type"] != "http.disconnect":
            continue

    async def pause(self, seconds: float) -> None:
        """Wait, but not longer than until the sandbox is reset or ends."""
        try:
            async with asyncio.timeout(seconds):
                await self.cut_off.wait()
        except TimeoutError:
            return

    async def hold(self, seconds: float) -> None:
        """Wait in silence until the client goes, the sandbox is reset or ends, or the time is over."""
        waiting = [asyncio.ensure_future(self._receive()), asyncio.ensure_future(self.cut_off.wait())]
        try:
            await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waiting:
                one.cancel()
