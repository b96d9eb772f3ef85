"""Keys of connections: read off the loop, seldom, and never so seldom that a rotation loses a report."""

from __future__ import annotations

import asyncio
import logging
import threading

import pytest

from cpaas_provider.delivery.receiver import secrets_cache as module
from cpaas_provider.delivery.receiver.log_throttle import ThrottledLogger
from cpaas_provider.delivery.receiver.secrets_cache import ConnectionSecrets, SecretsCache, SecretsUnavailableError

OLD, NEW = ConnectionSecrets(("old",)), ConnectionSecrets(("new", "old"))
REPLACED = ConnectionSecrets(("new",))
PATIENCE = 20.0


class Backend:
    """Where connections are read from, and a clock that stands still until it is moved."""

    def __init__(self, **connections: ConnectionSecrets) -> None:
        self.connections = dict(connections)
        self.read: list[str] = []
        self.threads: set[int] = set()
        self.now = 1000.0
        self.error: Exception | None = None
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.ring = SecretsCache(self._read, clock=lambda: self.now)

    def _read(self, conn_id: str) -> ConnectionSecrets | None:
        self.read.append(conn_id)
        self.threads.add(threading.get_ident())
        assert self.may_answer.wait(PATIENCE)
        if self.error:
            raise self.error
        return self.connections.get(conn_id)


@pytest.fixture
def backend() -> Backend:
    return Backend(shop=OLD)


@pytest.fixture(autouse=True)
def fresh_complaints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "throttled_log", ThrottledLogger(logging.getLogger(module.__name__)))


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


class TestReading:
    async def test_off_the_loop_and_once_a_minute(self, backend: Backend) -> None:
        for _ in range(10):
            assert await backend.ring.get("shop") is OLD
        assert backend.threads.isdisjoint({threading.get_ident()})
        assert backend.read == ["shop"]
        backend.now += 59.9
        await backend.ring.get("shop")
        assert backend.read == ["shop"]
        backend.now += 0.2
        await backend.ring.get("shop")
        assert backend.read == ["shop"] * 2

    async def test_once_for_all_who_ask_at_the_same_time(self, backend: Backend) -> None:
        assert await asyncio.gather(*(backend.ring.get("shop") for _ in range(50))) == [OLD] * 50
        assert backend.read == ["shop"]

    async def test_one_who_gives_up_does_not_stop_it_for_the_others(self, backend: Backend) -> None:
        backend.may_answer.clear()
        leaving, staying = (asyncio.create_task(backend.ring.get("shop")) for _ in range(2))
        await turns()
        leaving.cancel()
        await turns()
        backend.may_answer.set()
        assert await staying is OLD

    async def test_a_connection_that_is_not_there_is_remembered_for_five_seconds(self, backend: Backend) -> None:
        for _ in range(10):
            assert await backend.ring.get("nobody") is None
        assert backend.read == ["nobody"]
        backend.connections["nobody"] = NEW
        backend.now += 5.1
        assert await backend.ring.get("nobody") is NEW

    async def test_one_that_was_deleted_is_gone_within_a_minute(self, backend: Backend) -> None:
        await backend.ring.get("shop")
        del backend.connections["shop"]
        backend.now += 60.1
        assert await backend.ring.get("shop") is None

    async def test_replaced_secret_verifies_for_a_minute_at_most_however_often_it_is_asked_for(
        self, backend: Backend
    ) -> None:
        assert await backend.ring.get("shop") is OLD
        backend.connections["shop"] = REPLACED
        for _ in range(59):
            backend.now += 1
            assert await backend.ring.get("shop") is OLD
        backend.now += 1
        assert await backend.ring.get("shop") is REPLACED

    @pytest.mark.parametrize("conn_id", ["", "a b", "a\nb", "a" * 251, "a?b", "\ud800", "%41"])
    async def test_what_is_no_connection_s_name_is_not_looked_for(self, backend: Backend, conn_id: str) -> None:
        assert await backend.ring.get(conn_id) is None
        assert backend.read == []

    @pytest.mark.parametrize("conn_id", ["team/shop", "a.b-c:d", "(a)#!\\", "ünïcode"])
    async def test_what_airflow_allows_is(self, backend: Backend, conn_id: str) -> None:
        backend.connections[conn_id] = NEW
        assert await backend.ring.get(conn_id) is NEW

    async def test_made_up_names_are_forgotten_and_push_no_real_one_out(
        self, backend: Backend, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(module, "MAX_ENTRIES", 10)
        await backend.ring.get("shop")
        for number in range(50):
            await backend.ring.get(f"made-up-{number}")
        assert len(backend.ring._unknown) == 10
        assert await backend.ring.get("shop") is OLD
        assert backend.read.count("shop") == 1

    async def test_so_many_names_at_once_are_read_and_no_more(
        self, backend: Backend, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(module, "MAX_READS", 4)
        await backend.ring.get("shop")
        backend.may_answer.clear()
        asked = [asyncio.create_task(backend.ring.get(f"made-up-{number}")) for number in range(10)]
        await turns()
        assert sum(task.done() for task in asked) == 6
        # One that is known is not kept waiting by them.
        backend.now += 61
        known = asyncio.create_task(backend.ring.get("shop"))
        backend.may_answer.set()
        assert await known is OLD
        told = await asyncio.gather(*asked, return_exceptions=True)
        assert sum(isinstance(one, SecretsUnavailableError) for one in told) == 6


class TestDoubt:
    async def test_a_rotation_is_seen_by_the_first_that_does_not_fit(self, backend: Backend) -> None:
        seen = await backend.ring.get("shop")
        assert seen is OLD
        backend.connections["shop"] = NEW
        assert await backend.ring.refresh_after_mismatch("shop", seen) is NEW
        assert await backend.ring.get("shop") is NEW

    async def test_replaced_secret_ends_with_the_first_report_that_it_does_not_verify(self, backend: Backend) -> None:
        seen = await backend.ring.get("shop")
        assert seen is OLD
        backend.connections["shop"] = REPLACED
        assert await backend.ring.refresh_after_mismatch("shop", seen) is REPLACED
        assert await backend.ring.get("shop") is REPLACED
        # A report under the old secret comes now.
        assert await backend.ring.refresh_after_mismatch("shop", REPLACED) is None

    async def test_deleted_connection_ends_with_the_first_report_that_it_does_not_verify(
        self, backend: Backend
    ) -> None:
        seen = await backend.ring.get("shop")
        assert seen is OLD
        del backend.connections["shop"]
        assert await backend.ring.refresh_after_mismatch("shop", seen) is None
        assert await backend.ring.get("shop") is None

    async def test_all_that_came_with_the_first_are_helped_by_the_same_reading(self, backend: Backend) -> None:
        seen = await backend.ring.get("shop")
        assert seen is OLD
        backend.connections["shop"] = NEW
        found = await asyncio.gather(*(backend.ring.refresh_after_mismatch("shop", seen) for _ in range(20)))
        assert found == [NEW] * 20
        # So is one that had waited elsewhere meanwhile.
        assert await backend.ring.refresh_after_mismatch("shop", seen) is NEW
        assert backend.read == ["shop"] * 2

    async def test_a_crowd_that_fits_nothing_causes_one_reading_in_five_seconds(self, backend: Backend) -> None:
        for _ in range(100):
            seen = await backend.ring.get("shop")
            assert seen is not None
            assert await backend.ring.refresh_after_mismatch("shop", seen) is None
        assert backend.read == ["shop"] * 2
        backend.now += 5.1
        seen = await backend.ring.get("shop")
        assert seen is not None
        assert await backend.ring.refresh_after_mismatch("shop", seen) is None
        assert backend.read == ["shop"] * 3

    async def test_the_same_keys_read_again_are_no_newer(self, backend: Backend) -> None:
        seen = await backend.ring.get("shop")
        assert seen is not None
        backend.connections["shop"] = ConnectionSecrets(("old",))
        assert await backend.ring.refresh_after_mismatch("shop", seen) is None


class TestTrouble:
    async def test_what_was_never_read_and_cannot_be_is_neither_there_nor_not(
        self, backend: Backend, caplog: pytest.LogCaptureFixture
    ) -> None:
        backend.error = OSError("password=hunter22")
        for _ in range(20):
            with pytest.raises(SecretsUnavailableError):
                await backend.ring.get("shop")
        assert [one.message for one in caplog.records] == [
            "Connection 'shop' cannot be read (OSError). Its delivery reports are refused, and their senders asked to "
            "retry."
        ]
        backend.error = None
        assert await backend.ring.get("shop") is OLD

    async def test_what_was_known_goes_on_and_is_tried_again_in_a_while(
        self, backend: Backend, caplog: pytest.LogCaptureFixture
    ) -> None:
        await backend.ring.get("shop")
        backend.now += 61
        backend.error = OSError("password=hunter22")
        for _ in range(20):
            assert await backend.ring.get("shop") is OLD
        assert len(backend.read) == 2
        assert "verified with the last known secrets" in caplog.text
        assert "hunter22" not in caplog.text
        backend.now += 5.1
        backend.error = None
        backend.connections["shop"] = NEW
        assert await backend.ring.get("shop") is NEW

    async def test_a_backend_that_hangs_keeps_nobody_waiting_for_ever(
        self, backend: Backend, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(module, "READ_SECONDS", 0.01)
        backend.may_answer.clear()
        with pytest.raises(SecretsUnavailableError, match="no response in time"):
            await backend.ring.get("shop")
        backend.may_answer.set()

    def test_keys_do_not_show_themselves(self) -> None:
        shown = repr(ConnectionSecrets(("hunter22",), "hunter23", "X-Signature"))
        assert "hunter" not in shown
