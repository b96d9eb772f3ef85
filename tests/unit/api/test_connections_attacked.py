"""Servers that mean harm or are badly broken: every request ends in time, within bounds, with no other's response."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import socket
import threading
import time
import zlib
from collections.abc import Callable
from typing import Any

import pytest

from cpaas_provider.api.http.body import BodyReader
from cpaas_provider.api.http.connections import ConnectionPool, ExchangeError
from cpaas_provider.api.http.routes import Server
from cpaas_provider.api.http.transport import AsyncTransport
from cpaas_provider.api.http.wire import HttpResponse, TransportFailure
from cpaas_provider.api.operations import get_contact_table
from cpaas_provider.api.settings import ClientSettings
from tests.unit.api.conftest import Send
from tests.unit.api.loopback import Loopback, Seen, answering, http
from tests.unit.api.test_connections import OK, at, request, saying, sending
from tests.waiting import until

pytestmark = pytest.mark.usefixtures("no_rest")

HEAD = b"HTTP/1.1 200 OK\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"


def repeating(first: bytes, then: bytes, pause: float) -> Callable[[socket.socket, Seen], None]:
    """Return a script that never comes to an end."""

    def script(connection: socket.socket, _: Seen) -> None:
        connection.sendall(first)
        while True:
            connection.sendall(then)
            time.sleep(pause)

    return script


DRIP = 0.02
TIMEOUTS = (0.3, 1.0, 3.0, 9.0, 27.0)
"""Seconds: the first is enough for a quiet machine. On a busy one the server itself may stand still for longer."""


def check_endless_drips(
    send: Send, expected: HttpResponse | TransportFailure, first: bytes, then: bytes, *, proxied: bool = False
) -> None:
    """Check what a request comes to whose answer drips without an end, by the shortest timeout that shows it.

    Drips are counted, because on a busy machine a clock says nothing: the server stands as still as the client.
    """
    drips = 0

    def script(connection: socket.socket, _: Seen) -> None:
        nonlocal drips
        connection.sendall(first)
        while True:
            drips += 1
            connection.sendall(then)
            time.sleep(DRIP)

    for timeout in TIMEOUTS:
        drips = 0
        with Loopback(script) as server:
            settings = through(server, proxied, timeout=timeout)
            response = send(request(settings), settings)
        in_time = drips < 10 * timeout / DRIP
        if response == expected and in_time:
            return
    assert (response, in_time) == (expected, True)


@pytest.fixture(params=[False, True], ids=["direct", "by proxy"])
def proxied(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def through(server: Loopback, proxied: bool, **options: Any) -> ClientSettings:
    """Return settings by which requests reach a server as the service itself, or as a proxy before it."""
    if proxied:
        return at("http://cpaas.invalid", allow_http=True, proxy=server.url, **options)
    return at(server.url, **options)


# No end ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "then"),
    [(HEAD + b"X: ", b"x"), (b"", b"HTTP/1.1 103 X\r\n\r\n"), (b"", b"\r\n")],
    ids=["a head", "interim responses", "empty lines"],
)
def test_head_that_drips_is_given_up_in_time(send: Send, proxied: bool, first: bytes, then: bytes) -> None:
    check_endless_drips(send, TransportFailure.RESPONSE_TIMEOUT, first, then, proxied=proxied)


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (CHUNKED + b"4;", b"x"),
        (CHUNKED, b"0"),
        (CHUNKED + b"0\r\nX: ", b"x"),
        (CHUNKED + b"0\r\n", b"X: x\r\n"),
    ],
    ids=["chunk extension", "chunk size", "trailer", "trailers"],
)
def test_body_that_drips_framing_bytes_is_given_up_in_time(
    send: Send, proxied: bool, first: bytes, then: bytes
) -> None:
    expected = HttpResponse(200, None, b"", "the rest did not arrive in time")
    check_endless_drips(send, expected, first, then, proxied=proxied)


@pytest.mark.parametrize(
    ("first", "then"),
    [(CHUNKED + b"4;", b"x" * 9999), (CHUNKED + b"0\r\nX: ", b"x" * 9999), (CHUNKED + b"0\r\n", b"X: x\r\n" * 999)],
    ids=["chunk extension", "trailer", "trailers"],
)
async def test_flood_of_bytes_that_are_no_body_ends_before_the_timeout(first: bytes, then: bytes) -> None:
    with Loopback(repeating(first, then, 0)) as server:
        async with sending(at(server.url, timeout=60)) as send:
            assert await send() == HttpResponse(200, None, b"", "the connection broke")


async def test_body_of_many_small_chunks_is_read() -> None:
    with Loopback(saying(CHUNKED + b"1;some=extension\r\nx\r\n" * 50_000 + b"0\r\n\r\n")) as server:
        async with sending(at(server.url)) as send:
            assert await send() == HttpResponse(200, None, b"x" * 50_000)


@pytest.mark.parametrize("then", [b"\0\0\0\xff\xff", gzip.compress(b"")], ids=["empty blocks", "empty members"])
def test_compression_that_yields_no_bytes_is_given_up_in_time(send: Send, then: bytes) -> None:
    packed = zlib.compressobj(wbits=31)
    begun = packed.compress(b"mine") + packed.flush(zlib.Z_SYNC_FLUSH if then[0] == 0 else zlib.Z_FINISH)
    expected = HttpResponse(200, None, b"mine", "it took longer than timeout")
    check_endless_drips(send, expected, HEAD + b"Content-Encoding: gzip\r\n\r\n" + begun, then)


# Compression ----------------------------------------------------------------------------------------------------------


# Every worker collects the same names, so none may hold the time.
@pytest.mark.parametrize("split", [True, False])
@pytest.mark.parametrize(
    ("coding", "packed"),
    [
        ("gzip", gzip.compress(b"mine", mtime=0)),
        ("GZip", gzip.compress(b"mine", mtime=0)),
        ("deflate", zlib.compress(b"mine")),
        ("deflate", zlib.compress(b"mine")[2:-4]),
        ("identity", b"mine"),
        ("unheard-of", b"mine"),
    ],
)
def test_body_is_decompressed_however_it_arrives(coding: str, packed: bytes, split: bool) -> None:
    reader = BodyReader(at("https://cpaas.example.com"), coding)
    for chunk in [packed[place : place + 1] for place in range(len(packed))] if split else [packed]:
        assert reader.add(chunk)
    assert reader.as_response(200, None) == OK


def test_compressed_body_is_expanded_no_further_than_max_response_bytes() -> None:
    class Expanded(BodyReader):
        def _decode(self, chunk: bytes) -> bytes:
            decoded = super()._decode(chunk)
            assert len(decoded) <= 1001
            return decoded

    bomb = gzip.compress(b"\0" * 20_000_000)
    reader = Expanded(at("https://cpaas.example.com", max_response_bytes=1000), "gzip")
    assert not reader.add(bomb)
    assert reader.as_response(200, None) == HttpResponse(
        200, None, b"\0" * 1000, "it is larger than max_response_bytes"
    )


def test_doubly_compressed_body_is_not_decompressed(send: Send) -> None:
    bomb = gzip.compress(gzip.compress(b"\0" * 20_000_000))
    with Loopback(answering(200, bomb, Content_Encoding="gzip, gzip")) as server:
        assert send(request(at(server.url)), at(server.url)) == HttpResponse(200, None, bomb)


# One response is not another's ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [b"000", b"099"])
def test_invalid_status_is_a_lost_connection_although_a_response_follows(send: Send, status: bytes) -> None:
    odd = b"HTTP/1.1 %b X\r\nContent-Length: 4\r\n\r\nfour" % status
    with Loopback(saying(odd + http(200, b"mine"))) as server:
        assert send(request(at(server.url)), at(server.url)) is TransportFailure.CONNECTION_LOST


@pytest.mark.parametrize("status", [b"204", b"304"])
async def test_length_of_a_response_without_body_is_not_waited_for(status: bytes) -> None:
    with Loopback(saying(b"HTTP/1.1 %b X\r\nContent-Length: 4\r\n\r\n" % status)) as server:
        async with sending(at(server.url)) as send:
            assert await send() == HttpResponse(int(status))
            assert await send() == HttpResponse(int(status))


async def test_connection_with_an_early_response_is_not_reused_although_the_request_left() -> None:
    def early(listener: socket.socket) -> None:
        for _ in range(2):
            connection, _ = listener.accept()
            connections.append(connection)
            connection.settimeout(5)
            received = connection.recv(100)
            # The end of the response waits until the request has left.
            connection.sendall(HEAD + b"Content-Length: 4\r\n\r\nmi")
            while not received.endswith(b'"}'):
                received = received[-1:] + connection.recv(1_000_000)
            connection.sendall(b"ne")

    connections: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=early, args=(listener,), daemon=True)
        thread.start()
        async with sending(at("http://{}:{}".format(*listener.getsockname()))) as send:
            assert await send("x" * 20_000_000) == OK
            assert await send("x" * 20_000_000) == OK
        await asyncio.to_thread(thread.join)
        assert len(connections) == 2
        for connection in connections:
            connection.close()


async def test_body_whose_end_exceeds_the_buffer_leaves_the_connection_to_the_next_request() -> None:
    def body(connection: socket.socket, seen: Seen) -> None:
        connection.sendall(http(200, b"x" * 10_000_000))

    with Loopback(body) as server:
        async with sending(at(server.url)) as send:
            for _ in range(20):
                assert await send() == HttpResponse(200, None, b"x" * 10_000_000)
    assert server.connections == 1


# Closed by us ---------------------------------------------------------------------------------------------------------


async def test_body_that_ends_because_the_client_is_closed_is_not_complete() -> None:
    with Loopback(repeating(HEAD + b"\r\n", b"x", 0.01)) as server:
        transport = AsyncTransport(at(server.url))
        pending = asyncio.ensure_future(transport.send(request(at(server.url))))
        await asyncio.to_thread(until, lambda: server.seen)
        await asyncio.sleep(0.1)
        await transport.aclose()
        given = await pending
    assert isinstance(given, HttpResponse)
    assert given.body_error == "the connection broke"


async def test_request_whose_connection_is_made_while_the_client_is_closed_is_not_sent() -> None:
    with Loopback(answering(200, b"mine")) as server:
        transport = AsyncTransport(at(server.url))
        pending = asyncio.ensure_future(transport.send(request(at(server.url))))
        await asyncio.sleep(0)
        await transport.aclose()
        assert await pending is TransportFailure.CONNECT
        await asyncio.to_thread(until, lambda: server.connections == 0 or not server.open)
        assert server.seen == []


def test_connection_of_another_event_loop_gets_no_request() -> None:
    with Loopback(answering(200, b"mine")) as server, asyncio.Runner() as first, asyncio.Runner() as second:
        transport = AsyncTransport(at(server.url, keepalive_expiry=60))
        outgoing = get_contact_table().build(at(server.url))[0]
        assert first.run(transport.send(outgoing)) == OK
        with pytest.raises(RuntimeError, match="did not leave"):
            second.run(transport.send(outgoing))
        assert first.run(transport.send(outgoing)) == OK
        first.run(transport.aclose())
    assert (len(server.seen), server.connections) == (2, 1)


# Closed by the server -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("said", [b"", http(408)], ids=["closes", "speaks first and closes"])
async def test_server_that_closes_a_new_connection_leaves_nothing_to_wait_for(said: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def close() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    connection.sendall(said)
                    connection.close()

        threading.Thread(target=close, daemon=True).start()
        host, port = listener.getsockname()
        # A wait that is left would last longer than pytest lets any test last.
        pool = ConnectionPool(Server(host, port), connect_timeout=3600, timeout=3600, keepalive_expiry=1)
        for _ in range(100):
            try:
                connection = await pool.acquire()
            except ConnectionError:
                continue
            with contextlib.suppress(ExchangeError):
                await connection.exchange(b"GET / HTTP/1.1\r\n\r\n")
            pool.release(connection)
        await pool.aclose()


async def test_half_closed_connection_ends_a_request_that_cannot_leave() -> None:
    def half_close(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(100)
            connection.shutdown(socket.SHUT_WR)
            over.wait()

    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=half_close, args=(listener,), daemon=True).start()
        async with sending(at("http://{}:{}".format(*listener.getsockname()), timeout=60)) as send:
            assert await send("x" * 20_000_000) is TransportFailure.CONNECTION_LOST
        over.set()


# Many -----------------------------------------------------------------------------------------------------------------


async def test_each_of_a_thousand_concurrent_requests_gets_its_own_response() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
        content = json.loads(await reader.readexactly(length))["content"]
        await asyncio.sleep(0.01)
        writer.write(http(200, content.encode()))
        await reader.read()
        writer.close()
        answered.append(content)
        if len(answered) == 1000:
            ended.set()

    answered: list[str] = []
    ended = asyncio.Event()
    server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=2000)
    settings: Any = at("http://{}:{}".format(*server.sockets[0].getsockname()), timeout=30, connect_timeout=30)
    async with sending(settings) as send:
        given = await asyncio.gather(*(send(str(number)) for number in range(1000)))
    assert given == [HttpResponse(200, None, str(number).encode()) for number in range(1000)]
    async with asyncio.timeout(10):
        await ended.wait()
    server.close()


# Addresses ------------------------------------------------------------------------------------------------------------


async def test_host_without_any_address_is_not_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(*_: object, **__: object) -> list[Any]:
        return []

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", nothing)
    async with sending(at("http://cpaas.invalid", allow_http=True)) as send:
        assert await send() is TransportFailure.CONNECT


async def test_first_of_several_addresses_that_hangs_does_not_hold_up_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    def address(port: int) -> Any:
        return (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", ("127.0.0.1", port))

    with socket.socket() as full, contextlib.ExitStack() as stack, Loopback(answering(200, b"mine")) as server:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for _ in range(4):
            # A queue that is full lets further attempts wait.
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(full.getsockname())
        found = [address(full.getsockname()[1]), address(int(server.url.rpartition(":")[2]))]

        async def both(*_: object, **__: object) -> list[Any]:
            return found

        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", both)
        async with sending(at("http://cpaas.invalid", allow_http=True)) as send:
            assert await send() == OK
