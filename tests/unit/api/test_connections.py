"""Connections that are used again and again: no response is taken for another request's, whatever the server does."""

from __future__ import annotations

import asyncio
import json
import random
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from cpaas_provider.api import operations as ask
from cpaas_provider.api.http.transport import AsyncTransport
from cpaas_provider.api.http.wire import HttpResponse, OutgoingRequest, TransportFailure
from cpaas_provider.api.settings import ClientSettings
from tests.unit.api.conftest import KEY, Send
from tests.unit.api.loopback import Loopback, Seen, answering, http
from tests.waiting import until

pytestmark = pytest.mark.usefixtures("no_rest")

OK = HttpResponse(200, None, b"mine")


def at(url: str, **options: Any) -> ClientSettings:
    return ClientSettings(url, KEY, **{"timeout": 5, "connect_timeout": 5, **options})


def request(settings: ClientSettings, content: str = "Hello") -> OutgoingRequest:
    return ask.send_sms("2348031234567", "Clinic", content).build(settings)[0]


@asynccontextmanager
async def sending(settings: ClientSettings) -> AsyncIterator[Callable[..., Any]]:
    transport = AsyncTransport(settings)
    try:
        yield lambda content="Hello": transport.send(request(settings, content))
    finally:
        await transport.aclose()


def saying(data: bytes) -> Callable[[socket.socket, Seen], None]:
    return lambda connection, _: connection.sendall(data)


# One response ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("interim", [b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 X\r\nRetry-After: 7\r\n\r\n"])
def test_interim_responses_precede_the_response(send: Send, interim: bytes) -> None:
    with Loopback(saying(interim * 2 + http(200, b"mine"))) as server:
        assert send(request(at(server.url)), at(server.url)) == OK


def test_switched_protocols_are_no_readable_response(send: Send) -> None:
    with Loopback(saying(b"HTTP/1.1 101 X\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nbytes")) as server:
        given = send(request(at(server.url)), at(server.url, timeout=0.3))
    assert given is TransportFailure.CONNECTION_LOST or (isinstance(given, HttpResponse) and given.status == 101)


def test_trailers_are_no_headers(send: Send) -> None:
    chunked = b"HTTP/1.1 503 X\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nmine\r\n0\r\nRetry-After: 7\r\n\r\n"
    with Loopback(saying(chunked)) as server:
        assert send(request(at(server.url)), at(server.url)) == HttpResponse(503, None, b"mine")


def test_response_without_body_or_length_is_complete_at_once(send: Send) -> None:
    with Loopback(saying(b"HTTP/1.1 204 No Content\r\n\r\n")) as server:
        assert send(request(at(server.url)), at(server.url)) == HttpResponse(204)


@pytest.mark.parametrize("version", [b"1.0", b"1.1"])
def test_body_without_length_ends_with_the_connection(send: Send, version: bytes) -> None:
    def unframed(connection: socket.socket, _: Seen) -> None:
        connection.sendall(b"HTTP/%b 200 OK\r\n\r\nmi" % version)
        connection.sendall(b"ne")
        connection.shutdown(socket.SHUT_WR)

    with Loopback(unframed) as server:
        assert send(request(at(server.url)), at(server.url)) == OK


def test_response_that_arrives_byte_by_byte(send: Send) -> None:
    def slowly(connection: socket.socket, _: Seen) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in http(200, b"mine", Retry_After="7"):
            connection.sendall(bytes([byte]))
            time.sleep(0.001)

    with Loopback(slowly) as server:
        assert send(request(at(server.url)), at(server.url)) == HttpResponse(200, "7", b"mine")


@pytest.mark.parametrize(
    "endless", [b"HTTP/1.1 200 OK\r\n" + b"X-Pad: x\r\n" * 200_000, b"HTTP/1.1 103 X\r\n\r\n" * 100_000]
)
def test_head_without_end_is_not_read_to_it(endless: bytes) -> None:
    async def send() -> None:
        with Loopback(saying(endless)) as server:
            async with sending(at(server.url)) as send:
                assert await send() is TransportFailure.CONNECTION_LOST

    asyncio.run(send())


@pytest.mark.parametrize(
    "malformed",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nmine!",
        b"HTTP/1.1 200 OK\r\nContent-Length: -4\r\n\r\nmine",
        b"HTTP/1.1 2x0 OK\r\n\r\n",
        b"\x16\x03\x01",
    ],
)
def test_malformed_response_is_unknown(send: Send, malformed: bytes) -> None:
    with Loopback(saying(malformed)) as server:
        assert send(request(at(server.url)), at(server.url, timeout=1)) in {
            TransportFailure.CONNECTION_LOST,
            TransportFailure.RESPONSE_TIMEOUT,
        }


def test_early_response_to_a_large_request_is_read() -> None:
    async def run() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:

            def refuse() -> None:
                connection, _ = listener.accept()
                with connection:
                    connection.recv(100)
                    connection.sendall(http(413, b"mine"))
                    connection.settimeout(5)
                    while connection.recv(65536):
                        pass

            threading.Thread(target=refuse, daemon=True).start()
            async with sending(at("http://{}:{}".format(*listener.getsockname()))) as send:
                assert await send("x" * 20_000_000) == HttpResponse(413, None, b"mine")

    asyncio.run(run())


def test_server_that_reads_no_request_is_unknown() -> None:
    async def run() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            async with sending(at("http://{}:{}".format(*listener.getsockname()), timeout=0.3)) as send:
                assert await send("x" * 20_000_000) is TransportFailure.RESPONSE_TIMEOUT

    asyncio.run(run())


# The next request -----------------------------------------------------------------------------------------------------


async def test_connection_is_used_again() -> None:
    with Loopback(answering(200, b"mine")) as server:
        async with sending(at(server.url)) as send:
            for _ in range(5):
                assert await send() == OK
    assert (len(server.seen), server.connections) == (5, 1)


async def test_each_request_on_a_connection_has_the_whole_time() -> None:
    silent = threading.Event()

    def slow_the_second_time(connection: socket.socket, _: Seen) -> None:
        if len(server.seen) == 2:
            time.sleep(0.25)
        if len(server.seen) < 3:
            connection.sendall(http(200, b"mine"))
        else:
            silent.wait()

    with Loopback(slow_the_second_time) as server:
        async with sending(at(server.url, timeout=0.4)) as send:
            assert await send() == OK
            # The second response comes after the time of the first request, and within its own.
            await asyncio.sleep(0.25)
            assert await send() == OK
            began = time.monotonic()
            assert await send() is TransportFailure.RESPONSE_TIMEOUT
            assert time.monotonic() - began > 0.38
    silent.set()
    assert (len(server.seen), server.connections) == (3, 1)


async def test_requests_on_a_connection_share_one_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, timers = asyncio.get_running_loop(), []
    call_at = loop.call_at

    def counted(when: float, callback: Callable[..., Any], *given: Any, **how: Any) -> asyncio.TimerHandle:
        timers.append(callback)
        return call_at(when, callback, *given, **how)

    with Loopback(answering(200, b"mine")) as server:
        async with sending(at(server.url)) as send:
            for _ in range(2):
                assert await send() == OK
            monkeypatch.setattr(loop, "call_at", counted)
            for _ in range(50):
                assert await send() == OK
            monkeypatch.undo()
    assert (len(server.seen), server.connections, timers) == (52, 1, [])


@pytest.mark.parametrize(
    "first",
    [
        http(200, b"mine", Connection="close"),
        b"HTTP/1.0 200 OK\r\nContent-Length: 4\r\n\r\nmine",
        http(200, b"mine") + http(200, b"stray"),
        http(200, b"mine") + b"HTTP/1.1 200",
        http(200, b"mine") + b"garbage",
    ],
)
async def test_connection_that_cannot_be_trusted_is_not_used_again(first: bytes) -> None:
    def script(connection: socket.socket, _: Seen) -> None:
        connection.sendall(first if len(server.seen) == 1 else http(200, b"mine"))

    with Loopback(script) as server:
        async with sending(at(server.url)) as send:
            assert await send() == OK
            assert await send() == OK
    assert (len(server.seen), server.connections) == (2, 2)


@pytest.mark.parametrize("asleep", [True, False], ids=["loop is busy", "loop is free"])
@pytest.mark.parametrize("last", [b"", http(408)], ids=["closes", "sends a time-out and closes"])
async def test_idle_connection_that_the_server_ends_is_not_used_again(last: bytes, asleep: bool) -> None:
    ended = threading.Event()

    def script(connection: socket.socket, _: Seen) -> None:
        connection.sendall(http(200, b"mine"))
        if len(server.seen) == 1:
            go.wait(5)
            connection.sendall(last)
            connection.shutdown(socket.SHUT_RDWR)
            ended.set()

    go = threading.Event()
    with Loopback(script) as server:
        async with sending(at(server.url, keepalive_expiry=30)) as send:
            assert await send() == OK
            go.set()
            if asleep:
                # The event loop sees nothing of it before the next request.
                ended.wait(5)
            else:
                await asyncio.to_thread(ended.wait, 5)
            assert await send() == OK
    assert (len(server.seen), server.connections) == (2, 2)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_uvloop_serves_as_well(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    uvloop = pytest.importorskip("uvloop")

    async def run(url: str, port: int) -> None:
        found = socket.getaddrinfo("127.0.0.1", port, type=socket.SOCK_STREAM)
        if host == "localhost":
            # Some machines know one address of it, others two.
            monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolved(found * 2), raising=False)
        async with sending(at(url)) as send:
            assert [await send() for _ in range(3)] == [OK] * 3

    def resolved(found: Any) -> Callable[..., Any]:
        async def getaddrinfo(*_: object, **__: object) -> Any:
            return found

        return getaddrinfo

    with Loopback(answering(200, b"mine")) as server:
        port = int(server.url.rpartition(":")[2])
        uvloop.run(run(f"http://{host}:{port}", port))
    assert (len(server.seen), server.connections) == (3, 1)


async def test_idle_connection_expires() -> None:
    with Loopback(answering(200, b"mine")) as server:
        async with sending(at(server.url, keepalive_expiry=0)) as send:
            assert await send() == OK
            assert await send() == OK
            until(lambda: server.open == 1)
    assert server.connections == 2


async def test_response_that_comes_too_late_is_not_the_next_ones() -> None:
    def script(connection: socket.socket, seen: Seen) -> None:
        content = json.loads(seen.body)["content"]
        if content == "first":
            go.wait(5)
        connection.sendall(http(200, content.encode()))

    go = threading.Event()
    with Loopback(script) as server:
        async with sending(at(server.url, timeout=0.2)) as send:
            assert await send("first") is TransportFailure.RESPONSE_TIMEOUT
            go.set()
            assert await send("second") == HttpResponse(200, None, b"second")


async def test_each_request_gets_its_own_response_while_others_are_cancelled() -> None:
    def echo(connection: socket.socket, seen: Seen) -> None:
        time.sleep(chance.random() * 0.003)
        connection.sendall(http(200, json.loads(seen.body)["content"].encode()))

    chance = random.Random(7)
    with Loopback(echo) as server:
        async with sending(at(server.url)) as send:
            answered = 0

            async def worker(name: int) -> None:
                nonlocal answered
                for number in range(25):
                    content = f"{name} {number}"
                    task = asyncio.ensure_future(send(content))
                    if chance.random() < 0.3:
                        await asyncio.sleep(chance.random() * 0.004)
                        task.cancel()
                    await asyncio.wait([task])
                    if not task.cancelled():
                        assert task.result() == HttpResponse(200, None, content.encode())
                        answered += 1

            async with asyncio.TaskGroup() as group:
                for name in range(16):
                    group.create_task(worker(name))
            assert answered > 200
        await asyncio.to_thread(until, lambda: not server.open)
