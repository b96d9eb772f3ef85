"""A write that Airflow's client repeated, and whose first copy is carried out late, hides nothing that is newer."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpaas_provider.sending.errors import JournalUnavailableError
from cpaas_provider.sending.journal import log as ledger_module
from cpaas_provider.sending.journal.model import State
from cpaas_provider.sending.journal.store import TryInfo
from tests.unit.sending.campaign.parts import (
    IDENTITY,
    SECRETS,
    MemoryStore,
    batch,
    journal_log,
    make_intent,
    make_result,
    opened,
)
from tests.unit.sending.journal.written import WrittenJournal

TRIES = [TryInfo(number, 9, 9) for number in range(1, 4)]


class LateStore(MemoryStore):
    """A task's state that remembers each write, to carry it out once more."""

    def __init__(self) -> None:
        super().__init__()
        self.copies: list[tuple[str, str]] = []

    def set(self, key: str, value: Any) -> None:
        self.copies.append((key, json.dumps(value)))
        super().set(key, value)

    def carry_out_again(self, which: int) -> None:
        key, value = self.copies[which % len(self.copies)]
        super().set(key, json.loads(value))


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a few writes make several segments."""
    monkeypatch.setattr(ledger_module, "ROLL_BYTES", 700)


@given(
    writes=st.lists(st.integers(1, 12), min_size=1, max_size=3),
    late=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 40)), max_size=6),
    failing=st.sets(st.integers(0, 30), max_size=12),
    goes_on=st.booleans(),
)
def test_late_writes_hide_no_stored_intent(
    writes: list[int], late: list[tuple[int, int]], failing: set[int], goes_on: bool
) -> None:
    store, stored, at = LateStore(), set[int](), 0
    for tries, count in zip(TRIES, writes, strict=False):
        journal = opened(store, tries)
        for _ in range(count):
            number = tries.number * 1000 + at
            store.failing = [OSError("down")] if at in failing else []
            at += 1
            try:
                journal.append(
                    batch([make_intent(number, f"23480312{number:05d}")], [make_result(number)], tries=tries)
                )
            except JournalUnavailableError:
                if not goes_on:
                    break
                # As a task does that makes several sends, and catches what one of them raises.
                continue
            stored.add(number)
            journal.tidy(1)
        for after, which in late:
            if after + 1 == tries.number:
                store.carry_out_again(which)
    found = {one.number for each in journal_log(store, TryInfo(4, 9, 9)).replay() for one in each.intents}
    assert stored <= found


def test_failed_write_that_arrives_in_the_next_try_hides_no_intent_of_it() -> None:
    store = LateStore()
    store.failing = [OSError("down")]
    with pytest.raises(JournalUnavailableError):
        opened(store).append(batch([make_intent(0, "2348031200000")]))
    opened(store, TRIES[1]).append(batch([make_intent(1, "2348031200001")], tries=TRIES[1]))
    store.carry_out_again(0)
    found = [one.number for each in journal_log(store, TRIES[2]).replay() for one in each.intents]
    assert sorted(found) == [0, 1]


def test_superseded_keys_are_removed() -> None:
    store = LateStore()
    journal = opened(store)
    for number in range(200):
        journal.append(batch([make_intent(number, f"23480312{number:05d}")], [make_result(number)]))
        journal.tidy(2)
    assert len(store.values) < 200 / 2


class TestSingleSends:
    """The journal of a single send."""

    @staticmethod
    def opened(store: MemoryStore, tries: TryInfo = TRIES[0]) -> WrittenJournal:
        return WrittenJournal(store, SECRETS[:1], IDENTITY, tries, clock=lambda: datetime.now(UTC))

    @pytest.mark.parametrize("which", range(4))
    def test_late_copy_hides_no_later_intent(self, which: int) -> None:
        store = LateStore()
        journal = self.opened(store)
        journal.end(journal.begin("send_sms", ["2348031200000"], {}), State.NOT_SENT)
        journal.end(journal.begin("send_sms", ["2348031200000"], {}), State.ACCEPTED, result={"id": "m1"})
        store.carry_out_again(which)
        entry = self.opened(store, TRIES[1]).latest("send_sms", ["2348031200000"])["2348031200000"]
        assert entry is not None
        assert entry.state in {State.ACCEPTED, State.UNKNOWN}

    @pytest.mark.parametrize("which", range(4))
    def test_late_copy_hides_no_intent_for_other_recipients(self, which: int) -> None:
        store = LateStore()
        for tries, recipient in zip(TRIES, ("2348031200000", "2348031200001"), strict=False):
            journal = self.opened(store, tries)
            journal.end(journal.begin("send_sms", [recipient], {}), State.ACCEPTED, result={"id": "m1"})
        store.carry_out_again(which)
        found = self.opened(store, TRIES[2]).latest("send_sms", ["2348031200000", "2348031200001"])
        assert None not in found.values()

    def test_costs_one_read_and_two_writes(self) -> None:
        store, asked = LateStore(), list[str]()
        get = store.get
        store.get = lambda key: asked.append(key) or get(key)  # type: ignore[method-assign, func-returns-value]
        journal = self.opened(store)
        journal.end(journal.begin("send_sms", ["2348031200000"], {}), State.ACCEPTED)
        assert (len(asked), len(store.copies)) == (1, 2)
