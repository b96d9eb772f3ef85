"""What look-ups said of numbers, remembered and forgotten."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone

import pytest
import sqlalchemy

from cpaas_provider.database.batches import BATCH
from cpaas_provider.database.database import Database, open_store
from cpaas_provider.database.lookups import LookupMemory

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
DAY = timedelta(days=1)


def _hashes(count: int) -> list[bytes]:
    return [hashlib.sha256(str(number).encode()).digest() for number in range(count)]


@pytest.fixture
def memory(database: Database) -> LookupMemory:
    return LookupMemory(database)


def test_what_was_found_is_recalled_while_it_is_fresh(memory: LookupMemory) -> None:
    one, other, stranger = _hashes(3)
    memory.remember({one: True, other: False}, AT)
    assert memory.recall([one, other, stranger], AT) == {one: True, other: False}
    assert memory.recall([one, other, stranger], AT + timedelta(seconds=1)) == {}


def test_it_outlives_who_found_it(url: str) -> None:
    (one,) = _hashes(1)
    with open_store(url) as database:
        LookupMemory(database).remember({one: True}, AT)
    with open_store(url) as database:
        assert LookupMemory(database).recall([one], AT) == {one: True}


def test_a_later_look_up_counts(memory: LookupMemory) -> None:
    one, other = _hashes(2)
    memory.remember({one: True, other: True}, AT)
    memory.remember({one: False}, AT + DAY)
    assert memory.recall([one, other], AT) == {one: False, other: True}
    assert memory.recall([one, other], AT + DAY) == {one: False}


def test_moments_are_the_same_in_every_zone(memory: LookupMemory) -> None:
    (one,) = _hashes(1)
    lagos = timezone(timedelta(hours=1))
    memory.remember({one: True}, AT.astimezone(lagos))
    assert memory.recall([one], AT) == {one: True}
    assert memory.recall([one], (AT + timedelta(minutes=1)).astimezone(timezone(timedelta(hours=9)))) == {}


def test_what_is_old_is_forgotten_and_counted(memory: LookupMemory) -> None:
    one, other = _hashes(2)
    memory.remember({one: True}, AT)
    memory.remember({other: True}, AT + DAY)
    assert memory.forget_before(AT + DAY) == 1
    assert memory.recall([one, other], AT) == {other: True}
    assert memory.forget_before(AT + DAY) == 0


def test_nothing_is_nothing(memory: LookupMemory) -> None:
    memory.remember({}, AT)
    assert memory.recall([], AT) == {}


def test_many_are_asked_for_in_batches(database: Database) -> None:
    memory = LookupMemory(database)
    hashes = _hashes(2 * BATCH + 1)
    asked: list[str] = []

    def note(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        if statement.startswith("SELECT"):
            asked.append(statement)

    memory.remember({one: number % 3 == 0 for number, one in enumerate(hashes)}, AT)
    sqlalchemy.event.listen(database.engine, "before_cursor_execute", note)
    known = memory.recall(hashes, AT)
    assert known == {one: number % 3 == 0 for number, one in enumerate(hashes)}
    assert len(asked) == 3


def test_several_may_find_the_same_at_once(database: Database) -> None:
    memory = LookupMemory(database)
    hashes = _hashes(BATCH * 2)

    def find(worker: int) -> None:
        for turn in range(5):
            ordered = hashes if worker % 2 else hashes[::-1]
            memory.remember(dict.fromkeys(ordered, True), AT + turn * DAY)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(find, range(4)))
    assert memory.recall(hashes, AT) == dict.fromkeys(hashes, True)
    assert memory.forget_before(AT + 9 * DAY) == len(hashes)
