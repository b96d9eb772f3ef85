"""HTTP/1.1 over asyncio's connections and llhttp's parser: connections with one exchange at a time, and their pool.

``OSError`` means that connecting failed, so nothing was sent. ``ExchangeError`` means a failure after that.
"""

from __future__ import annotations

import asyncio
import collections
import functools
import select
from collections.abc import AsyncIterator
from typing import Any

import httptools

from cpaas_provider.api.http.response_head import Headers, MalformedHeadError, read_head
from cpaas_provider.api.http.routes import Proxy, Server, connect

_MAX_FRAMING_BYTES = 100 * 1024
"""The longest head, and the most bytes between and after the chunks of a body."""
_MAX_BUFFERED_BYTES = 256 * 1024
_TIMER_TOLERANCE = 0.001
"""In seconds. uvloop's timers may fire this much too early."""
REST = 0.1
"""Seconds before a new connection is used again for the first time. A broken server sends a second response to each
request. It shows in this time, and would otherwise count as the response to the next request. The wait is longer than
that of TCP for an acknowledgement, which may delay such a response."""
_MOST_RESTING = 16
"""Meanwhile each request has a new connection, up to so many."""
_BODILESS = frozenset({204, 304})
_FRAMING = frozenset({b"content-length", b"transfer-encoding"})


class ExchangeError(Exception):
    """The connection broke, or what arrived is not HTTP. Bytes of the request may have left."""


class ExchangeTimeoutError(ExchangeError):
    """The server was silent for too long. Bytes of the request may have left."""


class Connection(asyncio.Protocol):
    """One connection to the server. The event loop and the parser call its methods; the caller of ``exchange`` waits.

    :param timeout: the longest time, in seconds, for the request to leave, then for the head of the response, then
        between two chunks of its body, even if other bytes such as trailers arrive
    """

    def __init__(self, timeout: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._timeout = timeout
        self._waiter: asyncio.Future[None] | None = None
        self._deadline = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._active = self._lost = False
        self.has_rested = self.got_second_response = False
        self._can_write = self._reads = True
        self._start()

    def _start(self) -> None:
        """Reset the state of the previous exchange."""
        self._parser = httptools.HttpResponseParser(self)
        self._status: int | None = None
        self._headers: Headers = []
        self._head = bytearray()
        self._chunks: collections.deque[bytes] = collections.deque()
        self._framing_bytes = self._buffered_bytes = 0
        self._complete = self._reusable = self._ends_with_connection = False
        self._error: ExchangeError | None = None

    # Called by the sender.

    async def exchange(self, request: bytes) -> tuple[int, Headers]:
        """Send a request and return the status and headers of its response."""
        self._start()
        self._active = True
        self._transport.write(request)
        deadline = self._loop.time() + self._timeout
        while not self._can_write and self._status is None and self._error is None:
            await self._wait(deadline)
        deadline = self._loop.time() + self._timeout
        while self._status is None:
            if self._error is not None:
                raise self._error
            await self._wait(deadline)
        return self._status, self._headers

    async def body(self) -> AsyncIterator[bytes]:
        """Yield the body of the response as it arrives."""
        deadline = self._loop.time() + self._timeout
        while True:
            while self._chunks:
                chunk = self._chunks.popleft()
                self._buffered_bytes -= len(chunk)
                yield chunk
            if self._complete:
                return
            if self._error is not None:
                raise self._error
            now = self._loop.time()
            if now > deadline:
                # The caller has a time limit for chunks, but it never sees trailers and chunk headers.
                raise ExchangeTimeoutError
            if not self._reads:
                self._reads = True
                self._transport.resume_reading()
            await self._wait(now + self._timeout)

    def end(self) -> bool:
        """End the exchange, complete or not. Return whether the connection can be used again."""
        self._active = False
        reusable = self._complete and self._reusable and self._can_write and self._reads
        if not reusable:
            self._transport.abort()
        return reusable and not self._lost

    def is_open(self) -> bool:
        """Tell whether the connection is open, as far as the event loop knows."""
        return not self._lost and not self._transport.is_closing()

    def is_quiet(self) -> bool:
        """Tell whether the connection is open and nothing has arrived, neither data nor the server's close.

        It asks the operating system, because the event loop may not have processed the arrival yet.
        """
        return self.is_open() and not self._poll.poll(0)

    @property
    def alert(self) -> BaseException | None:
        """The TLS alert by which the server ended the connection, even if the event loop has not closed it yet."""
        return getattr(self._transport.get_extra_info("ssl_object"), "alert", None)

    def close(self) -> None:
        """Close the connection. A response that is still arriving counts as failed."""
        self._fail(None)
        self._transport.abort()

    async def _wait(self, deadline: float) -> None:
        """Wait until the event loop calls ``_wake``.

        :raises ExchangeTimeoutError: when the deadline passes first
        """
        self._waiter, self._deadline = self._loop.create_future(), deadline
        # The timer of an earlier wait runs on. It fires before this deadline, and is then set anew: to set one for each
        # wait would take longer than all else in it.
        if self._timer is None:
            self._timer = self._loop.call_at(deadline, self._on_timer)
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _on_timer(self) -> None:
        """End the wait if its deadline has passed, else wait for the deadline."""
        self._timer = None
        if self._waiter is None or self._waiter.done():
            return
        if self._loop.time() < self._deadline - _TIMER_TOLERANCE:
            self._timer = self._loop.call_at(self._deadline, self._on_timer)
        else:
            self._waiter.set_exception(ExchangeTimeoutError())

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _fail(self, cause: BaseException | None) -> None:
        if self._error is None and not self._complete:
            self._error = ExchangeError()
            self._error.__cause__ = cause
        self._reusable = False

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport of the new connection."""
        self._transport: Any = transport
        # A request counts as sent once the operating system has taken all of it.
        transport.set_write_buffer_limits(high=1, low=0)  # type: ignore[attr-defined]  # it is of TCP or TLS
        self._poll = select.poll()
        self._poll.register(transport.get_extra_info("socket"), select.POLLIN)

    def eof_received(self) -> None:
        """Treat the server's end of sending as a lost connection."""
        self.connection_lost(None)

    def connection_lost(self, error: Exception | None) -> None:
        """End the body if the close of the connection marks its end, else fail the exchange."""
        self._lost = True
        if error is None and self._error is None and self._status is not None and self._ends_with_connection:
            self._complete = True
        else:
            self._fail(error)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._wake()

    def pause_writing(self) -> None:
        """Note that the operating system takes no more bytes for now."""
        self._can_write = False

    def resume_writing(self) -> None:
        """Note that the operating system has taken all bytes."""
        self._can_write = True
        self._wake()

    def data_received(self, data: bytes) -> None:
        """Parse what arrived."""
        if not self._active:
            # No request is waiting, so these bytes belong to no response.
            self.got_second_response = True
            self._transport.abort()
            return
        self._framing_bytes += len(data)
        if self._status is None:
            self._head += data
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fail(error)
            self._transport.abort()
        if self._framing_bytes > _MAX_FRAMING_BYTES:
            self._fail(None)
            self._transport.abort()
        elif self._buffered_bytes > _MAX_BUFFERED_BYTES and self._reads and not self._complete:
            self._reads = False
            self._transport.pause_reading()
        self._wake()

    # Called by the parser.

    def on_message_begin(self) -> None:
        """Do not reuse the connection after a second response, for which there was no request."""
        if self._complete:
            self._reusable = False
            self.got_second_response = True

    def on_headers_complete(self) -> None:
        """Read the head. That of an interim response precedes the actual one, and is skipped."""
        if self._complete:
            return
        try:
            status, headers, length = read_head(bytes(self._head))
        except MalformedHeadError as error:
            raise httptools.HttpParserError(*error.args) from None
        if length > _MAX_FRAMING_BYTES:
            raise httptools.HttpParserError("the head is too long")
        if status < 200:
            del self._head[:length]
            return
        framed = not _FRAMING.isdisjoint(name for name, _ in headers)
        self._ends_with_connection = not framed and status not in _BODILESS
        # After a response to an incomplete request, the server may take the rest of it for the next request.
        self._reusable = self._can_write and self._parser.should_keep_alive()
        self._status, self._headers = status, headers

    def on_body(self, chunk: bytes) -> None:
        """Collect a chunk of the body."""
        self._framing_bytes = 0
        if not self._complete:
            self._chunks.append(chunk)
            self._buffered_bytes += len(chunk)

    def on_message_complete(self) -> None:
        """Mark the response as complete, unless it is an interim one."""
        self._complete = self._status is not None


class ConnectionPool:
    """The connections to one server, as many as there are requests at the same time.

    After a second response to one request, each further request has a connection of its own.

    :param proxy: the proxy through which they go
    :param connect_timeout: seconds to connect, TLS included; twice as many with a proxy
    :param timeout: seconds for each part of an exchange; see ``Connection``
    :param keepalive_expiry: seconds an idle connection is kept
    """

    def __init__(
        self,
        server: Server,
        proxy: Proxy | None = None,
        *,
        connect_timeout: float,
        timeout: float,
        keepalive_expiry: float,
    ) -> None:
        self._server, self._proxy = server, proxy
        self._connect_timeout = connect_timeout if proxy is None else 2 * connect_timeout
        self._keepalive_expiry = keepalive_expiry
        self._new_connection = functools.partial(Connection, timeout)
        self._closed = False
        self._responds_twice = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._open: set[Connection] = set()
        self._idle: collections.deque[tuple[float, Connection]] = collections.deque()
        self._resting: collections.deque[tuple[float, Connection]] = collections.deque()

    async def acquire(self) -> Connection:
        """Return the most recently used idle connection, or a new one.

        :raises OSError: when no connection can be made
        :raises RuntimeError: in another event loop than that of the first call
        """
        loop = asyncio.get_running_loop()
        self._loop = self._loop or loop
        if self._loop is not loop:
            # The request would leave, but this loop could not read its response.
            raise RuntimeError(
                "Each event loop needs a client of its own; this one was used in another. The request did not leave."
            )
        now = loop.time()
        if len(self._resting) >= _MOST_RESTING:
            await asyncio.sleep(max(0.0, self._resting[0][0] + REST - now))
            now = loop.time()
        while self._resting and self._resting[0][0] <= now - REST:
            since, connection = self._resting.popleft()
            connection.has_rested = True
            self._idle.append((since, connection))
        while self._idle and self._idle[0][0] <= now - self._keepalive_expiry:
            self._discard(self._idle.popleft()[1])
        while self._idle:
            _, connection = self._idle.pop()
            if connection.is_quiet() and not self._responds_twice:
                return connection
            self._discard(connection)
        async with asyncio.timeout(self._connect_timeout):
            connection = await connect(self._new_connection, self._server, self._proxy)
        if self._closed or not connection.is_open():
            connection.close()
            raise ConnectionAbortedError("The connection was closed before a request left.") from connection.alert
        self._open.add(connection)
        return connection

    def release(self, connection: Connection) -> None:
        """Take back a connection after its exchange, and keep it if it can be used again."""
        self._responds_twice = self._responds_twice or connection.got_second_response
        if connection.end() and not self._responds_twice:
            idle = self._idle if connection.has_rested else self._resting
            idle.append((asyncio.get_running_loop().time(), connection))
        else:
            self._open.discard(connection)

    async def aclose(self) -> None:
        """Close all connections. One that is being made is closed as soon as it is open."""
        self._closed = True
        for connection in self._open:
            connection.close()
        self._open.clear()
        self._idle.clear()
        self._resting.clear()
        # The event loop closes them in its next iteration.
        await asyncio.sleep(0)

    def _discard(self, connection: Connection) -> None:
        self._responds_twice = self._responds_twice or connection.got_second_response
        connection.close()
        self._open.discard(connection)
