"""Limits on connections that have sent no request yet: bytes, time and number.

uvicorn leaves bodies to the application, and does not limit heads that httptools reads. Its limit on concurrency counts
idle connections, so that enough of them stop all requests.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import weakref
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol
from uvicorn.server import ServerState

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


class _IdleConnections:
    """The connections of a server without a request in progress, the longest idle one first."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.most = max_connections()
        self._loop = loop
        self._deadlines: dict[Limits, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def add(self, one: Limits) -> None:
        self._deadlines.pop(one, None)
        self._deadlines[one] = self._loop.time() + HEAD_SECONDS
        if self._timer is None:
            self._timer = self._loop.call_later(HEAD_SECONDS, self._sweep)

    def discard(self, one: Limits) -> None:
        self._deadlines.pop(one, None)

    def displace(self) -> None:
        """Close the connection that has been idle longest."""
        first = next(iter(self._deadlines), None)
        if first is not None:
            self._deadlines.pop(first)
            first.transport.abort()

    def _sweep(self) -> None:
        self._timer, now = None, self._loop.time()
        for one in [one for one, deadline in self._deadlines.items() if deadline <= now]:
            self._deadlines.pop(one)
            one.end(_TOO_SLOW)
        if self._deadlines:
            left = next(iter(self._deadlines.values())) - now
            self._timer = self._loop.call_later(max(left, HEAD_SECONDS / 100), self._sweep)


_idle_connections: weakref.WeakKeyDictionary[ServerState, _IdleConnections] = weakref.WeakKeyDictionary()


class Limits(asyncio.Protocol):
    """Base class that adds limits to a protocol of uvicorn.

    At the limit of connections, a new one displaces the one that has been idle longest. So senders that send their
    requests at once are still served.
    """

    transport: asyncio.Transport
    loop: asyncio.AbstractEventLoop
    server_state: ServerState
    connections: set[Any]
    cycle: Any

    def connection_made(self, transport: Any) -> None:
        """Track a new connection."""
        super().connection_made(transport)
        self._head = 0
        if self.server_state not in _idle_connections:
            _idle_connections[self.server_state] = _IdleConnections(self.loop)
        self._others = _idle_connections[self.server_state]
        self._others.add(self)
        if len(self.connections) > self._others.most:
            self._others.displace()

    def data_received(self, data: bytes) -> None:
        """Read received bytes, and check the size of an incomplete head."""
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._has_request():
            self._head = 0
            self._others.discard(self)
            return
        self._head += len(data)
        if self._head > MAX_HEAD:
            self._others.discard(self)
            self.end(_TOO_LARGE)

    def on_response_complete(self) -> None:
        """Wait for the next request on the same connection."""
        super().on_response_complete()  # type: ignore[misc]  # of the protocol that comes after this
        if not self.transport.is_closing() and not self._has_request():
            self._others.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop tracking the connection."""
        self._others.discard(self)
        super().connection_lost(exc)

    def end(self, response: bytes) -> None:
        """Close the connection, with a response if a part of a request has arrived."""
        if not self.transport.is_closing():
            if self._head:
                self.transport.write(response)
            self.transport.close()

    def _has_request(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete


class BoundedProtocol(Limits, AutoHTTPProtocol):  # type: ignore[misc, valid-type]  # chosen by what is installed
    """uvicorn's HTTP protocol, with limits."""
