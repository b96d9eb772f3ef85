"""HTTP/1.1 over asyncio's connections and llhttp's parser: one exchange at a time on each, and a pool of them.

It raises ``OSError`` while it connects, when nothing has been sent, and ``ExchangeError`` afterwards.
"""

from __future__ import annotations

import asyncio
import collections
import functools
import select
import socket
import ssl
from collections.abc import AsyncIterator
from typing import Any

import httptools

_MAX_FRAMING_BYTES = 100 * 1024
"""Of a head, or of what stands between and behind the parts of a body."""
_MAX_BUFFERED_BYTES = 256 * 1024
_HAPPY_EYEBALLS_DELAY = 0.25
_BODILESS = frozenset({204, 304})
_FRAMING = frozenset({b"content-length", b"transfer-encoding"})

Headers = list[tuple[bytes, bytes]]


class ExchangeError(Exception):
    """The connection broke, or what arrived is not HTTP. Bytes of the request may have left."""


class ExchangeTimeoutError(ExchangeError):
    """The server was silent for too long. Bytes of the request may have left."""


class Connection(asyncio.Protocol):
    """One connection to the server. The event loop and the parser call its methods, and a caller waits for both.

    :param timeout: seconds that a request may take to leave, that the head of its response may then take, and that the
        server may be silent in the body; a body that goes on for as long without a part of it is given up, too
    """

    def __init__(self, timeout: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._timeout = timeout
        self._waiter: asyncio.Future[None] | None = None
        self._active = self._lost = False
        self._can_write = self._reads = True
        self._start()

    def _start(self) -> None:
        """Forget the last exchange."""
        self._parser = httptools.HttpResponseParser(self)
        self._status: int | None = None
        self._headers: Headers = []
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
                # The reader of the body has a time limit, but trailers and the like do not reach it.
                raise ExchangeTimeoutError
            if not self._reads:
                self._reads = True
                self._transport.resume_reading()
            await self._wait(now + self._timeout)

    def end(self) -> bool:
        """End the exchange, at whatever point it is. Return whether the connection can be used again."""
        self._active = False
        whole = self._complete and self._reusable and self._can_write and self._reads
        if not whole:
            self._transport.abort()
        return whole and not self._lost

    def is_open(self) -> bool:
        """Tell whether the connection is open, as far as the event loop knows."""
        return not self._lost and not self._transport.is_closing()

    def is_quiet(self) -> bool:
        """Tell whether the connection is open and nothing has arrived, such as the end of an idle connection.

        It asks the operating system, as the event loop may not have got round to it.
        """
        return self.is_open() and not self._poll.poll(0)

    def close(self) -> None:
        """Close the connection. A response that it ends is none."""
        self._fail(None)
        self._transport.abort()

    async def _wait(self, deadline: float) -> None:
        """Wait until something has happened."""
        self._waiter = self._loop.create_future()
        timer = self._loop.call_at(deadline, self._time_out, self._waiter)
        try:
            await self._waiter
        finally:
            timer.cancel()
            self._waiter = None

    def _time_out(self, waiter: asyncio.Future[None]) -> None:
        if not waiter.done():
            waiter.set_exception(ExchangeTimeoutError())

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
        """Take over a connection."""
        self._transport: Any = transport
        # A request has left once all of it is with the operating system.
        transport.set_write_buffer_limits(high=1, low=0)  # type: ignore[attr-defined]  # it is of TCP or TLS
        self._poll = select.poll()
        self._poll.register(transport.get_extra_info("socket"), select.POLLIN)

    def eof_received(self) -> None:
        """Take the end of what the server sends for the end of the connection, which waits for what we send."""
        self.connection_lost(None)

    def connection_lost(self, error: Exception | None) -> None:
        """Decide whether that was the end of a body, or too early."""
        self._lost = True
        if error is None and self._error is None and self._status is not None and self._ends_with_connection:
            self._complete = True
        else:
            self._fail(error)
        self._wake()

    def pause_writing(self) -> None:
        """Wait for the operating system to take more."""
        self._can_write = False

    def resume_writing(self) -> None:
        """Go on, as all was taken."""
        self._can_write = True
        self._wake()

    def data_received(self, data: bytes) -> None:
        """Parse what arrived."""
        if not self._active:
            # No request waits for a response, so this answers none of ours.
            self._transport.abort()
            return
        self._framing_bytes += len(data)
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
        """Notice a second response, for which there was no request."""
        if self._complete:
            self._reusable = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """Collect the headers, and leave out what trails a body."""
        if self._status is None:
            self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Read the status; those of 1xx precede the response's own."""
        status = self._parser.get_status_code()
        if status < 100:
            raise httptools.HttpParserError("no such status")
        if status < 200 or self._complete:
            return
        framed = not _FRAMING.isdisjoint(name.lower() for name, _ in self._headers)
        self._ends_with_connection = not framed and status not in _BODILESS
        # A response to half a request may leave the server with the other half, which it takes for the next one.
        self._reusable = self._can_write and self._parser.should_keep_alive()
        self._status = status

    def on_body(self, chunk: bytes) -> None:
        """Collect a part of the body."""
        self._framing_bytes = 0
        if not self._complete:
            self._chunks.append(chunk)
            self._buffered_bytes += len(chunk)

    def on_message_complete(self) -> None:
        """Notice the end of the response, or of what precedes it."""
        if self._status is None:
            self._headers = []
        else:
            self._complete = True


class ConnectionPool:
    """The connections to one server. It opens as many as its callers use at the same time.

    :param context: how TLS is verified; ``None`` for plain http
    :param connect_timeout: seconds to connect, TLS included
    :param timeout: seconds for each part of an exchange; see ``Connection``
    :param keepalive_expiry: seconds an idle connection is kept
    """

    def __init__(
        self,
        host: str,
        port: int,
        context: ssl.SSLContext | None,
        *,
        connect_timeout: float,
        timeout: float,
        keepalive_expiry: float,
    ) -> None:
        self._host, self._port, self._context = host, port, context
        self._connect_timeout, self._keepalive_expiry = connect_timeout, keepalive_expiry
        self._new_connection = functools.partial(Connection, timeout)
        self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._open: set[Connection] = set()
        self._idle: collections.deque[tuple[float, Connection]] = collections.deque()

    async def acquire(self) -> Connection:
        """Return the connection used last, or a new one.

        :raises OSError: when none can be made
        :raises RuntimeError: in another event loop than the first
        """
        loop = asyncio.get_running_loop()
        self._loop = self._loop or loop
        if self._loop is not loop:
            # The request would leave, and its response could not be read.
            raise RuntimeError(
                "Each event loop needs a client of its own; this one was used in another. The request did not leave."
            )
        now = loop.time()
        while self._idle and self._idle[0][0] <= now:
            self._discard(self._idle.popleft()[1])
        while self._idle:
            _, connection = self._idle.pop()
            if connection.is_quiet():
                return connection
            self._discard(connection)
        async with asyncio.timeout(self._connect_timeout):
            connection = await self._connect()
        if self._closed or not connection.is_open():
            connection.close()
            raise ConnectionAbortedError("The connection was closed before a request left.")
        self._open.add(connection)
        return connection

    def release(self, connection: Connection) -> None:
        """Take back a connection, whether its exchange came to its end or not."""
        if connection.end():
            expires = asyncio.get_running_loop().time() + self._keepalive_expiry
            self._idle.append((expires, connection))
        else:
            self._open.discard(connection)

    async def aclose(self) -> None:
        """Close all connections, also those that are being made."""
        self._closed = True
        for connection in self._open:
            connection.close()
        self._open.clear()
        self._idle.clear()
        # The event loop closes them when it comes round.
        await asyncio.sleep(0)

    async def _connect(self) -> Connection:
        loop = asyncio.get_running_loop()
        addresses = await loop.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
        several = len(addresses) != 1
        options: dict[str, Any] = {"ssl": self._context, "server_hostname": self._host if self._context else None}
        if several and isinstance(loop, asyncio.BaseEventLoop):
            # asyncio soon tries the next address, too; other loops, such as uvloop, try them in turn. A socket that it
            # has when it is cancelled is closed only by the garbage collector, so this is for hosts that need it.
            options["happy_eyeballs_delay"] = _HAPPY_EYEBALLS_DELAY
        host = self._host if several else str(addresses[0][4][0])
        connection: Connection
        _, connection = await loop.create_connection(self._new_connection, host, self._port, **options)
        return connection

    def _discard(self, connection: Connection) -> None:
        connection.close()
        self._open.discard(connection)
