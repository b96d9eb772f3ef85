"""Group commit: at once for the first, together for those that come meanwhile, and nothing lost or left waiting."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import pytest

from cpaas_provider.database.errors import DatabaseError
from cpaas_provider.delivery.receiver import writer as writers
from cpaas_provider.delivery.receiver.writer import BackpressureError, ReceivedReport, ReportWriter, StoreResult
from cpaas_provider.delivery.reports import DeliveryStatus, Report

PATIENCE = 20.0


def received_report(body: str) -> ReceivedReport:
    return ReceivedReport("cpaas_default", "webhook", None, Report(DeliveryStatus.DELIVERED), body, datetime.now(UTC))


class Store:
    """Keeps in memory, one transaction at a time, each only when it may."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.threads: set[int] = set()
        self.begun = threading.Semaphore(0)
        self.may_commit = threading.Semaphore(0)
        self.error: Exception | None = None
        self.free = False

    def save(self, incoming: Sequence[ReceivedReport]) -> list[StoreResult]:
        self.threads.add(threading.get_ident())
        self.batches.append([one.body for one in incoming])
        self.begun.release()
        if not self.free and not self.may_commit.acquire(timeout=PATIENCE):
            raise TimeoutError
        if self.error:
            raise self.error
        return [StoreResult.REPEATED if one.body == "repeated" else StoreResult.NEW for one in incoming]

    async def has_begun(self) -> None:
        assert await asyncio.to_thread(self.begun.acquire, timeout=PATIENCE)


@pytest.fixture
def store() -> Store:
    return Store()


@asynccontextmanager
async def open_writer(store: Store, max_pending: int = 2000) -> AsyncIterator[ReportWriter]:
    writer = ReportWriter(store.save, max_pending=max_pending)
    try:
        yield writer
    finally:
        store.free = True
        store.may_commit.release()
        await writer.close()


def submit_reports(writer: ReportWriter, *bodies: str) -> list[asyncio.Task[StoreResult]]:
    return [asyncio.create_task(writer.submit(received_report(body))) for body in bodies]


async def run_event_loop(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_first_report_is_stored_at_once_and_the_next_ones_in_one_transaction(store: Store) -> None:
    async with open_writer(store) as writer:
        first = submit_reports(writer, "1")
        await store.has_begun()
        rest = submit_reports(writer, "2", "3", "4")
        await run_event_loop()
        assert store.batches == [["1"]]
        store.may_commit.release()
        assert await asyncio.gather(*first) == [StoreResult.NEW]
        assert not any(task.done() for task in rest)
        await store.has_begun()
        store.may_commit.release()
        assert await asyncio.gather(*rest) == [StoreResult.NEW] * 3
    assert store.batches == [["1"], ["2", "3", "4"]]


async def test_each_sender_gets_the_result_of_its_own_report(store: Store) -> None:
    store.free = True
    async with open_writer(store) as writer:
        told = await asyncio.gather(*submit_reports(writer, "a", "repeated", "b", "repeated"))
    assert told == [StoreResult.NEW, StoreResult.REPEATED, StoreResult.NEW, StoreResult.REPEATED]


async def test_all_reports_are_stored_by_one_separate_thread(store: Store) -> None:
    store.free = True
    async with open_writer(store) as writer:
        for number in range(5):
            await asyncio.gather(*submit_reports(writer, str(number)))
    assert len(store.threads) == 1
    assert threading.get_ident() not in store.threads


async def test_number_of_reports_in_a_transaction_is_limited(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writers, "MAX_BATCH", 4)
    async with open_writer(store) as writer:
        first = submit_reports(writer, "0")
        await store.has_begun()
        rest = submit_reports(writer, *map(str, range(1, 11)))
        await run_event_loop()
        store.free = True
        store.may_commit.release()
        await asyncio.gather(*first, *rest)
    assert [len(batch) for batch in store.batches] == [1, 4, 4, 2]
    assert [body for batch in store.batches for body in batch] == [str(number) for number in range(11)]


async def test_error_goes_to_all_senders_of_its_transaction_and_to_no_other(store: Store) -> None:
    async with open_writer(store) as writer:
        first = submit_reports(writer, "1")
        await store.has_begun()
        rest = submit_reports(writer, "2", "3")
        await run_event_loop()
        store.may_commit.release()
        await asyncio.gather(*first)
        await store.has_begun()
        store.error = DatabaseError("The disk is full.")
        store.may_commit.release()
        told = await asyncio.gather(*rest, return_exceptions=True)
        assert [str(one) for one in told] == ["The disk is full."] * 2
        store.error = None
        store.free = True
        assert await writer.submit(received_report("4")) is StoreResult.NEW


@pytest.mark.parametrize("wrong", [[], [StoreResult.NEW] * 2])
async def test_wrong_number_of_results_is_an_error_for_the_sender(wrong: list[StoreResult]) -> None:
    writer = ReportWriter(lambda _: wrong)
    with pytest.raises(AssertionError):
        await writer.submit(received_report("1"))
    await writer.close()


async def test_report_beyond_the_limit_is_refused_until_pending_ones_are_stored(store: Store) -> None:
    async with open_writer(store, max_pending=3) as writer:
        taken = submit_reports(writer, "1", "2", "3")
        await run_event_loop()
        with pytest.raises(BackpressureError, match="Nothing was stored"):
            await writer.submit(received_report("4"))
        store.free = True
        store.may_commit.release()
        await asyncio.gather(*taken)
        assert await asyncio.gather(*submit_reports(writer, "5", "6", "7")) == [StoreResult.NEW] * 3
    assert "4" not in [body for batch in store.batches for body in batch]


async def test_report_of_a_cancelled_sender_is_stored_and_others_are_not_affected(store: Store) -> None:
    async with open_writer(store, max_pending=2) as writer:
        leaving, staying = submit_reports(writer, "1", "2")
        await store.has_begun()
        leaving.cancel()
        await run_event_loop()
        store.free = True
        store.may_commit.release()
        assert await staying is StoreResult.NEW
        assert await asyncio.gather(*submit_reports(writer, "3", "4")) == [StoreResult.NEW] * 2
    assert sorted(body for batch in store.batches for body in batch) == ["1", "2", "3", "4"]


async def test_close_stores_pending_reports_and_accepts_no_more(store: Store) -> None:
    writer = ReportWriter(store.save)
    first = submit_reports(writer, "1")
    await store.has_begun()
    rest = submit_reports(writer, "2", "3")
    await run_event_loop()
    closing = asyncio.create_task(writer.close())
    await run_event_loop()
    with pytest.raises(BackpressureError):
        await writer.submit(received_report("4"))
    assert not closing.done()
    store.free = True
    store.may_commit.release()
    await closing
    assert await asyncio.gather(*first, *rest) == [StoreResult.NEW] * 3
    await writer.close()
    assert store.batches == [["1"], ["2", "3"]]


class TestWriterThread:
    async def test_writer_thread_starts_with_the_first_report(self, store: Store) -> None:
        store.free = True
        before = set(threading.enumerate())
        writer = ReportWriter(store.save)
        assert set(threading.enumerate()) <= before
        told = await asyncio.gather(*submit_reports(writer, *map(str, range(10))))
        assert told == [StoreResult.NEW] * 10
        assert len(store.threads) == 1
        assert threading.get_ident() not in store.threads
        await writer.close()

    async def test_report_after_a_failed_write_is_stored(self, store: Store) -> None:
        store.free = True
        failures = [DatabaseError("No room on the disk.")]

        def write(incoming: Sequence[ReceivedReport]) -> list[StoreResult]:
            if failures:
                raise failures.pop()
            return store.save(incoming)

        writer = ReportWriter(write)
        with pytest.raises(DatabaseError, match="No room on the disk"):
            await writer.submit(received_report("1"))
        assert await writer.submit(received_report("2")) is StoreResult.NEW
        await writer.close()

    async def test_cancelled_sender_does_not_stop_the_first_write_for_others(self, store: Store) -> None:
        store.free = True
        may_open = threading.Event()

        def write(incoming: Sequence[ReceivedReport]) -> list[StoreResult]:
            assert may_open.wait(PATIENCE)
            return store.save(incoming)

        writer = ReportWriter(write)
        leaving, staying = submit_reports(writer, "1", "2")
        await run_event_loop()
        leaving.cancel()
        await run_event_loop()
        may_open.set()
        assert await staying is StoreResult.NEW
        await writer.close()

    async def test_close_of_an_unused_writer_starts_no_thread(self, store: Store) -> None:
        before = set(threading.enumerate())
        await ReportWriter(store.save).close()
        assert set(threading.enumerate()) <= before
        assert store.threads == set()

    async def test_report_after_close_is_stored(self, store: Store) -> None:
        store.free = True
        writer = ReportWriter(store.save)
        for body in ("1", "2"):
            assert await writer.submit(received_report(body)) is StoreResult.NEW
            await writer.close()
        assert store.batches == [["1"], ["2"]]
