"""Limits on connections that have sent no request yet: bytes, time and number.

uvicorn leaves bodies to the application, and does not limit heads that httptools reads. Its limit on concurrency counts
idle connections, so that enough of them stop all requests.

Everything here is public in asyncio, ASGI and uvicorn. uvicorn runs in a ``LimitedLoop``, which stands between a socket
and uvicorn's protocol. ``TrackRequests`` stands before the application, and reports when a request begins and ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
from collections.abc import Callable
from typing import Any

import uvloop
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_HEAD = 16 * 1024
"""Bytes of a request line with its headers. The last read from the socket may exceed it."""

HEAD_SECONDS = 10.0
"""How long a head may take, from the start of the connection or from the last response."""

MAX_CONNECTIONS = 2000
"""Connections of one worker, if the system allows that many files."""

FILES_BESIDE = 150
"""Files that a worker needs beside connections."""

_TOO_SLOW = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


def max_connections() -> int:
    """Raise this process's limit on files as far as needed, and return how many connections it can hold."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_CONNECTIONS + FILES_BESIDE
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return MAX_CONNECTIONS if soft == resource.RLIM_INFINITY else max(1, min(MAX_CONNECTIONS, soft - FILES_BESIDE))


class LimitedLoop(uvloop.Loop):
    """An event loop whose servers limit their connections."""

    async def create_server(self, protocol_factory: Callable[[], Any], *args: Any, **options: Any) -> Any:
        """Start a server, as ``asyncio`` describes it."""
        server = _ServerConnections(self)
        return await super().create_server(lambda: _Connection(protocol_factory(), server), *args, **options)


class TrackRequests:
    """ASGI middleware that tells a limited connection when a request on it begins and ends."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        client, server = scope.get("client"), scope.get("server")
        connection = connections.get((client and tuple(client), server and tuple(server)))
        if connection is None:
            return await self._app(scope, receive, send)
        is_answered = False

        def end_request() -> None:
            # Only once: the next request of the connection may have begun before the application returns.
            nonlocal is_answered
            if not is_answered:
                is_answered = True
                connection.expect_head()

        async def send_and_track(message: Message) -> None:
            await send(message)
            if message["type"] == "http.response.body" and not message.get("more_body"):
                end_request()

        connection.begin_request()
        try:
            await self._app(scope, receive, send_and_track)
        finally:
            end_request()


class _ServerConnections:
    """The connections of a server: how many are open, and those without a request, the longest idle one first."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._limit = max_connections()
        self._open = 0
        self._deadlines: dict[_Connection, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def open(self, connection: _Connection) -> None:
        """Count a new connection. At the limit, close the one that has been idle longest."""
        self._open += 1
        self.add_idle(connection)
        if self._open > self._limit:
            longest_idle = next(iter(self._deadlines))
            self.discard_idle(longest_idle)
            longest_idle.abort()

    def close(self, connection: _Connection) -> None:
        self._open -= 1
        self.discard_idle(connection)

    def add_idle(self, connection: _Connection) -> None:
        self._deadlines.pop(connection, None)
        self._deadlines[connection] = self.loop.time() + HEAD_SECONDS
        if self._timer is None:
            self._timer = self.loop.call_later(HEAD_SECONDS, self._sweep)

    def discard_idle(self, connection: _Connection) -> None:
        self._deadlines.pop(connection, None)

    def _sweep(self) -> None:
        self._timer, now = None, self.loop.time()
        for connection in [connection for connection, deadline in self._deadlines.items() if deadline <= now]:
            connection.end(_TOO_SLOW)
        if self._deadlines:
            remaining = next(iter(self._deadlines.values())) - now
            self._timer = self.loop.call_later(max(remaining, HEAD_SECONDS / 100), self._sweep)


class _Connection(asyncio.Protocol):
    """One connection, between its transport and the protocol of the HTTP server.

    At the limit of connections, a new one displaces the one that has been idle longest. So senders that send their
    requests at once are still served.
    """

    _transport: asyncio.Transport

    def __init__(self, protocol: asyncio.Protocol, server: _ServerConnections) -> None:
        self._protocol = protocol
        self._server = server
        self._address: Address = (None, None)
        self._is_idle = True
        self._head_bytes = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # of a stream, as asyncio says of this kind of protocol
        with contextlib.suppress(OSError):
            opened = transport.get_extra_info("socket")
            # IPv6 adds two numbers that ASGI leaves out.
            self._address = (opened.getpeername()[:2], opened.getsockname()[:2])
        connections[self._address] = self
        self._protocol.connection_made(transport)
        self._server.open(self)

    def data_received(self, data: bytes) -> None:
        self._protocol.data_received(data)
        if self._is_idle:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD:
                # What was read may hold a whole head and a part of the body. Then the request begins before this call.
                self._server.loop.call_soon(self._check_head)

    def eof_received(self) -> bool | None:
        return self._protocol.eof_received()

    def pause_writing(self) -> None:
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        self._protocol.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        if connections.get(self._address) is self:
            del connections[self._address]
        self._server.close(self)
        self._protocol.connection_lost(exc)

    def begin_request(self) -> None:
        """Lift the limits until the response is complete."""
        self._is_idle, self._head_bytes = False, 0
        self._server.discard_idle(self)

    def expect_head(self) -> None:
        """Set the limits for the head of the next request."""
        self._is_idle, self._head_bytes = True, 0
        if not self._transport.is_closing():
            self._server.add_idle(self)

    def end(self, response: bytes) -> None:
        """Close the connection, with a response if a part of a request has arrived."""
        self._server.discard_idle(self)
        if not self._transport.is_closing():
            if self._head_bytes:
                self._transport.write(response)
            self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    def _check_head(self) -> None:
        if self._is_idle and self._head_bytes > MAX_HEAD:
            self.end(_TOO_LARGE)


Address = tuple[tuple[str, int] | None, tuple[str, int] | None]
connections: dict[Address, _Connection] = {}
"""The open connections by the addresses of both ends, as ASGI names them."""
