"""The journals of tasks in the database: the newest try writes, and no other one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace
from sqlalchemy import update

from cpaas_provider.database.database import Database
from cpaas_provider.database.errors import TryReplacedError
from cpaas_provider.database.schema.campaigns import task_journals
from cpaas_provider.database.task_journals import (
    TaskInstanceName,
    TaskJournal,
    TaskTry,
    forget_journals,
    list_task_instances,
    newest_journal,
    prune_journals,
)

NAME = TaskInstanceName("offers", "manual__1", "send", -1)
FIRST = TaskTry(NAME, "01a00000-0000-7000-8000-000000000001", 1)
SECOND = TaskTry(NAME, "01a00000-0000-7000-8000-000000000002", 2)


def written(database: Database, opened_by: TaskTry = FIRST, *, newest: int = 0) -> TaskJournal:
    journal = TaskJournal(database, opened_by, newest=newest)
    journal.set("key", [1])
    return journal


def test_journal_without_a_write_is_not_stored(database: Database) -> None:
    assert TaskJournal(database, FIRST).get("key") is None
    assert newest_journal(database, NAME) is None


def name_of_newest(database: Database, instance: TaskInstanceName = NAME) -> str | None:
    newest = newest_journal(database, instance)
    return newest and newest.name


def test_newer_try_reads_what_the_older_one_wrote(database: Database) -> None:
    first = written(database)
    second = TaskJournal(database, SECOND, first.name)
    assert (second.open(), second.get("key"), second.writes) == (True, [1], 1)


def test_older_try_can_no_longer_write_once_a_newer_one_has_opened_the_journal(database: Database) -> None:
    first = written(database)
    TaskJournal(database, SECOND, first.name).open()
    for write in (lambda: first.set("key", 2), lambda: first.delete("key")):
        with pytest.raises(TryReplacedError, match="newer try"):
            write()
    assert first.get("key") == [1]


def test_older_try_cannot_open_a_journal_of_a_newer_one(database: Database) -> None:
    second = written(database, SECOND)
    with pytest.raises(TryReplacedError):
        TaskJournal(database, FIRST, second.name).open()


def test_number_of_the_try_decides_where_clocks_gave_a_newer_try_a_smaller_id(database: Database) -> None:
    first = written(database, replace(SECOND, number=1))
    newer = TaskJournal(database, replace(FIRST, number=2), first.name)
    assert (newer.open(), newer.get("key")) == (True, [1])
    with pytest.raises(TryReplacedError):
        TaskJournal(database, replace(SECOND, number=1), first.name).open()


def test_same_try_in_another_process_ends_the_first_process(database: Database) -> None:
    first = written(database)
    resumed = TaskJournal(database, FIRST, first.name)
    resumed.open()
    resumed.set("key", 2)
    with pytest.raises(TryReplacedError):
        first.set("key", 3)
    assert resumed.get("key") == 2


@pytest.mark.parametrize("number", [1, 2, 3], ids=["made again", "next try", "later try"])
@pytest.mark.parametrize("try_id", [FIRST.try_id, SECOND.try_id], ids=["clock behind", "clock ahead"])
def test_newest_journal_is_the_last_that_was_stored_whatever_the_clocks_show(
    database: Database, try_id: str, number: int
) -> None:
    written(database, replace(SECOND, try_id=SECOND.try_id[:-1] + "1"))
    last = written(database, TaskTry(NAME, try_id, number), newest=1)
    assert name_of_newest(database) == last.name
    assert name_of_newest(database, NAME._replace(map_index=0)) is None


def test_try_that_was_replaced_stores_no_journal_beside_that_of_the_newer_one(database: Database) -> None:
    replaced = TaskJournal(database, FIRST)
    newer = written(database, SECOND)
    with pytest.raises(TryReplacedError):
        replaced.set("key", [1])
    assert name_of_newest(database) == newer.name


def test_task_instances_are_listed_newest_first_and_filtered(database: Database) -> None:
    for task_id in ("a", "b"):
        written(database, TaskTry(NAME._replace(task_id=task_id), FIRST.try_id, 1))
    assert [name.task_id for name in list_task_instances(database, {"dag_id": "offers"})] == ["b", "a"]
    assert list_task_instances(database, {"dag_id": "other"}) == []


def test_forgotten_journal_is_gone(database: Database) -> None:
    first = written(database)
    forget_journals(database, NAME)
    assert not TaskJournal(database, SECOND, first.name).open()
    with pytest.raises(TryReplacedError):
        first.set("key", 2)


def test_pruning_deletes_journals_that_no_try_has_opened_since(database: Database) -> None:
    first = written(database)
    now = datetime.now(UTC)
    assert prune_journals(database, now - timedelta(hours=1)) == 0
    assert first.get("key") == [1]
    assert prune_journals(database, now + timedelta(hours=1)) == 1
    assert newest_journal(database, NAME) is None


def test_journal_that_a_later_try_opened_is_not_pruned(database: Database) -> None:
    neighbour = NAME._replace(map_index=0)
    first = written(database)
    written(database, replace(FIRST, instance=neighbour))
    now = datetime.now(UTC)
    long_ago = update(task_journals).values(opened_at=now - timedelta(days=2))
    database.write(lambda connection: connection.execute(long_ago))
    TaskJournal(database, SECOND, first.name).open()
    assert prune_journals(database, now - timedelta(days=1)) == 1
    assert (name_of_newest(database), name_of_newest(database, neighbour)) == (first.name, None)
