"""Who holds nothing, or one connection's URL, takes no room from the others; who is slow makes room for who is not."""

from __future__ import annotations

import asyncio
import contextlib
import select
import threading
import time
from collections.abc import Iterator

import pytest

from cpaas_provider.database.database import Database
from cpaas_provider.delivery.receiver import endpoints
from cpaas_provider.delivery.receiver import secrets_cache as key_module
from cpaas_provider.delivery.receiver.http import request
from cpaas_provider.delivery.receiver.http.load_limits import LoadLimiter, WaitTimer
from cpaas_provider.delivery.receiver.secrets_cache import ConnectionSecrets
from tests.unit.delivery.receiver.slow_senders import UNREAD, head, read_response, trickling
from tests.unit.delivery.running_receiver import PATIENCE, REPORT, SHOP, Served, serving
from tests.waiting import until

BOUND = 10
ENDPOINTS = ["callback", "webhook"]


@pytest.fixture
def served(database: Database, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """A receiver with room for few."""
    monkeypatch.setattr(endpoints, "MAX_IN_FLIGHT", BOUND)
    with serving(database) as running:
        running.connections["bank"] = SHOP
        yield running
        running.gate.open.set()


@pytest.fixture
def url(sqlite_url: str) -> str:
    """What happens here is not the database's doing, so one kind is enough."""
    return sqlite_url


def send(served: Served, endpoint: str, conn_id: str = "shop") -> int:
    if endpoint == "callback":
        return served.post(served.callback(conn_id=conn_id)).status_code
    return served.post_signed(conn_id=conn_id).status_code


class TestUnverifiedRequest:
    def test_401_without_a_well_formed_signature_before_the_body_is_sent(self, served: Served) -> None:
        for headers in ("", "X-Signature: c29tZXRoaW5n\r\n", f"X-Signature: {'!' * 88}\r\n"):
            with served.connect() as connection:
                connection.sendall(head(served, served.url_of("webhook"), 10_000, headers))
                assert read_response(connection).startswith(b"HTTP/1.1 401")

    def test_404_with_a_forged_token_before_the_body_is_sent(self, served: Served) -> None:
        with served.connect() as connection:
            connection.sendall(head(served, served.callback(secret="wrong"), 10_000))
            assert read_response(connection).startswith(b"HTTP/1.1 404")

    @pytest.mark.parametrize("endpoint", ENDPOINTS)
    def test_response_before_the_body_is_not_lost(self, served: Served, endpoint: str) -> None:
        url = served.url_of("webhook") if endpoint == "webhook" else served.callback(secret="wrong")
        with served.connect() as connection:
            connection.sendall(head(served, url, 2))
            assert select.select([connection], [], [], PATIENCE)[0]
            connection.sendall(b"{}")
            assert read_response(connection).startswith(b"HTTP/1.1 40")

    def test_slow_lookups_of_unknown_connections_do_not_block_known_ones(self, database: Database) -> None:
        answering = threading.Event()

        def read(conn_id: str) -> ConnectionSecrets | None:
            if conn_id != "shop":
                answering.wait(20)
                return None
            return SHOP

        with serving(database, read=read) as served, contextlib.ExitStack() as crowd:
            assert served.post().status_code == 200
            for number in range(4 * BOUND):
                connection = crowd.enter_context(served.connect())
                connection.sendall(head(served, f"{served.url}/webhook/made-up-{number}", 100))
            assert [send(served, endpoint) for endpoint in ENDPOINTS] == [200, 200]
            answering.set()


@pytest.mark.parametrize("endpoint", ENDPOINTS)
class TestSlowSenders:
    def test_slow_senders_are_displaced_by_complete_reports(
        self, served: Served, endpoint: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(request, "DISPLACEABLE_AFTER", 0.0)
        with contextlib.ExitStack() as crowd:
            slow = [crowd.enter_context(served.connect()) for _ in range(BOUND)]
            for connection in slow:
                connection.sendall(head(served, served.url_of(endpoint), 100, UNREAD[endpoint]) + b"{")
            assert [send(served, endpoint) for _ in range(2 * BOUND)] == [200] * 2 * BOUND
            until(lambda: send(served, endpoint) == 200 and served.counted()["refused.503"] > 0)

    def test_slow_senders_on_one_connection_do_not_block_others(
        self, served: Served, endpoint: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(request, "DISPLACEABLE_AFTER", 100.0)
        monkeypatch.setattr(request, "GRACE_SECONDS", 100.0)
        with contextlib.ExitStack() as crowd:
            for _ in range(2 * BOUND):
                connection = crowd.enter_context(served.connect())
                connection.sendall(head(served, served.url_of(endpoint), 100, UNREAD[endpoint]) + b"{")
            until(lambda: served.counted()["refused.503"] == BOUND)
            assert send(served, endpoint) == 503
            assert send(served, endpoint, "bank") == 200

    def test_408_below_the_minimum_rate_of_bytes(
        self, served: Served, endpoint: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(request, "GRACE_SECONDS", 0.1)
        monkeypatch.setattr(request, "BODY_TIMEOUT", 1000.0)
        with served.connect() as connection:
            connection.sendall(head(served, served.url_of(endpoint), 10_000, UNREAD[endpoint]))
            with trickling(connection):
                # What is on its way when we hang up may take the answer with it.
                assert read_response(connection)[:12] in (b"HTTP/1.1 408", b"")
        assert served.counted()["refused.408"] == 1


def test_pending_reports_of_one_connection_leave_the_writer_room_for_others(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(database, max_pending=3) as served, contextlib.ExitStack() as crowd:
        served.connections["bank"] = SHOP
        served.gate.open.clear()
        body = b'{"status": "sent"}'
        for _ in range(3):
            connection = crowd.enter_context(served.connect())
            connection.sendall(head(served, served.callback(), len(body)) + body)
        until(lambda: served.in_hand() == 3)
        assert served.post(body=REPORT).status_code == 503
        other = crowd.enter_context(served.connect())
        other.sendall(head(served, served.callback(conn_id="bank"), len(body)) + body)
        until(lambda: served.in_hand() == 4)
        served.gate.open.set()
        assert other.recv(100).startswith(b"HTTP/1.1 200")


class TestUnknownConnectionIds:
    def test_expected_connection_is_served_after_unknown_ids_used_up_the_lookups(
        self, database: Database, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(key_module, "LOOKUP_BURST", 20)
        monkeypatch.setattr(key_module, "LOOKUPS_PER_SECOND", 0.0)
        read: list[str] = []

        def reading(conn_id: str) -> ConnectionSecrets | None:
            read.append(conn_id)
            return SHOP if conn_id == "shop" else None

        with serving(database, read=reading, expected=lambda: ["shop"]) as served:
            answers = [served.post_signed(conn_id=f"made-up-{number}").status_code for number in range(50)]
            assert answers == [404] * 20 + [503] * 30
            assert len(read) == 20
            assert served.post().status_code == 200


async def test_time_while_the_event_loop_is_busy_does_not_count_against_a_sender(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(request, "GRACE_SECONDS", 0.08)
    arrived = asyncio.Event()

    async def receive() -> dict[str, object]:
        await arrived.wait()
        # As where it passes through the layers of a server that mounts us.
        for _ in range(3):
            await asyncio.sleep(0)
        return {"type": "http.request", "body": b"{}", "more_body": False}

    coming = request.BoundedRequest({"headers": []}, receive, WaitTimer(request.part_of_grace), LoadLimiter(1, 1000))
    coming.enter("shop")
    reading = asyncio.create_task(coming.body())
    await asyncio.sleep(0)
    arrived.set()
    # For this long, the loop has no turn for anybody.
    time.sleep(0.2)  # noqa: ASYNC251 - on purpose, and much longer than the time of grace
    assert await reading == b"{}"
