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
        self.cache = SecretsCache(self._read, clock=lambda: self.now)

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
def fresh_throttled_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "throttled_log", ThrottledLogger(logging.getLogger(module.__name__)))


async def run_event_loop() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


class TestReadingConnections:
    async def test_connection_is_read_outside_the_event_loop_and_once_a_minute(self, backend: Backend) -> None:
        for _ in range(10):
            assert await backend.cache.get("shop") is OLD
        assert backend.threads.isdisjoint({threading.get_ident()})
        assert backend.read == ["shop"]
        backend.now += 59.9
        await backend.cache.get("shop")
        assert backend.read == ["shop"]
        backend.now += 0.2
        await backend.cache.get("shop")
        assert backend.read == ["shop"] * 2

    async def test_concurrent_lookups_read_the_connection_once(self, backend: Backend) -> None:
        assert await asyncio.gather(*(backend.cache.get("shop") for _ in range(50))) == [OLD] * 50
        assert backend.read == ["shop"]

    async def test_cancelled_lookup_does_not_stop_the_read_for_others(self, backend: Backend) -> None:
        backend.may_answer.clear()
        leaving, staying = (asyncio.create_task(backend.cache.get("shop")) for _ in range(2))
        await run_event_loop()
        leaving.cancel()
        await run_event_loop()
        backend.may_answer.set()
        assert await staying is OLD

    async def test_missing_connection_is_cached_for_five_seconds(self, backend: Backend) -> None:
        for _ in range(10):
            assert await backend.cache.get("nobody") is None
        assert backend.read == ["nobody"]
        backend.connections["nobody"] = NEW
        backend.now += 5.1
        assert await backend.cache.get("nobody") is NEW

    async def test_deleted_connection_is_gone_after_a_minute(self, backend: Backend) -> None:
        await backend.cache.get("shop")
        del backend.connections["shop"]
        backend.now += 60.1
        assert await backend.cache.get("shop") is None

    async def test_replaced_secret_is_returned_for_at_most_a_minute_despite_lookups(self, backend: Backend) -> None:
        assert await backend.cache.get("shop") is OLD
        backend.connections["shop"] = REPLACED
        for _ in range(59):
            backend.now += 1
            assert await backend.cache.get("shop") is OLD
        backend.now += 1
        assert await backend.cache.get("shop") is REPLACED

    @pytest.mark.parametrize("conn_id", ["", "a b", "a\nb", "a" * 251, "a?b", "\ud800", "%41"])
    async def test_invalid_connection_id_is_not_looked_up(self, backend: Backend, conn_id: str) -> None:
        assert await backend.cache.get(conn_id) is None
        assert backend.read == []

    @pytest.mark.parametrize("conn_id", ["team/shop", "a.b-c:d", "(a)#!\\", "ünïcode"])
    async def test_connection_id_that_airflow_allows_is_looked_up(self, backend: Backend, conn_id: str) -> None:
        backend.connections[conn_id] = NEW
        assert await backend.cache.get(conn_id) is NEW

    async def test_unknown_connection_ids_are_evicted_and_evict_no_existing_one(
        self, backend: Backend, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(module, "MAX_ENTRIES", 10)
        await backend.cache.get("shop")
        for number in range(50):
            await backend.cache.get(f"made-up-{number}")
        assert len(backend.cache._unknown) == 10
        assert await backend.cache.get("shop") is OLD
        assert backend.read.count("shop") == 1

    async def test_concurrent_reads_are_limited_and_a_known_connection_is_still_returned(
        self, backend: Backend, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(module, "MAX_READS", 4)
        await backend.cache.get("shop")
        backend.may_answer.clear()
        asked = [asyncio.create_task(backend.cache.get(f"made-up-{number}")) for number in range(10)]
        await run_event_loop()
        assert sum(task.done() for task in asked) == 6
        # One that is known is not kept waiting by them.
        backend.now += 61
        known = asyncio.create_task(backend.cache.get("shop"))
        backend.may_answer.set()
        assert await known is OLD
        told = await asyncio.gather(*asked, return_exceptions=True)
        assert sum(isinstance(one, SecretsUnavailableError) for one in told) == 6


class TestRefreshAfterMismatch:
    async def test_new_secret_is_found_after_the_first_mismatch(self, backend: Backend) -> None:
        seen = await backend.cache.get("shop")
        assert seen is OLD
        backend.connections["shop"] = NEW
        assert await backend.cache.refresh_after_mismatch("shop", seen) is NEW
        assert await backend.cache.get("shop") is NEW

    async def test_replaced_secret_is_gone_after_the_first_mismatch(self, backend: Backend) -> None:
        seen = await backend.cache.get("shop")
        assert seen is OLD
        backend.connections["shop"] = REPLACED
        assert await backend.cache.refresh_after_mismatch("shop", seen) is REPLACED
        assert await backend.cache.get("shop") is REPLACED
        # A report under the old secret comes now.
        assert await backend.cache.refresh_after_mismatch("shop", REPLACED) is None

    async def test_deleted_connection_is_gone_after_the_first_mismatch(self, backend: Backend) -> None:
        seen = await backend.cache.get("shop")
        assert seen is OLD
        del backend.connections["shop"]
        assert await backend.cache.refresh_after_mismatch("shop", seen) is None
        assert await backend.cache.get("shop") is None

    async def test_concurrent_mismatches_share_one_read(self, backend: Backend) -> None:
        seen = await backend.cache.get("shop")
        assert seen is OLD
        backend.connections["shop"] = NEW
        found = await asyncio.gather(*(backend.cache.refresh_after_mismatch("shop", seen) for _ in range(20)))
        assert found == [NEW] * 20
        # So is one that had waited elsewhere meanwhile.
        assert await backend.cache.refresh_after_mismatch("shop", seen) is NEW
        assert backend.read == ["shop"] * 2

    async def test_repeated_mismatches_cause_one_read_in_five_seconds(self, backend: Backend) -> None:
        for _ in range(100):
            seen = await backend.cache.get("shop")
            assert seen is not None
            assert await backend.cache.refresh_after_mismatch("shop", seen) is None
        assert backend.read == ["shop"] * 2
        backend.now += 5.1
        seen = await backend.cache.get("shop")
        assert seen is not None
        assert await backend.cache.refresh_after_mismatch("shop", seen) is None
        assert backend.read == ["shop"] * 3

    async def test_unchanged_secrets_are_not_returned_after_a_mismatch(self, backend: Backend) -> None:
        seen = await backend.cache.get("shop")
        assert seen is not None
        backend.connections["shop"] = ConnectionSecrets(("old",))
        assert await backend.cache.refresh_after_mismatch("shop", seen) is None


class TestUnreadableConnection:
    async def test_first_read_that_fails_is_an_error_and_logged_once(
        self, backend: Backend, caplog: pytest.LogCaptureFixture
    ) -> None:
        backend.error = OSError("password=hunter22")
        for _ in range(20):
            with pytest.raises(SecretsUnavailableError):
                await backend.cache.get("shop")
        assert [one.message for one in caplog.records] == [
            "Connection 'shop' cannot be read (OSError). Its delivery reports are refused, and their senders asked to "
            "retry."
        ]
        backend.error = None
        assert await backend.cache.get("shop") is OLD

    async def test_last_known_secrets_are_used_until_the_connection_can_be_read_again(
        self, backend: Backend, caplog: pytest.LogCaptureFixture
    ) -> None:
        await backend.cache.get("shop")
        backend.now += 61
        backend.error = OSError("password=hunter22")
        for _ in range(20):
            assert await backend.cache.get("shop") is OLD
        assert len(backend.read) == 2
        assert "verified with the last known secrets" in caplog.text
        assert "hunter22" not in caplog.text
        backend.now += 5.1
        backend.error = None
        backend.connections["shop"] = NEW
        assert await backend.cache.get("shop") is NEW

    async def test_read_without_a_response_in_time_is_an_error(
        self, backend: Backend, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(module, "READ_SECONDS", 0.01)
        backend.may_answer.clear()
        with pytest.raises(SecretsUnavailableError, match="no response in time"):
            await backend.cache.get("shop")
        backend.may_answer.set()

    def test_repr_of_secrets_shows_none_of_them(self) -> None:
        shown = repr(ConnectionSecrets(("hunter22",), "hunter23", "X-Signature"))
        assert "hunter" not in shown
