"""The journals of task instances in this database, where ``[cpaas] journal`` is ``database``.

A journal has a name of its own, which the task state stores. Airflow 3.4 drops the task state in a clear. Then the
journal that the database stored last for the task instance is its journal.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, NamedTuple
from uuid import UUID

from msgspec import Struct
from sqlalchemy import Connection, delete, func, insert, select, update

from cpaas_provider.database.database import Database
from cpaas_provider.database.errors import LeaseLostError, TryReplacedError
from cpaas_provider.database.leases import LeasedState
from cpaas_provider.database.schema.campaigns import campaign_values, campaigns, task_journals

_PREFIX = "task/"
WRITES = "cpaas_writes"
"""Under this key a journal counts its writes, so that an older copy of the database is noticed."""

_BATCH_ROWS = 500


class TaskInstanceName(NamedTuple):
    """What names a task instance in all of its tries.

    :param map_index: the map index, or the iteration of a loop; -1 if the task is not mapped
    :param region: Airflow's id of the loop or mapped task, see ``region_name``
    """

    dag_id: str
    run_id: str
    task_id: str
    map_index: int
    region: str = ""

    @property
    def key(self) -> str:
        """A short name, the same for the same task instance."""
        return sha256(json.dumps(self).encode()).hexdigest()


def region_name(region_id: UUID | None) -> str:
    """Return Airflow's id of a loop or mapped task as text; empty for any other task, and before Airflow 3.4."""
    return str(region_id) if region_id is not None and region_id.int else ""


class TaskTry(Struct, frozen=True):
    """A try that opens a journal.

    :param try_id: Airflow's id of the task instance in this try
    :param number: the number of the try, from 1. The number of a newer try of the same run is greater
    """

    instance: TaskInstanceName
    try_id: str
    number: int


class TaskJournal:
    """The journal of a task instance, opened by one try. A newer try that opens it ends this one.

    :param name: the name of the journal; ``None`` for a new one, which the first write creates
    :param newest: the number of the newest journal of the task instance, as the try has read it; 0 without one. A new
        journal is stored only if there is no newer one
    """

    def __init__(self, database: Database, opened_by: TaskTry, name: str | None = None, *, newest: int = 0) -> None:
        self._database = database
        self._opened_by = opened_by
        self.name = name or f"{_PREFIX}{secrets.token_hex(16)}"
        self._newest = newest
        self._is_open = False
        self.writes = 0
        """How often the journal was written, in all tries."""
        self._state = LeasedState(database, self.name, f"try {opened_by.try_id}", is_exclusive=False)

    def open(self) -> bool:
        """Open a stored journal for this try. Return whether it is stored.

        :raises TryReplacedError: when a newer try has opened it
        :raises DatabaseError: when the database cannot be used
        """
        self._is_open = self._database.write(self._open)
        if self._is_open:
            self.writes = int(self._state.get(WRITES) or 0)
        return self._is_open

    def get(self, key: str) -> Any:
        """Return what is stored under a key, or ``None``.

        :raises DatabaseError: when the database cannot be read
        """
        return self._state.get(key) if self._is_open else None

    def set(self, key: str, value: Any) -> None:
        """Store JSON durably. The first write of a new journal creates it.

        :raises TryReplacedError: when a newer try has opened the journal; nothing was stored
        :raises DatabaseError: when the database cannot be written
        """
        try:
            if not self._is_open:
                self._database.write(self._create)
                self._is_open = True
            self._state.set_all({key: value, WRITES: self.writes + 1})
        except LeaseLostError:
            raise _replaced(self._opened_by) from None
        self.writes += 1

    def delete(self, key: str) -> None:
        """Remove a key, if it is stored.

        :raises TryReplacedError: when a newer try has opened the journal
        :raises DatabaseError: when the database cannot be written
        """
        if not self._is_open:
            return
        try:
            self._state.delete(key)
        except LeaseLostError:
            raise _replaced(self._opened_by) from None

    def _open(self, connection: Connection) -> bool:
        mine = task_journals.c.journal == self.name
        columns = task_journals.c.try_number, task_journals.c.try_id
        newest = connection.execute(select(*columns).where(mine).with_for_update()).one_or_none()
        if newest is None:
            return False
        if tuple(newest) > (self._opened_by.number, self._opened_by.try_id):
            raise _replaced(self._opened_by)
        connection.execute(update(task_journals).where(mine).values(self._of_this_try()))
        self._state.acquire_within(connection)
        return True

    def _create(self, connection: Connection) -> None:
        instance, table = self._opened_by.instance, task_journals.c
        newest = connection.scalar(select(func.max(table.number)).where(table.task_instance == instance.key)) or 0
        if newest > self._newest:
            raise _replaced(self._opened_by)
        self._state.acquire_within(connection)
        number = {"number": newest + 1}
        names = {name: getattr(instance, name) for name in ("dag_id", "run_id", "task_id", "map_index")}
        values = {"journal": self.name, "task_instance": instance.key, **number, **names, **self._of_this_try()}
        connection.execute(insert(task_journals).values(values))

    def _of_this_try(self) -> dict[str, Any]:
        opened_by = self._opened_by
        return {"try_id": opened_by.try_id, "try_number": opened_by.number, "opened_at": datetime.now(UTC)}


class NewestJournal(NamedTuple):
    """The journal of a task instance that this database stored last.

    :param number: counts the journals of the task instance, from 1
    :param try_number: the number of the newest try that opened it. A try with a smaller number is of another run: the
        run of the journal was deleted
    """

    name: str
    number: int
    try_number: int


def newest_journal(database: Database, instance: TaskInstanceName) -> NewestJournal | None:
    """Return the newest journal of a task instance; ``None`` if it has none.

    :raises DatabaseError: when the database cannot be read
    """
    table = task_journals.c
    query = select(table.journal, table.number, table.try_number).where(table.task_instance == instance.key)
    with database.connect() as connection:
        newest = connection.execute(query.order_by(table.number.desc()).limit(1)).one_or_none()
    return None if newest is None else NewestJournal(*newest)


def list_task_instances(database: Database, asked: Mapping[str, str | None]) -> list[TaskInstanceName]:
    """Return the task instances that have a journal, newest first.

    :param asked: ``dag_id``, ``run_id`` and ``task_id``, where they are given
    :raises DatabaseError: when the database cannot be read
    """
    table = task_journals.c
    wanted = [table[name] == value for name, value in asked.items() if value]
    query = select(table.dag_id, table.run_id, table.task_id, table.map_index).where(*wanted)
    with database.connect() as connection:
        rows = connection.execute(query.order_by(table.opened_at.desc())).all()
    return [TaskInstanceName(*row) for row in rows]


def forget_journals(database: Database, instance: TaskInstanceName) -> None:
    """Delete the journals of a task instance.

    :raises DatabaseError: when the database cannot be used
    """
    mine = select(task_journals.c.journal).where(task_journals.c.task_instance == instance.key)
    database.write(lambda connection: _delete(connection, connection.scalars(mine).all()))


def prune_journals(database: Database, before: datetime) -> int:
    """Delete journals that no try has opened since a moment. Return their number.

    :raises DatabaseError: when the database cannot be used; earlier batches stay deleted
    """
    deleted = 0
    while number := database.write(lambda connection: _prune(connection, before)):
        deleted += number
    return deleted


def _prune(connection: Connection, before: datetime) -> int:
    old = select(task_journals.c.journal).where(task_journals.c.opened_at < before).limit(_BATCH_ROWS)
    names = connection.scalars(old).all()
    _delete(connection, names)
    return len(names)


def _delete(connection: Connection, names: Sequence[str]) -> None:
    for table, column in (
        (task_journals, task_journals.c.journal),
        (campaign_values, campaign_values.c.campaign),
        (campaigns, campaigns.c.campaign),
    ):
        connection.execute(delete(table).where(column.in_(names)))


def _replaced(opened_by: TaskTry) -> TryReplacedError:
    return TryReplacedError(
        f"A newer try of this task instance has opened its journal, so try {opened_by.number} may no longer write it. "
        "Nothing was stored."
    )
