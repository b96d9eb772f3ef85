"""The server of a receiver by itself: heads that are too long or too slow, and connections that say nothing."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest
import uvicorn

from cpaas_provider.delivery.receiver.http import connection_limits
from cpaas_provider.delivery.receiver.http.connection_limits import MAX_HEAD, LimitedLoop, TrackRequests
from tests.ports import listening
from tests.unit.delivery.receiver.slow_senders import answer_of
from tests.unit.delivery.running_receiver import PATIENCE, until

MOST = 20
GET = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"


async def answers(scope: object, receive: object, send: object) -> None:
    while (await receive())["more_body"]:  # type: ignore[operator]  # as ASGI has it
        pass
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})  # type: ignore[operator]  # as ASGI has it
    await send({"type": "http.response.body", "body": b"ok"})  # type: ignore[operator]  # likewise


class Bounded:
    """A server with the limits."""

    def __init__(self, listener: socket.socket, http: str) -> None:
        self.port: int = listener.getsockname()[1]
        loop = f"{LimitedLoop.__module__}:{LimitedLoop.__name__}"
        app = TrackRequests(answers)  # type: ignore[arg-type]  # its messages are of ASGI, if not by their type
        config = uvicorn.Config(app, loop=loop, http=http, log_level="critical", lifespan="off")
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [listener]}, daemon=True)
        self.thread.start()

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)

    def get(self) -> bytes:
        with self.connect() as connection:
            connection.sendall(GET)
            return connection.recv(1000)


@pytest.fixture(params=["httptools", "h11"])
def bounded(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bounded]:
    monkeypatch.setattr(connection_limits, "MAX_CONNECTIONS", MOST)
    with listening() as (listener, _):
        running = Bounded(listener, request.param)
        until(lambda: running.server.started)
        yield running
        running.server.should_exit = True
        running.thread.join(PATIENCE)


def test_requests_are_answered_one_after_the_other_and_together(bounded: Bounded) -> None:
    with bounded.connect() as connection:
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
def test_head_that_is_too_long_ends_the_connection(bounded: Bounded, head: bytes) -> None:
    with bounded.connect() as connection:
        sent = 0
        with contextlib.suppress(ConnectionError):
            while sent < 1000:
                connection.sendall(head if not sent else b"a" * 100_000)
                sent += 1
        assert sent < 1000
    assert bounded.get().startswith(b"HTTP/1.1 200")


def test_body_that_arrives_with_its_head_is_not_counted_as_head(bounded: Bounded) -> None:
    body = b"a" * (3 * MAX_HEAD)
    with bounded.connect() as connection:
        connection.sendall(b"POST / HTTP/1.1\r\nHost: here\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        assert connection.recv(1000).startswith(b"HTTP/1.1 200")
        connection.sendall(GET)
        assert connection.recv(1000).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("begun", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: here\r\nX: y\r\n"])
def test_head_that_does_not_come_ends_the_connection(
    bounded: Bounded, begun: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_limits, "HEAD_SECONDS", 0.2)
    with bounded.connect() as connection:
        connection.sendall(begun)
        said = answer_of(connection)
    assert said.startswith(b"HTTP/1.1 408" if begun else b"")
    assert bool(said) == bool(begun)


def test_so_does_the_head_of_a_second_request(bounded: Bounded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_limits, "HEAD_SECONDS", 0.2)
    with bounded.connect() as connection:
        connection.sendall(GET)
        assert connection.recv(1000).startswith(b"HTTP/1.1 200")
        connection.sendall(GET[:10])
        assert answer_of(connection).startswith(b"HTTP/1.1 408")


def test_half_open_connections_keep_nobody_out(bounded: Bounded) -> None:
    with contextlib.ExitStack() as crowd:
        half_open = [crowd.enter_context(bounded.connect()) for _ in range(4 * MOST)]
        for connection in half_open[::2]:
            with contextlib.suppress(ConnectionError):
                connection.sendall(b"GET / HT")
        assert [bounded.get()[:12] for _ in range(MOST)] == [b"HTTP/1.1 200"] * MOST
        until(lambda: len(connection_limits.connections) <= MOST)


def test_process_is_allowed_the_files_it_needs_where_that_can_be_had() -> None:
    assert 1 <= connection_limits.max_connections() <= connection_limits.MAX_CONNECTIONS
