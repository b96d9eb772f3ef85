"""Messages to recipients are counted once, and never more of them than a cap allows."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy

from cpaas_provider.database.database import Database, open_database
from cpaas_provider.database.recipients.frequency import MAX_PERIOD, Cap, MessageCounts, erase_counts
from cpaas_provider.database.schema.recipients import message_counts
from cpaas_provider.delivery.tracking.retention import prune

ADA, BEN = "2348031000001", "2348031000002"
WEEK = timedelta(days=7)
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
SECRET = "AIRFLOW__CPAAS__RECIPIENT_SECRET"


def counting(database: Database, send: str, messages: int | None = 1, category: str = "offers") -> MessageCounts:
    return MessageCounts(database, Cap(category, messages, WEEK), send)


def stored(database: Database) -> int:
    with database.connect() as connection:
        return int(connection.execute(sqlalchemy.select(sqlalchemy.func.count(message_counts.c.send))).scalar_one())


def test_message_beyond_the_cap_is_refused(database: Database) -> None:
    for send in ("one", "two"):
        assert counting(database, send, 2).reserve([ADA], NOW) == frozenset()
    assert counting(database, "three", 2).reserve([ADA, BEN], NOW) == {ADA}


def test_database_holds_no_recipient(database: Database) -> None:
    counting(database, "one").reserve([ADA, "ada@example.com"], NOW)
    with database.connect() as connection:
        rows = repr(connection.execute(sqlalchemy.select(message_counts)).all())
    assert rows.count("'one'") == 2
    assert ADA not in rows
    assert "ada@" not in rows


def test_retry_of_the_same_send_counts_once(database: Database) -> None:
    for _ in range(3):
        assert counting(database, "one").reserve([ADA, BEN], NOW) == frozenset()
    assert stored(database) == 2


def test_released_message_is_not_counted(database: Database) -> None:
    one = counting(database, "one")
    one.reserve([ADA, BEN], NOW)
    one.release([ADA])
    assert counting(database, "two").reserve([ADA, BEN], NOW) == {BEN}


def test_release_of_one_send_leaves_those_of_another(database: Database) -> None:
    counting(database, "one").reserve([ADA], NOW)
    counting(database, "two").release([ADA])
    assert counting(database, "three").reserve([ADA], NOW) == {ADA}


def test_messages_older_than_the_period_do_not_count(database: Database) -> None:
    counting(database, "one").reserve([ADA], NOW)
    assert counting(database, "two").reserve([ADA], NOW + WEEK - timedelta(seconds=1)) == {ADA}
    assert counting(database, "two").reserve([ADA], NOW + WEEK) == frozenset()


def test_late_retry_counts_at_its_own_time(database: Database) -> None:
    one, later = counting(database, "one"), NOW + 2 * WEEK
    one.reserve([ADA, BEN], NOW)
    counting(database, "two").reserve([ADA], later)
    assert one.reserve([ADA, BEN], later) == {ADA}
    assert counting(database, "three").reserve([BEN], later) == {BEN}


def test_categories_are_counted_apart(database: Database) -> None:
    counting(database, "one").reserve([ADA], NOW)
    assert counting(database, "two", category="news").reserve([ADA], NOW) == frozenset()


def test_send_without_a_cap_counts_for_those_with_one(database: Database) -> None:
    for send in ("one", "two"):
        assert counting(database, send, None).reserve([ADA], NOW) == frozenset()
    assert counting(database, "three", 2).reserve([ADA], NOW) == {ADA}


def test_recipient_named_twice_counts_once(database: Database) -> None:
    assert counting(database, "one").reserve([ADA, ADA], NOW) == frozenset()
    assert stored(database) == 1


def test_messages_hashed_with_an_older_secret_count(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SECRET, "old")
    one = counting(database, "one")
    one.reserve([ADA, BEN], NOW)
    monkeypatch.setenv(SECRET, "new,old")
    assert counting(database, "two").reserve([ADA], NOW) == {ADA}
    assert one.reserve([ADA], NOW) == frozenset()
    one.release([BEN])
    assert counting(database, "two").reserve([BEN], NOW) == frozenset()


def test_sends_at_the_same_time_never_exceed_the_cap(url: str) -> None:
    everybody = [f"23480310{number:05d}" for number in range(600)]
    databases = [open_database(url) for _ in range(4)]

    def send(worker: int) -> list[str]:
        one = counting(databases[worker], f"send-{worker}", 2)
        ordered = everybody if worker % 2 else everybody[::-1]
        got: list[str] = []
        for start in range(0, len(ordered), 100):
            some = ordered[start : start + 100]
            refused = one.reserve(some, NOW)
            got += [recipient for recipient in some if recipient not in refused]
        return got

    with ThreadPoolExecutor(4) as pool:
        sent = [recipient for some in pool.map(send, range(4)) for recipient in some]
    assert sorted(sent) == sorted(everybody * 2)
    for database in databases:
        database.close()


def test_old_messages_are_pruned(database: Database) -> None:
    now = datetime.now(UTC)
    counting(database, "old").reserve([ADA], now - MAX_PERIOD - timedelta(minutes=1))
    counting(database, "new").reserve([BEN], now - MAX_PERIOD + timedelta(minutes=1))
    assert dict(prune(database, now, now))["cpaas_message_counts"] == 1
    assert stored(database) == 1


def test_erasure_deletes_the_messages_of_one_recipient(database: Database) -> None:
    assert erase_counts(database, [ADA]) == 0
    counting(database, "one").reserve([ADA, BEN], NOW)
    counting(database, "two", category="news").reserve([ADA], NOW)
    assert erase_counts(database, [ADA]) == 2
    assert stored(database) == 1
