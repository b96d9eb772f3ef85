"""Phone lookups, cached over runs."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone

import pytest
import sqlalchemy

from cpaas_provider.database.bulk import BATCH
from cpaas_provider.database.database import Database, open_database
from cpaas_provider.database.recipients.lookups import DndCache, PhoneRecord, PhoneRecordCache
from cpaas_provider.database.schema.lookups import lookups

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
DAY = timedelta(days=1)


def _hashes(count: int) -> list[bytes]:
    return [hashlib.sha256(str(number).encode()).digest() for number in range(count)]


@pytest.fixture
def cache(database: Database) -> DndCache:
    return DndCache(database)


def test_lookups_are_returned_while_they_are_recent(cache: DndCache) -> None:
    one, other, unknown = _hashes(3)
    cache.set_many({one: True, other: False}, AT)
    assert cache.get_many([one, other, unknown], AT) == {one: True, other: False}
    assert cache.get_many([one, other, unknown], AT + timedelta(seconds=1)) == {}


def test_lookups_outlive_the_connection_to_the_database(url: str) -> None:
    (one,) = _hashes(1)
    with open_database(url) as database:
        DndCache(database).set_many({one: True}, AT)
    with open_database(url) as database:
        assert DndCache(database).get_many([one], AT) == {one: True}


def test_later_lookup_replaces_the_earlier_one(cache: DndCache) -> None:
    one, other = _hashes(2)
    cache.set_many({one: True, other: True}, AT)
    cache.set_many({one: False}, AT + DAY)
    assert cache.get_many([one, other], AT) == {one: False, other: True}
    assert cache.get_many([one, other], AT + DAY) == {one: False}


def test_times_are_compared_across_time_zones(cache: DndCache) -> None:
    (one,) = _hashes(1)
    lagos = timezone(timedelta(hours=1))
    cache.set_many({one: True}, AT.astimezone(lagos))
    assert cache.get_many([one], AT) == {one: True}
    assert cache.get_many([one], (AT + timedelta(minutes=1)).astimezone(timezone(timedelta(hours=9)))) == {}


def test_no_hashes_return_no_lookups(cache: DndCache) -> None:
    cache.set_many({}, AT)
    assert cache.get_many([], AT) == {}


def test_many_hashes_are_queried_in_batches(database: Database) -> None:
    cache = DndCache(database)
    hashes = _hashes(2 * BATCH + 1)
    asked: list[str] = []

    def record_statement(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        if statement.startswith("SELECT"):
            asked.append(statement)

    cache.set_many({one: number % 3 == 0 for number, one in enumerate(hashes)}, AT)
    sqlalchemy.event.listen(database.engine, "before_cursor_execute", record_statement)
    known = cache.get_many(hashes, AT)
    assert known == {one: number % 3 == 0 for number, one in enumerate(hashes)}
    assert len(asked) == 3


def test_concurrent_writes_of_the_same_lookups_succeed(database: Database) -> None:
    cache = DndCache(database)
    hashes = _hashes(BATCH * 2)

    def find(worker: int) -> None:
        for turn in range(5):
            ordered = hashes if worker % 2 else hashes[::-1]
            cache.set_many(dict.fromkeys(ordered, True), AT + turn * DAY)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(find, range(4)))
    assert cache.get_many(hashes, AT) == dict.fromkeys(hashes, True)
    with database.connect() as reading:
        assert reading.scalar(sqlalchemy.select(sqlalchemy.func.count()).select_from(lookups)) == len(hashes)


def test_record_has_the_flag_that_a_campaign_looked_up_later(database: Database) -> None:
    records, flags = PhoneRecordCache(database), DndCache(database)
    one, other = _hashes(2)
    found = PhoneRecord("MTN", "NG", ported=False, dnd=False)
    flags.set_many({other: True}, AT - DAY)
    records.set_many({one: found, other: found}, AT)
    flags.set_many({one: True}, AT + DAY)
    assert records.get_many([one, other], AT) == {one: found._replace(dnd=True), other: found}
