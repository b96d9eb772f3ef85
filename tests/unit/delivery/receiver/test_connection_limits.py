"""The server of a receiver by itself: what it stores of a connection, and how long it waits for a client."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import struct
import threading
from collections.abc import Iterator

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from cpaas_provider.delivery.receiver.http import connection_limits
from cpaas_provider.delivery.receiver.http.connection_limits import (
    MAX_HEAD,
    MAX_HEADERS,
    MAX_PIPELINED,
    MAX_REQUEST,
    LimitedLoop,
    LimitedProtocol,
    TrackRequests,
)
from tests.ports import listening
from tests.unit.delivery.receiver.slow_senders import read_response
from tests.unit.delivery.running_receiver import PATIENCE
from tests.waiting import until

MOST = 20
GET = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"
GET_LATER = GET.replace(b"/", b"/later", 1)
GET_LARGE = GET.replace(b"/", b"/large", 1)
LARGE = bytes(16 * 1024 * 1024)
"""More than the buffers of a connection hold."""

FLOOD = 64 * 1024 * 1024
BUFFERED = FLOOD // 2
"""More than the systems of both ends store of what the server does not read."""


class LimitedServer:
    """A server with the limits.

    :ivar headers: the headers of each request, and what was added to them since
    :ivar queued: the most requests that waited on a connection when another one began
    :ivar proceed: lets requests for ``/later`` be answered
    """

    def __init__(self, listener: socket.socket) -> None:
        self.port: int = listener.getsockname()[1]
        self.headers: list[list[tuple[bytes, bytes]]] = []
        self.queued = 0
        self.proceed = threading.Event()
        loop = f"{LimitedLoop.__module__}:{LimitedLoop.__name__}"
        app = TrackRequests(self.answer)
        config = uvicorn.Config(app, loop=loop, http=LimitedProtocol, log_config=None, lifespan="off")
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [listener]}, daemon=True)
        self.thread.start()

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.headers.append(scope["headers"])
        for protocol in self.server.server_state.connections:
            self.queued = max(self.queued, len(protocol.pipeline))  # type: ignore[union-attr]  # it is httptools'
        message = await receive()
        while message.get("more_body"):
            message = await receive()
        if scope["path"] == "/later":
            await asyncio.to_thread(self.proceed.wait, PATIENCE)
        body = LARGE if scope["path"] == "/large" else b"ok"
        headers = [(b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)

    def get(self) -> bytes:
        with self.connect() as connection:
            connection.sendall(GET)
            return connection.recv(1000)

    def in_progress(self) -> int:
        return len(self.server.server_state.tasks)


@pytest.fixture
def limited_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[LimitedServer]:
    monkeypatch.setattr(connection_limits, "MAX_CONNECTIONS", MOST)
    with listening() as (listener, _):
        running = LimitedServer(listener)
        until(lambda: running.server.started)
        yield running
        running.proceed.set()
        running.server.should_exit = True
        running.thread.join(PATIENCE)


def send_until_closed(connection: socket.socket, data: bytes) -> int:
    """Send ``data`` again and again, and return how many bytes were sent before the connection ended."""
    sent = 0
    with contextlib.suppress(ConnectionError):
        while sent < FLOOD:
            connection.sendall(data)
            sent += len(data)
    return sent


def test_sequential_and_pipelined_requests_get_responses(limited_server: LimitedServer) -> None:
    with limited_server.connect() as connection:
        for _ in range(3):
            connection.sendall(GET)
            assert connection.recv(1000).startswith(b"HTTP/1.1 200")
        connection.sendall(GET * 3)
        said = b""
        while said.count(b"HTTP/1.1 200") < 3:
            said += connection.recv(1000)
        connection.sendall(GET[:10])
        connection.sendall(GET[10:])
        assert connection.recv(1000).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("head", [b"GET /" + b"a" * 100_000, b"GET / HTTP/1.1\r\nX: " + b"a" * 100_000])
def test_head_that_is_too_long_ends_the_connection(limited_server: LimitedServer, head: bytes) -> None:
    with limited_server.connect() as connection:
        connection.sendall(head)
        assert send_until_closed(connection, b"a" * 100_000) < BUFFERED
    assert limited_server.get().startswith(b"HTTP/1.1 200")


def test_body_that_arrives_with_its_head_is_not_counted_as_head(limited_server: LimitedServer) -> None:
    body = b"a" * (3 * MAX_HEAD)
    with limited_server.connect() as connection:
        connection.sendall(b"POST / HTTP/1.1\r\nHost: here\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        assert connection.recv(1000).startswith(b"HTTP/1.1 200")
        connection.sendall(GET)
        assert connection.recv(1000).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("begun", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: here\r\nX: y\r\n"])
def test_head_that_does_not_arrive_ends_the_connection(
    limited_server: LimitedServer, begun: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_limits, "CLIENT_SECONDS", 0.2)
    with limited_server.connect() as connection:
        connection.sendall(begun)
        said = read_response(connection)
    assert said.startswith(b"HTTP/1.1 408" if begun else b"")
    assert bool(said) == bool(begun)


def test_second_head_that_does_not_arrive_ends_the_connection(
    limited_server: LimitedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_limits, "CLIENT_SECONDS", 0.2)
    with limited_server.connect() as connection:
        connection.sendall(GET)
        assert connection.recv(1000).startswith(b"HTTP/1.1 200")
        connection.sendall(GET[:10])
        assert read_response(connection).startswith(b"HTTP/1.1 408")


def test_half_open_connections_do_not_block_other_clients(limited_server: LimitedServer) -> None:
    with contextlib.ExitStack() as crowd:
        half_open = [crowd.enter_context(limited_server.connect()) for _ in range(4 * MOST)]
        for connection in half_open[::2]:
            with contextlib.suppress(ConnectionError):
                connection.sendall(b"GET / HT")
        assert [limited_server.get()[:12] for _ in range(MOST)] == [b"HTTP/1.1 200"] * MOST
        until(lambda: len(connection_limits.connections) <= MOST)


@pytest.mark.parametrize(("count", "status"), [(MAX_HEADERS, b"200"), (MAX_HEADERS + 1, b"400")])
def test_number_of_headers_is_limited(limited_server: LimitedServer, count: int, status: bytes) -> None:
    with limited_server.connect() as connection:
        connection.sendall(b"GET / HTTP/1.1\r\n" + b"a:b\r\n" * count + b"\r\n")
        assert connection.recv(1000).startswith(b"HTTP/1.1 " + status)


@pytest.mark.parametrize(
    ("begun", "more"),
    [
        pytest.param(b"0\r\n", b"a:b\r\n" * 20_000, id="trailers"),
        pytest.param(b"0\r\nX: ", b"a" * 100_000, id="long trailer"),
        pytest.param(b"1;x=", b"a" * 100_000, id="chunk extension"),
        pytest.param(b"", b"1\r\na\r\n" * 20_000, id="body"),
    ],
)
def test_request_that_does_not_end_is_not_stored_and_ends_the_connection(
    limited_server: LimitedServer, begun: bytes, more: bytes
) -> None:
    with limited_server.connect() as connection:
        connection.sendall(b"POST / HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\n" + begun)
        until(lambda: limited_server.in_progress() == 1)
        assert send_until_closed(connection, more) < BUFFERED
        assert limited_server.get().startswith(b"HTTP/1.1 200")
    assert [len(headers) for headers in limited_server.headers] == [2, 1]


def test_trailers_are_no_headers_and_the_connection_stays_open(limited_server: LimitedServer) -> None:
    head = b"POST / HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\n"
    with limited_server.connect() as connection:
        connection.sendall(head + b"2\r\n{}\r\n0\r\nX-Signature: forged\r\n\r\n")
        assert connection.recv(1000).startswith(b"HTTP/1.1 200")
        connection.sendall(GET)
        assert connection.recv(1000).startswith(b"HTTP/1.1 200")
    assert limited_server.headers == [[(b"host", b"here"), (b"transfer-encoding", b"chunked")], [(b"host", b"here")]]


def test_largest_allowed_request_gets_a_response(limited_server: LimitedServer) -> None:
    body = bytes(MAX_REQUEST - MAX_HEAD)
    with limited_server.connect() as connection:
        connection.sendall(b"POST / HTTP/1.1\r\nHost: here\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        assert connection.recv(1000).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("first", [GET, GET_LATER])
def test_number_of_queued_pipelined_requests_is_limited(limited_server: LimitedServer, first: bytes) -> None:
    with limited_server.connect() as connection:
        # Few enough to be read at once: what remains unread resets the connection, perhaps before the response is read.
        connection.sendall(first + GET * 100)
        assert b"HTTP/1.1 400" in read_response(connection)
        assert limited_server.get().startswith(b"HTTP/1.1 200")
    assert limited_server.queued <= MAX_PIPELINED
    assert len(limited_server.headers) <= 1 + MAX_PIPELINED + 1


@pytest.mark.parametrize(
    ("requests", "begun"),
    [(GET_LARGE + GET * 2, 2), (GET_LARGE.replace(b"1.1", b"1.0"), 1)],
    ids=["next response waits", "end of the connection waits"],
)
def test_clients_that_do_not_read_do_not_block_others(
    limited_server: LimitedServer, requests: bytes, begun: int
) -> None:
    with contextlib.ExitStack() as crowd:
        for _ in range(MOST):
            crowd.enter_context(limited_server.connect()).sendall(requests)
        until(lambda: len(limited_server.headers) == begun * MOST)
        assert len(connection_limits.connections) == MOST
        assert [limited_server.get()[:12] for _ in range(3)] == [b"HTTP/1.1 200"] * 3


def test_unread_response_ends_the_connection(limited_server: LimitedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_limits, "CLIENT_SECONDS", 0.2)
    with contextlib.ExitStack() as crowd:
        for requests in (GET_LARGE, GET_LARGE + GET * 2, GET_LARGE.replace(b"1.1", b"1.0")):
            crowd.enter_context(limited_server.connect()).sendall(requests)
        until(lambda: len(limited_server.headers) >= 3)
        until(lambda: not connection_limits.connections and not limited_server.in_progress())


def test_client_that_leaves_with_requests_in_progress_causes_no_error(
    limited_server: LimitedServer, caplog: pytest.LogCaptureFixture
) -> None:
    with limited_server.connect() as connection:
        connection.sendall(GET_LATER + GET * 2)
        until(lambda: limited_server.in_progress() == 1)
        # The connection is reset.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    until(lambda: not connection_limits.connections)
    limited_server.proceed.set()
    until(lambda: not limited_server.in_progress())
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


def test_connection_limit_of_the_process_is_within_its_bounds() -> None:
    assert 1 <= connection_limits.max_connections() <= connection_limits.MAX_CONNECTIONS
