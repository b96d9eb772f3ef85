"""Writes to the task state that get no response, and are carried out later."""

from __future__ import annotations

import json
from typing import Any

import pytest
from airflow.models.taskinstance import TaskInstance
from airflow.sdk.execution_time.context import TaskStateStoreAccessor
from airflow.state import TaskScope, get_state_backend
from airflow.utils.session import create_session
from sqlalchemy import select

from tests.airflow.harness.tries import Run


class LateWrites:
    """Leaves writes to the task state unanswered, until ``are_answered`` is set."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.writes: list[tuple[str, Any]] = []
        self.are_answered = False
        write = TaskStateStoreAccessor.set

        def write_or_keep(accessor: TaskStateStoreAccessor, key: str, value: Any, **options: Any) -> None:
            if self.are_answered:
                return write(accessor, key, value, **options)
            self.writes.append((key, value))
            raise ConnectionError("no response")

        patch.setattr(TaskStateStoreAccessor, "set", write_or_keep)

    def arrive(self, run: Run) -> None:
        """Carry out the writes, as the API server does."""
        with create_session() as session:
            instance = session.scalars(select(TaskInstance).where(TaskInstance.run_id == run.run_id)).one()
            scope = TaskScope(instance.dag_id, instance.run_id, instance.task_id)
            for key, value in self.writes:
                get_state_backend().set(scope, key, json.dumps(value), expires_at=None, session=session)
