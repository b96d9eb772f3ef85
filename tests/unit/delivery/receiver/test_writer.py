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
        self.may_go_on = threading.Semaphore(0)
        self.error: Exception | None = None
        self.free = False

    def keep(self, incoming: Sequence[ReceivedReport]) -> list[StoreResult]:
        self.threads.add(threading.get_ident())
        self.batches.append([one.body for one in incoming])
        self.begun.release()
        if not self.free and not self.may_go_on.acquire(timeout=PATIENCE):
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
async def opened(store: Store, max_pending: int = 2000) -> AsyncIterator[ReportWriter]:
    writer = ReportWriter(store.keep, max_pending=max_pending)
    try:
        yield writer
    finally:
        store.free = True
        store.may_go_on.release()
        await writer.close()


def handing(writer: ReportWriter, *bodies: str) -> list[asyncio.Task[StoreResult]]:
    return [asyncio.create_task(writer.submit(received_report(body))) for body in bodies]


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_the_first_waits_for_nobody_and_the_rest_for_one_transaction(store: Store) -> None:
    async with opened(store) as writer:
        first = handing(writer, "1")
        await store.has_begun()
        rest = handing(writer, "2", "3", "4")
        await turns()
        assert store.batches == [["1"]]
        store.may_go_on.release()
        assert await asyncio.gather(*first) == [StoreResult.NEW]
        assert not any(task.done() for task in rest)
        await store.has_begun()
        store.may_go_on.release()
        assert await asyncio.gather(*rest) == [StoreResult.NEW] * 3
    assert store.batches == [["1"], ["2", "3", "4"]]


async def test_each_is_told_what_became_of_its_own(store: Store) -> None:
    store.free = True
    async with opened(store) as writer:
        told = await asyncio.gather(*handing(writer, "a", "repeated", "b", "repeated"))
    assert told == [StoreResult.NEW, StoreResult.REPEATED, StoreResult.NEW, StoreResult.REPEATED]


async def test_one_thread_of_its_own_stores(store: Store) -> None:
    store.free = True
    async with opened(store) as writer:
        for number in range(5):
            await asyncio.gather(*handing(writer, str(number)))
    assert len(store.threads) == 1
    assert threading.get_ident() not in store.threads


async def test_a_transaction_has_a_bound(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writers, "MAX_BATCH", 4)
    async with opened(store) as writer:
        first = handing(writer, "0")
        await store.has_begun()
        rest = handing(writer, *map(str, range(1, 11)))
        await turns()
        store.free = True
        store.may_go_on.release()
        await asyncio.gather(*first, *rest)
    assert [len(batch) for batch in store.batches] == [1, 4, 4, 2]
    assert [body for batch in store.batches for body in batch] == [str(number) for number in range(11)]


async def test_an_error_goes_to_everybody_in_the_transaction_and_to_nobody_else(store: Store) -> None:
    async with opened(store) as writer:
        first = handing(writer, "1")
        await store.has_begun()
        rest = handing(writer, "2", "3")
        await turns()
        store.may_go_on.release()
        await asyncio.gather(*first)
        await store.has_begun()
        store.error = DatabaseError("The disk is full.")
        store.may_go_on.release()
        told = await asyncio.gather(*rest, return_exceptions=True)
        assert [str(one) for one in told] == ["The disk is full."] * 2
        store.error = None
        store.free = True
        assert await writer.submit(received_report("4")) is StoreResult.NEW


@pytest.mark.parametrize("wrong", [[], [StoreResult.NEW] * 2])
async def test_a_store_that_does_not_say_of_each_leaves_nobody_waiting(wrong: list[StoreResult]) -> None:
    writer = ReportWriter(lambda _: wrong)
    with pytest.raises(AssertionError):
        await writer.submit(received_report("1"))
    await writer.close()


async def test_more_than_there_is_room_for_is_refused_at_once_and_room_comes_back(store: Store) -> None:
    async with opened(store, max_pending=3) as writer:
        taken = handing(writer, "1", "2", "3")
        await turns()
        with pytest.raises(BackpressureError, match="Nothing was stored"):
            await writer.submit(received_report("4"))
        store.free = True
        store.may_go_on.release()
        await asyncio.gather(*taken)
        assert await asyncio.gather(*handing(writer, "5", "6", "7")) == [StoreResult.NEW] * 3
    assert "4" not in [body for batch in store.batches for body in batch]


async def test_who_gives_up_waiting_is_stored_all_the_same_and_harms_nobody(store: Store) -> None:
    async with opened(store, max_pending=2) as writer:
        leaving, staying = handing(writer, "1", "2")
        await store.has_begun()
        leaving.cancel()
        await turns()
        store.free = True
        store.may_go_on.release()
        assert await staying is StoreResult.NEW
        assert await asyncio.gather(*handing(writer, "3", "4")) == [StoreResult.NEW] * 2
    assert sorted(body for batch in store.batches for body in batch) == ["1", "2", "3", "4"]


async def test_closing_stores_what_is_in_hand_and_takes_no_more(store: Store) -> None:
    writer = ReportWriter(store.keep)
    first = handing(writer, "1")
    await store.has_begun()
    rest = handing(writer, "2", "3")
    await turns()
    closing = asyncio.create_task(writer.close())
    await turns()
    with pytest.raises(BackpressureError):
        await writer.submit(received_report("4"))
    assert not closing.done()
    store.free = True
    store.may_go_on.release()
    await closing
    assert await asyncio.gather(*first, *rest) == [StoreResult.NEW] * 3
    await writer.close()
    assert store.batches == [["1"], ["2", "3"]]


class TestWhenNeeded:
    async def test_its_thread_starts_with_the_first_report_and_opens_the_database(self, store: Store) -> None:
        store.free = True
        before = set(threading.enumerate())
        writer = ReportWriter(store.keep)
        assert set(threading.enumerate()) <= before
        told = await asyncio.gather(*handing(writer, *map(str, range(10))))
        assert told == [StoreResult.NEW] * 10
        assert len(store.threads) == 1
        assert threading.get_ident() not in store.threads
        await writer.close()

    async def test_a_database_that_cannot_be_opened_is_tried_again_by_the_next(self, store: Store) -> None:
        store.free = True
        failures = [DatabaseError("No room on the disk.")]

        def write(incoming: Sequence[ReceivedReport]) -> list[StoreResult]:
            if failures:
                raise failures.pop()
            return store.keep(incoming)

        writer = ReportWriter(write)
        with pytest.raises(DatabaseError, match="No room on the disk"):
            await writer.submit(received_report("1"))
        assert await writer.submit(received_report("2")) is StoreResult.NEW
        await writer.close()

    async def test_one_who_gives_up_does_not_stop_the_opening_for_others(self, store: Store) -> None:
        store.free = True
        may_open = threading.Event()

        def write(incoming: Sequence[ReceivedReport]) -> list[StoreResult]:
            assert may_open.wait(PATIENCE)
            return store.keep(incoming)

        writer = ReportWriter(write)
        leaving, staying = handing(writer, "1", "2")
        await turns()
        leaving.cancel()
        await turns()
        may_open.set()
        assert await staying is StoreResult.NEW
        await writer.close()

    async def test_closing_what_was_never_needed_starts_nothing(self, store: Store) -> None:
        before = set(threading.enumerate())
        await ReportWriter(store.keep).close()
        assert set(threading.enumerate()) <= before
        assert store.threads == set()

    async def test_report_after_closing_starts_it_again(self, store: Store) -> None:
        store.free = True
        writer = ReportWriter(store.keep)
        for body in ("1", "2"):
            assert await writer.submit(received_report(body)) is StoreResult.NEW
            await writer.close()
        assert store.batches == [["1"], ["2"]]
