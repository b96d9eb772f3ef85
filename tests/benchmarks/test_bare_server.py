"""What all figures of the benchmark rest on: that the bare server sees what was sent, however it arrives."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.benchmarks.campaign.serving import BareServer

ONE = b'{"recipients":"+2348031234567","content":"a,b"}'
THREE = b'{"content": "a,b", "recipients": "+2348031234567,+2348031234568,+2348031234569"}'


def request(body: bytes, header: bytes | None = None) -> bytes:
    header = header or b"Content-Length: %d" % len(body)
    return b"POST /sms/send HTTP/1.1\r\nHost: here\r\n" + header + b"\r\n\r\n" + body


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BareServer]:
    with BareServer(Path(tmp_path_factory.mktemp("bare")) / "server.log", latency=0.001) as server:
        yield server


@pytest.fixture
def server(running: BareServer) -> BareServer:
    running.reset()
    return running


def answers(server: BareServer, pieces: list[bytes], count: int) -> bytes:
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for piece in pieces:
            connection.sendall(piece)
        said = b""
        while said.count(b'"pages":1}}}') < count and b"411" not in said:
            said += connection.recv(65536)
        return said


def test_requests_in_one_piece_are_separated(server: BareServer) -> None:
    answers(server, [request(ONE) + request(THREE) + request(ONE)], 3)
    arrived = server.arrived()
    assert (arrived.requests, arrived.recipients, arrived.connections) == (3, 5, 1)
    assert arrived.most_in_flight <= 3


def test_request_in_pieces_counts_once(server: BareServer) -> None:
    whole = request(THREE, b"content-LENGTH:   %d" % len(THREE))
    answers(server, [whole[place : place + 1] for place in range(len(whole))], 1)
    arrived = server.arrived()
    assert (arrived.requests, arrived.recipients, arrived.most_in_flight) == (1, 3, 1)


def test_our_client_takes_the_answer_for_an_accepted_message(server: BareServer) -> None:
    from cpaas_provider.api import CpaasClient

    with CpaasClient(server.url, "sk_bench", requests_per_second=1000) as client:
        messages = [client.send_sms(["+2348031234567", "+2348031234568"], "Shop", "Hello") for _ in range(2)]
    assert len({message.id for message in messages}) == 2
    assert messages[0].meta is not None
    assert messages[0].meta.estimate is not None
    assert messages[0].meta.estimate.charge == 1.0
    assert (server.arrived().requests, server.arrived().recipients) == (2, 4)


def test_body_without_a_length_is_rejected_and_not_counted(server: BareServer) -> None:
    assert b"411 Length Required" in answers(server, [request(ONE, b"Transfer-Encoding: chunked")], 1)
    assert server.arrived().requests == 0
    assert server.arrived().requests_per_second == 0


def test_reading_the_counters_counts_nothing_and_a_reset_clears_them(server: BareServer) -> None:
    answers(server, [request(ONE)], 1)
    assert server.arrived() == server.arrived()
    server.reset()
    assert server.arrived().requests == 0
