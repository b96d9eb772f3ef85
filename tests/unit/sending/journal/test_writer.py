"""Who writes the log while requests are under way: few writes, none of which is skipped over."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from cpaas_provider.sending.errors import JournalUnavailableError, TrySupersededError
from cpaas_provider.sending.journal import writer as keeper_module
from cpaas_provider.sending.journal.model import LogEntry, Result, State
from cpaas_provider.sending.journal.writer import JournalWriter
from tests.unit.sending.campaign.parts import (
    BODY,
    SECOND_TRY,
    GoneError,
    MemoryStore,
    journal_log,
    make_intent,
    make_result,
    opened,
    phones,
)
from tests.unit.sending.journal.written import begin

DOWN = OSError("down")


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeper_module, "_FIRST_PAUSE", 0.0)
    monkeypatch.setattr(keeper_module, "_LONGEST_WAIT", 0.0)


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


def run_writer(store: MemoryStore, work: Callable[[JournalWriter], Awaitable[Any]], min_write_batch: int = 1) -> Any:
    """Have something done with a keeper, and close it."""

    async def run() -> Any:
        writer = JournalWriter(opened(store), BODY, min_write_batch)
        try:
            return await work(writer)
        finally:
            await writer.close()

    return asyncio.run(run())


def stored_entries(store: MemoryStore) -> list[LogEntry]:
    return list(journal_log(store, SECOND_TRY).replay())


def numbers(batches: list[LogEntry]) -> tuple[list[int], list[int]]:
    intents = [one.number for batch in batches for one in batch.intents]
    return intents, [one.number for batch in batches for one in batch.results]


def intent_of(number: int) -> Any:
    return make_intent(number, *phones(1, number))


async def conveyor(writer: JournalWriter, mine: list[int]) -> None:
    for number in mine:
        await begin(writer, intent_of(number))
        writer.end(make_result(number))


def test_begin_returns_when_the_intent_is_stored(store: MemoryStore) -> None:
    async def work(writer: JournalWriter) -> None:
        await begin(writer, intent_of(0))
        assert numbers(stored_entries(store)) == ([0], [])

    run_writer(store, work)


def test_cancelled_close_stores_the_known_results(store: MemoryStore) -> None:
    async def run() -> None:
        writer = JournalWriter(opened(store), BODY)
        await begin(writer, intent_of(0))
        writer.end(make_result(0))
        closing = asyncio.create_task(writer.close())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing

    asyncio.run(run())
    assert numbers(stored_entries(store)) == ([0], [0])


def test_one_write_holds_results_of_one_window_and_intents_of_the_next(store: MemoryStore) -> None:
    async def work(writer: JournalWriter) -> None:
        await asyncio.gather(*(conveyor(writer, list(range(first, 40, 8))) for first in range(8)))

    run_writer(store, work)
    batches = stored_entries(store)
    assert [(len(one.intents), len(one.results)) for one in batches] == [(8, 0), (8, 8), (8, 8), (8, 8), (8, 8), (0, 8)]
    assert len(store.written) == 6
    assert sorted(numbers(batches)[0]) == sorted(numbers(batches)[1]) == list(range(40))


def test_stored_intents_without_results_never_exceed_the_workers(store: MemoryStore) -> None:
    async def work(writer: JournalWriter) -> None:
        await asyncio.gather(*(conveyor(writer, list(range(first, 1500, 150))) for first in range(150)))

    run_writer(store, work, min_write_batch=75)
    ahead = 0
    for one in stored_entries(store):
        ahead += len(one.intents) - len(one.results)
        assert ahead <= 150
    assert ahead == 0


def test_intents_that_arrive_during_a_write_share_the_next(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on, put = threading.Event(), threading.Event(), store.set

    def slowly(key: str, value: Any) -> None:
        begun.set()
        go_on.wait(10)
        put(key, value)

    monkeypatch.setattr(store, "set", slowly)

    async def work(writer: JournalWriter) -> None:
        first = asyncio.create_task(begin(writer, intent_of(0)))
        await asyncio.to_thread(begun.wait, 10)
        others = [asyncio.create_task(begin(writer, intent_of(number))) for number in (1, 2, 3)]
        await asyncio.sleep(0)
        go_on.set()
        await asyncio.gather(first, *others)

    run_writer(store, work)
    assert [len(one.intents) for one in stored_entries(store)] == [1, 3]


def test_intent_that_cannot_be_written_and_all_later_ones_are_refused(store: MemoryStore) -> None:
    store.failing = [DOWN] * 3

    async def work(writer: JournalWriter) -> None:
        for _ in range(2):
            with pytest.raises(JournalUnavailableError):
                await begin(writer, intent_of(0))

    run_writer(store, work)
    assert store.failing == []
    (recorded,) = stored_entries(store)
    assert [(one.number, one.state) for one in recorded.results] == [(0, State.NOT_SENT)]


def test_failed_write_is_retried(store: MemoryStore) -> None:
    store.failing = [DOWN, DOWN]

    async def work(writer: JournalWriter) -> None:
        await begin(writer, intent_of(0))

    run_writer(store, work)
    assert numbers(stored_entries(store)) == ([0], [])


def test_results_survive_a_failed_write(store: MemoryStore) -> None:
    async def work(writer: JournalWriter) -> None:
        await begin(writer, intent_of(0))
        await begin(writer, intent_of(1))
        store.failing = [DOWN] * 3
        writer.end(make_result(0))
        with pytest.raises(JournalUnavailableError):
            await begin(writer, intent_of(2))
        # What was under way when it failed comes to its end, too.
        writer.end(make_result(1))

    run_writer(store, work)
    assert numbers(stored_entries(store)) == ([0, 1], [0, 2, 1])


def test_results_that_cannot_be_stored_are_logged(store: MemoryStore, caplog: pytest.LogCaptureFixture) -> None:
    async def work(writer: JournalWriter) -> None:
        await begin(writer, intent_of(0))
        store.failing = [DOWN] * 9
        writer.end(make_result(0))

    with caplog.at_level(logging.WARNING):
        run_writer(store, work)
    assert f"The outcome of 1 request ({intent_of(0).reference}) could not be stored" in caplog.text
    assert numbers(stored_entries(store)) == ([0], [])


def test_superseded_try_stores_no_intent_and_writes_once(store: MemoryStore) -> None:
    async def work(writer: JournalWriter) -> None:
        await begin(writer, intent_of(0))
        store.failing = [GoneError()] * 9
        with pytest.raises(TrySupersededError):
            await begin(writer, intent_of(1))
        writer.end(make_result(0))

    # Also where nobody was left to claim, the end says so: whoever closes must not take it for a success.
    with pytest.raises(TrySupersededError):
        run_writer(store, work)
    assert len(store.failing) == 8
    assert numbers(stored_entries(store)) == ([0], [])


def test_close_stores_remaining_results_in_one_write(store: MemoryStore) -> None:
    async def work(writer: JournalWriter) -> None:
        await asyncio.gather(*(begin(writer, intent_of(number)) for number in range(5)))
        before = len(store.written)
        for number in range(5):
            writer.end(make_result(number))
        await writer.close()
        assert len(store.written) == before + 1

    run_writer(store, work)
    assert numbers(stored_entries(store))[1] == [0, 1, 2, 3, 4]


def test_withdrawn_intent_is_not_written(store: MemoryStore) -> None:
    async def work(writer: JournalWriter) -> None:
        told: list[int] = []
        writer.begin(intent_of(0), lambda intent, _: told.append(intent.number))
        writer.withdraw(intent_of(0))
        await begin(writer, intent_of(1))
        assert told == []

    run_writer(store, work)
    assert numbers(stored_entries(store)) == ([1], [])


def test_added_request_is_intent_and_result_in_one_write(store: MemoryStore) -> None:
    async def work(writer: JournalWriter) -> None:
        for number in (0, 1):
            writer.add(intent_of(number), Result(number, State.REJECTED, reason="refused"))

    run_writer(store, work)
    (batch,) = stored_entries(store)
    assert numbers([batch]) == ([0, 1], [0, 1])


def test_added_request_survives_a_failed_write(store: MemoryStore) -> None:
    store.failing = [DOWN] * 3

    async def work(writer: JournalWriter) -> None:
        writer.add(intent_of(0), Result(0, State.REJECTED, reason="refused"))
        with pytest.raises(JournalUnavailableError):
            await begin(writer, intent_of(1))

    run_writer(store, work)
    assert numbers(stored_entries(store)) == ([0], [0, 1])


@pytest.mark.parametrize("reason", ["short", "r" * 300], ids=["short reasons", "long reasons"])
def test_large_amounts_stay_below_the_write_limit(store: MemoryStore, reason: str) -> None:
    async def work(writer: JournalWriter) -> None:
        for number in range(600):
            writer.add(intent_of(number), Result(number, State.REJECTED, reason=reason))
        packs = [make_intent(600 + number, *phones(500, 1000 * number), words=["w"] * 500) for number in range(12)]
        await asyncio.gather(*(begin(writer, pack) for pack in packs))

    run_writer(store, work)
    assert max(store.sizes) <= 65_535
    assert sorted(numbers(stored_entries(store))[0]) == list(range(612))


def test_reason_of_non_ascii_letters_stays_below_the_write_limit(store: MemoryStore) -> None:
    """JSON writes such a letter in six bytes."""

    async def work(writer: JournalWriter) -> None:
        for number in range(300):
            writer.add(intent_of(number), Result(number, State.REJECTED, reason="ọ" * 300))
        await begin(writer, intent_of(300))

    run_writer(store, work)
    assert max(store.sizes) <= 65_535
