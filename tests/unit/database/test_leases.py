"""A campaign that happens once: one owner at a time, and nothing of a loser's is stored."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from cpaas_provider.database.database import Database, open_database
from cpaas_provider.database.errors import CampaignChangedError, CampaignLockedError, LeaseLostError
from cpaas_provider.database.leases import LEASE, LeasedState
from cpaas_provider.sending.journal.model import JOURNAL_KEY, State
from cpaas_provider.sending.journal.store import StateStore, TryInfo
from tests.sqlite_memory import SqliteMemory
from tests.unit.database.workers import Worker
from tests.unit.sending.journal.written import WrittenJournal

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)


class Clock:
    """A clock that stands until it is set."""

    def __init__(self) -> None:
        self.now = AT

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def state_of(database: Database, clock: Clock) -> Callable[[str], LeasedState]:
    return lambda owner: LeasedState(database, "campaign", owner, clock=clock)


StateOf = Callable[[str], LeasedState]


@pytest.mark.parametrize(
    "value", [{"a": [1, None, "né\u0000\ud800"]}, [], "", 0, False, {"big": "x" * 65_536}, {"big": "☃" * 64_000}]
)
def test_stored_values_are_returned(state_of: StateOf, value: Any) -> None:
    state = state_of("one")
    state.acquire()
    state.set("journal", value)
    state.set("other", 1)
    assert state_of("another").get("journal") == value


def test_new_value_replaces_the_last(state_of: StateOf) -> None:
    state = state_of("one")
    state.acquire()
    assert state.get("journal") is None
    for value in (1, 2, None, 3):
        state.set("journal", value)
        assert state.get("journal") == value


@pytest.mark.parametrize("value", [{1, 2}, b"", float("nan")])
def test_value_that_is_no_json_is_refused_and_the_last_stays(state_of: StateOf, value: Any) -> None:
    state = state_of("one")
    state.acquire()
    state.set("journal", 1)
    with pytest.raises((TypeError, ValueError)):
        state.set("journal", value)
    assert state.get("journal") == 1


def test_campaigns_do_not_share_values(database: Database) -> None:
    one, other = LeasedState(database, "one", "owner"), LeasedState(database, "other", "somebody")
    one.acquire()
    other.acquire()
    one.set("journal", 1)
    assert other.get("journal") is None


def test_leased_state_stores_a_journal(state_of: StateOf) -> None:
    def opened(owner: str) -> tuple[LeasedState, WrittenJournal]:
        state = state_of(owner)
        state.acquire()
        store: StateStore = state
        return state, WrittenJournal(
            store, ["secret"], ("campaign",), TryInfo(1, 0, 0), clock=lambda: datetime.now(UTC)
        )

    state, journal = opened("run one")
    entry = journal.begin("sms", ["2348030001111"], {"content": "hello"})
    journal.end(entry, State.ACCEPTED, result={"id": "1"})
    state.release()
    state, journal = opened("run two")
    assert [(entry.state, entry.result) for entry in journal.records] == [(State.ACCEPTED, {"id": "1"})]
    assert state.get(JOURNAL_KEY)


def test_long_journal_does_not_stay_in_memory(tmp_path: Path) -> None:
    with open_database(f"sqlite:///{tmp_path}/store.db") as database:
        state = LeasedState(database, "campaign", "owner")
        state.acquire()
        memory = SqliteMemory()
        before = memory.used()
        for number in range(200):
            state.set(f"{JOURNAL_KEY}.{number}", "x" * 30_000)
        # 6 MB were written.
        assert memory.used() - before < 2_000_000


def test_error_names_the_owner_and_the_end_of_the_lease(state_of: StateOf) -> None:
    state_of("run 7 of dag news").acquire()
    with pytest.raises(
        CampaignLockedError, match=r"working on this campaign: run 7 of dag news\..*ends at 2026-03-01 12:05:00 UTC"
    ):
        state_of("run 8").acquire()


def test_same_owner_may_acquire_again_and_loses_the_earlier_lease(state_of: StateOf) -> None:
    """As a task that deferred does, or one whose first process is not quite dead."""
    first, second = state_of("one"), state_of("one")
    first.acquire()
    first.set("journal", 1)
    second.acquire()
    assert second.get("journal") == 1
    with pytest.raises(LeaseLostError):
        first.set("journal", 2)
    first.release()
    second.set("journal", 3)
    assert first.get("journal") == 3


def test_lease_expires_and_its_holder_stores_nothing_more(state_of: StateOf, clock: Clock) -> None:
    slow, next_ = state_of("slow"), state_of("next")
    slow.acquire()
    slow.set("journal", "slow's")
    with pytest.raises(CampaignLockedError):
        next_.acquire(now=AT + LEASE - SECOND)
    next_.acquire(now=AT + LEASE)
    for write in (lambda: slow.set("journal", "too late"), slow.renew):
        with pytest.raises(LeaseLostError, match=r"slow does not hold the lease .* held by next\. Nothing was stored"):
            write()
    assert next_.get("journal") == "slow's"
    next_.set("journal", "next's")


def test_holder_of_an_expired_lease_may_write_while_alone(state_of: StateOf, clock: Clock) -> None:
    slow = state_of("slow")
    slow.acquire()
    clock.now += 3 * LEASE
    slow.set("journal", 1)
    with pytest.raises(CampaignLockedError):
        state_of("next").acquire()


@pytest.mark.parametrize("prolong", [lambda state: state.set("journal", 1), lambda state: state.renew()])
def test_writes_and_renewals_extend_the_lease(
    state_of: StateOf, clock: Clock, prolong: Callable[[LeasedState], None]
) -> None:
    holder = state_of("holder")
    holder.acquire()
    for _ in range(3):
        clock.now += LEASE - SECOND
        prolong(holder)
    with pytest.raises(CampaignLockedError):
        state_of("next").acquire(now=clock.now + LEASE - SECOND)
    state_of("next").acquire(now=clock.now + LEASE)


def test_failed_write_does_not_extend_the_lease(state_of: StateOf, clock: Clock) -> None:
    loser, holder = state_of("loser"), state_of("holder")
    loser.acquire()
    holder.acquire(now=AT + LEASE)
    clock.now = AT + 2 * LEASE - SECOND
    with pytest.raises(LeaseLostError):
        loser.set("journal", 1)
    state_of("next").acquire(now=AT + 2 * LEASE)


def test_released_lease_may_be_acquired_at_once(state_of: StateOf) -> None:
    first, second = state_of("first"), state_of("second")
    first.acquire()
    first.set("journal", 1)
    first.release()
    first.release()
    with pytest.raises(LeaseLostError, match="held by no task"):
        first.set("journal", 2)
    second.acquire()
    assert second.get("journal") == 1
    second.set("journal", 3)


def test_release_of_a_lost_lease_leaves_the_next_holder_its_own(state_of: StateOf) -> None:
    slow, next_ = state_of("slow"), state_of("next")
    slow.acquire()
    next_.acquire(now=AT + LEASE)
    slow.release()
    next_.set("journal", 1)


def test_owner_without_a_lease_cannot_write(state_of: StateOf) -> None:
    stranger = state_of("stranger")
    for write in (lambda: stranger.set("journal", 1), stranger.renew):
        with pytest.raises(LeaseLostError):
            write()
    stranger.release()
    assert stranger.get("journal") is None


def test_one_of_many_threads_acquires_the_lease(database: Database) -> None:
    for turn in range(10):
        together = threading.Barrier(8)

        def attempt(worker: int, turn: int = turn, together: threading.Barrier = together) -> bool:
            together.wait(30)
            with contextlib.suppress(CampaignLockedError):
                LeasedState(database, f"campaign {turn}", f"worker {worker}").acquire()
                return True
            return False

        with ThreadPoolExecutor(8) as pool:
            assert sum(pool.map(attempt, range(8))) == 1


def test_threads_with_one_lease_write_in_turn(state_of: StateOf) -> None:
    state = state_of("one")
    state.acquire()

    def write(worker: int) -> None:
        for number in range(10):
            state.set(f"part {worker}", number)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(8)))
    assert [state.get(f"part {worker}") for worker in range(8)] == [9] * 8


def test_process_that_lost_its_lease_stores_nothing_more(url: str, crowd: list[Worker]) -> None:
    """A process counts as fast as it can while its campaign is taken: nothing of it is stored from then on."""
    crowd[0].send_command("count", url, "slow")
    said = [crowd[0].read_reply() for _ in range(5)]
    with open_database(url) as database:
        next_ = LeasedState(database, "campaign", "next")
        next_.acquire(now=datetime.now(UTC) + 2 * LEASE)
        found = next_.get("number")
        while said[-1] != "lost":
            said.append(crowd[0].read_reply())
        assert next_.get("number") == found == int(said[-2])


class TestWhileIdle:
    """What somebody beside the tasks stores, such as a person's decision."""

    def test_values_are_stored_and_the_campaign_stays_unlocked(self, state_of: StateOf) -> None:
        task, person = state_of("task"), state_of("person")
        task.acquire()
        task.set("journal", {"a": 1})
        task.release()
        person.set_if_unlocked({"journal": {"a": 2}, "more": 3}, {"journal": {"a": 1}, "more": None})
        assert (task.get("journal"), task.get("more"), task.locked_by()) == ({"a": 2}, 3, None)
        task.acquire()
        assert task.locked_by() == "task"

    def test_nothing_is_stored_while_a_task_holds_the_lease(self, state_of: StateOf) -> None:
        task, person = state_of("task"), state_of("person")
        task.acquire()
        with pytest.raises(CampaignLockedError, match="is working on this campaign: task"):
            person.set_if_unlocked({"journal": 2}, {})
        task.set("journal", 1)
        assert (task.get("journal"), task.locked_by()) == (1, "task")

    def test_nothing_is_stored_if_a_value_has_changed(self, state_of: StateOf) -> None:
        task, person = state_of("task"), state_of("person")
        task.acquire()
        task.set("journal", 1)
        task.release()
        for seen in ({"journal": 2}, {"journal": None}, {"journal": 1, "more": 1}):
            with pytest.raises(CampaignChangedError):
                person.set_if_unlocked({"journal": 3, "more": 4}, seen)
        assert (task.get("journal"), task.get("more"), task.locked_by()) == (1, None, None)

    def test_task_with_an_expired_lease_cannot_write_after_a_change(self, state_of: StateOf, clock: Clock) -> None:
        dead, person = state_of("dead"), state_of("person")
        dead.acquire()
        dead.set("journal", 1)
        clock.now += LEASE + SECOND
        assert dead.locked_by() is None
        person.set_if_unlocked({"journal": 2}, {"journal": 1})
        with pytest.raises(LeaseLostError):
            dead.set("journal", 3)
        assert dead.get("journal") == 2
