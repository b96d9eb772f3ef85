"""The task's own state as the place of its journal."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow.sdk import Context

    from cpaas_provider.sending.journal.store import StateStore


def open_state_store(context: Context) -> StateStore | None:
    """Return the task state store of a task instance, stored until its run is deleted; ``None`` outside of a task.

    It uses the API server even if the workers have a state backend of their own. In such a backend a lost object looks
    like one that was never written, and a try that was replaced can still write.
    """
    from airflow.sdk.configuration import conf

    accessor = context.get("task_state_store")
    if accessor is None:
        return None
    if conf.get("workers", "state_store_backend", fallback=""):
        instance: Any = context["ti"]
        from cpaas_provider.tasks.airflow.supervisor import SupervisorStateStore

        return SupervisorStateStore(instance.id)
    return TaskStateStore(accessor)


class TaskStateStore:
    """A task's state as Airflow offers it."""

    def __init__(self, accessor: Any) -> None:
        self._accessor = accessor
        # The journal writes in a thread of its own, and dag.test() mixes up requests of two threads.
        self._one_at_a_time = threading.Lock()

    def get(self, key: str) -> Any:
        """Return what is stored, or ``None``."""
        with self._one_at_a_time:
            return self._accessor.get(key)

    def set(self, key: str, value: Any) -> None:
        """Store for good, before returning."""
        from airflow.sdk.execution_time.context import NEVER_EXPIRE

        with self._one_at_a_time:
            self._accessor.set(key, value, retention=NEVER_EXPIRE)

    def delete(self, key: str) -> None:
        """Remove what is stored under a key, if anything is."""
        with self._one_at_a_time:
            self._accessor.delete(key)
