"""Limits on connections: their number, and the bytes, headers, queued requests and time of each.

uvicorn leaves bodies to the application. It limits no heads, trailers and pipelined requests that httptools reads, and
waits for ever for a client that does not read its responses. Its limit on concurrency counts idle connections, so that
enough of them stop all requests.

uvicorn runs in a ``LimitedLoop``, which stands between a socket and uvicorn's protocol. ``TrackRequests`` stands before
the application, and reports when a request begins and ends. Both use only what asyncio, ASGI and uvicorn document.
``LimitedProtocol`` does not: nothing else reaches the lists in which uvicorn's protocol stores what it has parsed.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
from collections import deque
from collections.abc import Callable
from typing import Any

import uvloop
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from cpaas_provider.delivery.receiver.http.responses import MAX_BODY

MAX_HEAD = 16 * 1024
"""Bytes of a request line with its headers. The last read from the socket may exceed it."""

MAX_HEADERS = 100
"""Headers of a request."""

MAX_REQUEST = 3 * MAX_BODY
"""Bytes that may arrive from the head to the response: a body, its framing, and what is read of a refused body."""

MAX_PIPELINED = 8
"""Requests that may wait for the response to an earlier one of their connection."""

CLIENT_SECONDS = 10.0
"""How long the server waits for a client.

A head may take that long, from the start of the connection or from the last response. So may a client to read what was
sent to it.
"""

MAX_CONNECTIONS = 2000
"""Connections of one worker, if the system allows that many files."""

FILES_BESIDE = 150
"""Files that a worker needs beside connections."""

_TRAILERS: deque[tuple[bytes, bytes]] = deque(maxlen=0)
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


class LimitedProtocol(HttpToolsProtocol):
    """uvicorn's protocol, which refuses too many headers and pipelined requests with 400, and drops trailers."""

    def on_message_begin(self) -> None:
        """Begin a head, of which one header too many is stored at most."""
        super().on_message_begin()
        self.headers = deque(maxlen=MAX_HEADERS + 1)  # type: ignore[assignment]  # uvicorn only appends to it

    def on_headers_complete(self) -> None:
        """Begin a request. What uvicorn parses as a header from now on is a trailer."""
        if len(self.headers) > MAX_HEADERS or len(self.pipeline) >= MAX_PIPELINED:
            raise ValueError("Too many headers or pipelined requests.")
        self.scope["headers"] = list(self.headers)
        super().on_headers_complete()
        self.headers = _TRAILERS  # type: ignore[assignment]  # likewise


class TrackRequests:
    """ASGI middleware that tells a limited connection when a request on it begins and ends."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        connection = None
        if connections:
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
    """The connections of a server: how many are open, and those that wait for their client, the longest waiting first.

    A connection waits for its client to send a head, to read what was written, or to take the end of the connection.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._limit = max_connections()
        self._open = 0
        self._deadlines: dict[_Connection, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def open(self, connection: _Connection) -> None:
        """Count a new connection. At the limit, close the one that has waited longest."""
        self._open += 1
        self.add_waiting(connection)
        if self._open > self._limit:
            next(iter(self._deadlines)).abort()

    def close(self, connection: _Connection) -> None:
        self._open -= 1
        self.discard_waiting(connection)

    def add_waiting(self, connection: _Connection) -> None:
        self._deadlines.pop(connection, None)
        self._deadlines[connection] = self.loop.time() + CLIENT_SECONDS
        if self._timer is None:
            self._timer = self.loop.call_later(CLIENT_SECONDS, self._sweep)

    def discard_waiting(self, connection: _Connection) -> None:
        self._deadlines.pop(connection, None)

    def _sweep(self) -> None:
        now = self.loop.time()
        for connection in [connection for connection, deadline in self._deadlines.items() if deadline <= now]:
            connection.time_out()
        self._timer = None
        if self._deadlines:
            remaining = next(iter(self._deadlines.values())) - now
            self._timer = self.loop.call_later(max(remaining, CLIENT_SECONDS / 100), self._sweep)


class _Connection(asyncio.Protocol, asyncio.Transport):
    """One connection: the protocol of its transport, and the transport of the HTTP server's protocol.

    At the limit of connections, a new one displaces the one that has waited longest for its client. So senders that
    send their requests at once, and read the responses, are still served.
    """

    _transport: asyncio.Transport

    def __init__(self, protocol: asyncio.Protocol, server: _ServerConnections) -> None:
        super().__init__()
        self._protocol = protocol
        self._server = server
        self._address: Address = (None, None)
        self._is_idle = True
        self._is_unread = False
        self._received = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # of a stream, as asyncio says of this kind of protocol
        with contextlib.suppress(OSError):
            opened = transport.get_extra_info("socket")
            # IPv6 adds two numbers that ASGI leaves out.
            self._address = (opened.getpeername()[:2], opened.getsockname()[:2])
        connections[self._address] = self
        self._protocol.connection_made(self)
        self._server.open(self)

    def data_received(self, data: bytes) -> None:
        self._protocol.data_received(data)
        self._received += len(data)
        if self._received > MAX_HEAD:
            # What was read may hold a whole head and a part of the body. Then the request begins before this call.
            self._server.loop.call_soon(self._check_received)

    def eof_received(self) -> bool | None:
        return self._protocol.eof_received()

    def pause_writing(self) -> None:
        self._is_unread = True
        if not self._is_idle and not self._transport.is_closing():
            self._server.add_waiting(self)
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        self._is_unread = False
        self._stop_waiting()
        self._protocol.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        if connections.get(self._address) is self:
            del connections[self._address]
        self._server.close(self)
        self._protocol.connection_lost(exc)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        # uvicorn does not tell all requests of a connection that it is lost. uvloop raises an error on their writes.
        if not self._transport.is_closing():
            self._transport.write(data)

    def pause_reading(self) -> None:
        if not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if not self._transport.is_closing():
            self._transport.resume_reading()

    def close(self) -> None:
        """Close the connection once the client has read what was written, or when the time for that is over."""
        if not self._transport.is_closing():
            self._transport.close()
            self._server.add_waiting(self)

    def abort(self) -> None:
        self._server.discard_waiting(self)
        self._transport.abort()

    def begin_request(self) -> None:
        """Set the limits for a request, until its response is complete."""
        self._is_idle, self._received = False, 0
        self._stop_waiting()

    def expect_head(self) -> None:
        """Set the limits for the head of the next request."""
        self._is_idle, self._received = True, 0
        if not self._transport.is_closing():
            self._server.add_waiting(self)

    def time_out(self) -> None:
        """End a connection that has waited too long for its client."""
        if self._is_unread or self._transport.is_closing():
            self.abort()
        else:
            self._end(_TOO_SLOW)

    def _end(self, response: bytes) -> None:
        """Close the connection, with a response if a part of a head has arrived."""
        if self._received:
            self.write(response)
        self.close()

    def _stop_waiting(self) -> None:
        if not (self._is_idle or self._is_unread or self._transport.is_closing()):
            self._server.discard_waiting(self)

    def _check_received(self) -> None:
        if self._is_idle and self._received > MAX_HEAD:
            self._end(_TOO_LARGE)
        elif self._received > MAX_REQUEST:
            self.close()


Address = tuple[tuple[str, int] | None, tuple[str, int] | None]
connections: dict[Address, _Connection] = {}
"""The open connections by the addresses of both ends, as ASGI names them."""
