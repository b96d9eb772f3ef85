"""The receiver among those who send slowly, too much, or all at once: each is answered, and nobody waits for them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from cpaas_provider.database.database import Database
from cpaas_provider.delivery.receiver import endpoints
from cpaas_provider.delivery.receiver.http import request
from cpaas_provider.delivery.receiver.http.responses import MAX_BODY
from tests.unit.delivery.receiver.slow_senders import UNREAD, head, read_response, trickling
from tests.unit.delivery.running_receiver import REPORT, Served, serving, together
from tests.waiting import until

BOUND = 20


@pytest.fixture
def served(database: Database, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """A receiver with room for few."""
    monkeypatch.setattr(endpoints, "MAX_IN_FLIGHT", BOUND)
    monkeypatch.setattr(endpoints, "MAX_BYTES", 1024 * 1024)
    # Nobody makes room for others here.
    monkeypatch.setattr(request, "GRACE_SECONDS", 100.0)
    monkeypatch.setattr(request, "DISPLACEABLE_AFTER", 100.0)
    with serving(database) as running:
        yield running
        running.gate.open.set()


@pytest.fixture
def url(sqlite_url: str) -> str:
    """What happens here is not the database's doing, so one kind is enough."""
    return sqlite_url


@pytest.mark.parametrize("endpoint", ["callback", "webhook"])
class TestSlowSenders:
    @pytest.fixture
    def short_body_timeout(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(request, "BODY_TIMEOUT", 0.5)

    @pytest.mark.usefixtures("short_body_timeout")
    def test_408_if_the_body_trickles_while_others_get_200(self, served: Served, endpoint: str) -> None:
        with served.connect() as connection:
            connection.sendall(head(served, served.url_of(endpoint), 10_000, UNREAD[endpoint]))
            with trickling(connection):
                assert served.post().status_code == 200
                assert served.post_signed().status_code == 200
                said = read_response(connection)
        assert said.startswith(b"HTTP/1.1 408")
        assert b"connection: close" in said

    @pytest.mark.usefixtures("short_body_timeout")
    def test_408_if_the_body_never_arrives(self, served: Served, endpoint: str) -> None:
        with served.connect() as connection:
            connection.sendall(head(served, served.url_of(endpoint), 100, UNREAD[endpoint]))
            assert read_response(connection).startswith(b"HTTP/1.1 408")

    def test_sender_that_hangs_up_leaves_its_room_to_others(self, served: Served, endpoint: str) -> None:
        for _ in range(2 * BOUND):
            with served.connect() as connection:
                connection.sendall(head(served, served.url_of(endpoint), 100, UNREAD[endpoint]) + b"{")
        answers = []
        until(lambda: answers.append(served.post().status_code) or answers[-1] == 200)
        assert served.post_signed().status_code == 200

    def test_slow_senders_at_one_endpoint_do_not_block_the_other(self, served: Served, endpoint: str) -> None:
        with contextlib.ExitStack() as crowd:
            for _ in range(2 * BOUND):
                connection = crowd.enter_context(served.connect())
                connection.sendall(head(served, served.url_of(endpoint), 100, UNREAD[endpoint]))
            until(lambda: served.counted()["refused.503"] == BOUND)
            here, there = (
                (served.post, served.post_signed) if endpoint == "callback" else (served.post_signed, served.post)
            )
            assert here().status_code == 503
            assert there().status_code == 200
        until(lambda: here().status_code == 200)


class TestTooLargeBodies:
    def test_413_by_the_content_length_before_the_body_is_sent(self, served: Served) -> None:
        for length in (str(MAX_BODY + 1), "9" * 18):
            with served.connect() as connection:
                connection.sendall(head(served, served.callback(), int(length)))
                assert read_response(connection).startswith(b"HTTP/1.1 413")

    def test_413_as_soon_as_a_chunked_body_is_too_large(self, served: Served) -> None:
        chunk = b"8000\r\n" + b" " * 0x8000 + b"\r\n"
        with served.connect() as connection:
            connection.sendall(head(served, served.callback()))
            sent = 0
            with contextlib.suppress(ConnectionError):
                while sent < 1000:
                    connection.sendall(chunk)
                    sent += 1
            assert read_response(connection).startswith((b"HTTP/1.1 413", b""))
        assert sent < 1000
        assert served.counted()["refused.413"] == 1

    def test_chunked_body_within_the_limit_is_read_whole(self, served: Served) -> None:
        pieces = [b'{"id": "1",', b' "status":', b' "failed"}']
        with served.connect() as connection:
            connection.sendall(head(served, served.callback()))
            for piece in pieces:
                connection.sendall(b"%x\r\n%s\r\n" % (len(piece), piece))
            connection.sendall(b"0\r\n\r\n")
            assert connection.recv(100).startswith(b"HTTP/1.1 200")
        assert served.bodies() == [b"".join(pieces).decode()]

    def test_503_before_pending_bodies_take_too_much_memory(self, served: Served) -> None:
        served.gate.open.clear()
        large = b'"' + b"a" * (MAX_BODY - 2) + b'"'
        with contextlib.ExitStack() as crowd:
            for _ in range(4):
                connection = crowd.enter_context(served.connect())
                connection.sendall(head(served, served.callback(), len(large)) + large)
            until(lambda: served.in_hand() == 4)
            assert served.post(body=large).status_code == 503
            served.gate.open.set()
        until(lambda: served.post(body=large).status_code == 200)


class TestManySenders:
    async def test_503_at_once_beyond_the_limit_and_the_reports_within_it_are_stored(self, served: Served) -> None:
        served.gate.open.clear()
        within = asyncio.create_task(together(served, range(BOUND)))
        await asyncio.to_thread(until, lambda: served.in_hand() == BOUND)
        refused = await together(served, range(5 * BOUND))
        assert refused == [503] * (5 * BOUND)
        assert not within.done()
        served.gate.open.set()
        assert await within == [200] * BOUND
        assert len(served.bodies()) == BOUND

    async def test_refused_reports_are_stored_when_they_are_sent_again(self, served: Served) -> None:
        left = list(range(5 * BOUND))
        for _ in range(100):
            told = await together(served, left)
            assert set(told) <= {200, 503}
            left = [number for number, status in zip(left, told, strict=True) if status == 503]
            if not left:
                break
        assert len(served.bodies()) == 5 * BOUND

    def test_reports_in_flight_when_the_server_stops_are_stored_and_get_200(self, database: Database) -> None:
        """What is in flight at the end of the server is stored, and its senders are told so."""
        with ThreadPoolExecutor(BOUND + 1) as senders:
            with serving(database) as running:
                running.gate.open.clear()
                taken = [senders.submit(running.post, body={**REPORT, "id": number}) for number in range(BOUND)]
                until(lambda: running.in_hand() == BOUND)
                senders.submit(lambda: (until(lambda: not running.listens()), running.gate.open.set()))
            assert [answer.result().status_code for answer in taken] == [200] * BOUND
        assert len(running.bodies()) == BOUND


def test_503_beyond_the_limit_has_retry_after(served: Served) -> None:
    with contextlib.ExitStack() as crowd:
        for _ in range(2 * BOUND):
            connection = crowd.enter_context(served.connect())
            connection.sendall(head(served, served.callback(), 2))
        until(lambda: served.counted()["refused.503"] == BOUND)
        assert served.post().headers["retry-after"] == "10"
