"""The task's own state as the place of its journal."""

from __future__ import annotations

from typing import Any


class TaskState:
    """A task's own state as the store of its journal: kept until the run is deleted."""

    def __init__(self, accessor: Any) -> None:
        self._accessor = accessor

    def get(self, key: str) -> Any:
        """Return what is stored, or ``None``."""
        return self._accessor.get(key)

    def set(self, key: str, value: Any) -> None:
        """Store for good, before returning."""
        from airflow.sdk.execution_time.context import NEVER_EXPIRE

        self._accessor.set(key, value, retention=NEVER_EXPIRE)
