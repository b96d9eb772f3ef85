"""The task's own state, which has the task's journal unless ``[cpaas] journal`` is ``database``."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from cpaas_provider.tasks.airflow.locks import ONE_AT_A_TIME
from cpaas_provider.tasks.errors import PreflightError

if TYPE_CHECKING:
    from uuid import UUID

    from airflow.sdk import Context

    from cpaas_provider.database.database import Database
    from cpaas_provider.sending.journal.store import StateStore, TryInfo

_TASK_STATE, _DATABASE = "task_state", "database"


@contextlib.contextmanager
def open_journal_store(
    context: Context, tries: TryInfo, open_database: Callable[[], AbstractContextManager[Database]] | None = None
) -> Iterator[StateStore | None]:
    """Return the store of the journal of a task instance; ``None`` outside of a task.

    :param tries: what Airflow states about this try
    :param open_database: opens the provider's database, if it is needed
    :raises PreflightError: when ``[cpaas] journal`` is neither ``task_state`` nor ``database``, or the database cannot
        be used
    :raises SendingError: when the task state cannot be read, or a newer try has opened the journal
    """
    from airflow.sdk.configuration import conf

    task_state = open_task_state(context)
    stored_in = (conf.get("cpaas", "journal", fallback=None) or _TASK_STATE).strip()
    if stored_in not in (_TASK_STATE, _DATABASE):
        raise PreflightError(
            f"[cpaas] journal must be {_TASK_STATE} or {_DATABASE}. Nothing was sent. Correct Airflow's configuration.",
            permanent=True,
        )
    if task_state is None or stored_in == _TASK_STATE:
        yield task_state
        return
    from cpaas_provider.tasks.database.journal import open_task_journal

    with open_task_journal(context, task_state, tries, open_database) as store:
        yield store


def open_task_state(context: Context) -> StateStore | None:
    """Return the task state store of a task instance, stored until its run is deleted; ``None`` outside of a task.

    It uses the API server even if the workers have a state backend of their own. In such a backend a lost object looks
    like one that was never written, and a try that was replaced can still write.
    """
    from airflow.sdk.configuration import conf

    accessor: Any = context.get("task_state_store")
    if accessor is None:
        return None
    instance: Any = context["ti"]
    if conf.get("workers", "state_store_backend", fallback=""):
        from cpaas_provider.tasks.airflow.supervisor import SupervisorStateStore

        accessor = SupervisorStateStore(instance.id)
    return TaskStateStore(accessor, instance.id)


_unanswered: dict[tuple[UUID, str], Any] = {}
"""The last write of a key, by task instance, if it failed. A process has few: after a failure a try ends."""


class TaskStateStore:
    """A task's state as Airflow offers it. A failed write is made again before its key is read.

    A write that got no response may still be carried out. If this try read that nothing is stored, it would store
    another value, which the late write then replaces.

    :param accessor: Airflow's access to the state
    :param instance_id: the task instance's id in this try
    """

    def __init__(self, accessor: Any, instance_id: UUID) -> None:
        self._accessor = accessor
        self._instance_id = instance_id

    def get(self, key: str) -> Any:
        """Return what is stored, or ``None``."""
        if (write := (self._instance_id, key)) in _unanswered:
            self.set(key, _unanswered[write])
        with ONE_AT_A_TIME:
            return self._accessor.get(key)

    def set(self, key: str, value: Any) -> None:
        """Store for good, before returning."""
        from airflow.sdk.execution_time.context import NEVER_EXPIRE

        write = self._instance_id, key
        _unanswered[write] = value
        with ONE_AT_A_TIME:
            self._accessor.set(key, value, retention=NEVER_EXPIRE)
        _unanswered.pop(write, None)

    def delete(self, key: str) -> None:
        """Remove what is stored under a key, if anything is."""
        with ONE_AT_A_TIME:
            self._accessor.delete(key)
