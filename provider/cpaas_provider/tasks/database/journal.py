"""A task's journal in the provider's database, where ``[cpaas] journal`` is ``database``.

It survives a clear that drops the task state. The task state has the name of the journal and the number of its writes:
at the begin and the end of the newest try, and every ten seconds. So another database, or an older copy, is noticed.
"""

from __future__ import annotations

import contextlib
import logging
import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from cpaas_provider.database.default_file import spreading_executor
from cpaas_provider.database.errors import DatabaseError, TryReplacedError
from cpaas_provider.sending.journal.model import CURRENT_KEY
from cpaas_provider.sending.journal.segments import newest_series, series_key
from cpaas_provider.sending.journal.store import JournalMarker, storage_error
from cpaas_provider.tasks.database.shared_database import check_database
from cpaas_provider.tasks.errors import PreflightError

if TYPE_CHECKING:
    from airflow.sdk import Context

    from cpaas_provider.database.database import Database
    from cpaas_provider.database.task_journals import TaskInstanceName, TaskJournal, TaskTry
    from cpaas_provider.sending.journal.store import StateStore, TryInfo

log = logging.getLogger(__name__)

MARK_INTERVAL = 10.0
"""Seconds between two writes to the task state while a try writes its journal in the database."""


@contextlib.contextmanager
def open_task_journal(
    context: Context,
    task_state: StateStore,
    tries: TryInfo,
    open_database: Callable[[], AbstractContextManager[Database]] | None,
) -> Iterator[StateStore]:
    """Return the store of a task's journal: the database, or the task state if the journal was begun there.

    :param tries: what Airflow states about this try
    :param open_database: opens the provider's database; ``None`` to open one of its own
    :raises PreflightError: when the database cannot be used, is not shared by all workers, or lacks the journal
    :raises JournalUnavailableError: when the task state cannot be read
    :raises TrySupersededError: when a newer try has opened the journal
    """
    try:
        newest = newest_series(task_state.get, tries.number)
    except Exception as error:  # noqa: BLE001 - Airflow raises several kinds
        raise storage_error(error, "read, so nothing was sent") from None
    marker = JournalMarker.of(newest[1]) if newest else None
    if newest is not None and marker is None:
        log.info("The journal of this task instance was begun in the task state, and continues there.")
        yield task_state
        return
    if executor := spreading_executor():
        raise PreflightError(
            f"[cpaas] journal is database, but [cpaas] database is not set. The tasks of {executor} run on several "
            "machines, each with a database of its own. Nothing was sent. Configure a database that all workers reach, "
            "or set [cpaas] journal to task_state.",
            permanent=True,
        )
    from cpaas_provider.database import database as provider_database

    with contextlib.ExitStack() as stack:
        try:
            database = stack.enter_context((open_database or provider_database.open_database)())
            check_database(database)
            journal = _find(database, _task_try(context, tries), tries, marker)
        except TryReplacedError as error:
            raise storage_error(error, "opened, so nothing was sent") from None
        except DatabaseError as error:
            raise PreflightError(f"{error} Nothing was sent.", permanent=False) from None
        store = MarkedJournal(task_state, journal, series_key(tries.number - 1))
        stack.callback(store.mark_end)
        yield store


def _task_try(context: Context, tries: TryInfo) -> TaskTry:
    from cpaas_provider.database.task_journals import TaskInstanceName, TaskTry, region_name

    instance: Any = context["ti"]
    index = instance.region_index if context.get("loop") else instance.map_index
    region = region_name(getattr(instance, "region_id", None))
    name = TaskInstanceName(instance.dag_id, instance.run_id, instance.task_id, -1 if index is None else index, region)
    return TaskTry(name, str(instance.id), tries.number)


def _find(database: Database, opened_by: TaskTry, tries: TryInfo, marker: JournalMarker | None) -> TaskJournal:
    from cpaas_provider.database.task_journals import TaskJournal, newest_journal

    name, newest = (marker.name, None) if marker else (None, newest_journal(database, opened_by.instance))
    if newest and tries.after_clear and newest.try_number <= tries.number:
        # Airflow 3.4 drops the task state in a clear. Otherwise an earlier journal is of a run that was deleted.
        name = newest.name
    journal = TaskJournal(database, opened_by, name, newest=newest.number if newest else 0)
    if name is not None and (not journal.open() or (marker and journal.writes < marker.writes)):
        raise _lost(database, opened_by.instance)
    return journal


class MarkedJournal:
    """A journal in the database, with a marker in the task state.

    :param marker_key: the key of the marker, of this try's own: a late write of an earlier try replaces nothing
    """

    def __init__(self, task_state: StateStore, journal: TaskJournal, marker_key: str) -> None:
        self._task_state = task_state
        self._journal = journal
        self._marker_key = marker_key
        self._marked: int | None = None
        self._next_mark = 0.0

    def get(self, key: str) -> Any:
        """Return what is stored, or ``None``."""
        return self._journal.get(key)

    def set(self, key: str, value: Any) -> None:
        """Store for good, before returning: in the database, and at times the number of writes in the task state.

        Airflow refuses a write to the task state if it has replaced the try. So a try that was replaced stops within
        ``MARK_INTERVAL``, also if the new one has not begun.
        """
        self._journal.set(key, value)
        if self._marked is None or key == CURRENT_KEY or time.monotonic() >= self._next_mark:
            self._mark()

    def delete(self, key: str) -> None:
        """Remove what is stored under a key, if anything is."""
        self._journal.delete(key)

    def mark_end(self) -> None:
        """Record the number of writes, if this try has written. A failure is logged, as the try has ended already."""
        if self._marked in (None, self._journal.writes):
            return
        try:
            self._mark()
        except Exception as error:  # noqa: BLE001 - Airflow raises several kinds
            log.warning(
                "The end of this try could not be recorded in the task state (%s). If the database is restored from a "
                "copy of the last seconds of this try, the next try does not notice it.",
                type(error).__name__,
            )

    def _mark(self) -> None:
        self._task_state.set(self._marker_key, JournalMarker(self._journal.name, self._journal.writes).as_json())
        self._marked = self._journal.writes
        self._next_mark = time.monotonic() + MARK_INTERVAL


def _lost(database: Database, instance: TaskInstanceName) -> PreflightError:
    address = shlex.join(instance[:3]) + (f" --map-index {instance.map_index}" if instance.map_index >= 0 else "")
    return PreflightError(
        f"The database {database.redacted_url} lacks the journal of this task, or a part of it. It is another "
        "database, it was restored from an older copy, or `airflow cpaas db prune` deleted the journal. Nothing was "
        "sent. Set [cpaas] database to the database that has the journal. If it is lost for good, run the "
        "following and then clear the task. The outcome of all earlier requests is then unknown: airflow cpaas journal "
        f"forget {address}",
        permanent=True,
    )
