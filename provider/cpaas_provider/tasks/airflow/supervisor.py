"""The task state store through the supervisor's messages, past a backend that the workers have configured.

Airflow has no public way for that. This module uses its private ``task_runner.SUPERVISOR_COMMS`` and the messages
``GetTaskStateStore``, ``SetTaskStateStore`` and ``DeleteTaskStateStore``. ``tests/airflow/test_private_parts.py``
fails when one of them changes.
"""

from __future__ import annotations

from typing import Any

from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType
from airflow.sdk.execution_time import comms, task_runner


class SupervisorStateStore:
    """A task's state at the API server, past the workers' own backend.

    :param instance_id: the task instance's id in this try
    """

    def __init__(self, instance_id: Any) -> None:
        self._instance_id = instance_id

    def get(self, key: str) -> Any:
        """Return what is stored, or ``None``."""
        answer = task_runner.SUPERVISOR_COMMS.send(comms.GetTaskStateStore(ti_id=self._instance_id, key=key))
        if isinstance(answer, comms.ErrorResponse) and answer.error != ErrorType.TASK_STORE_NOT_FOUND:
            raise AirflowRuntimeError(answer)
        return answer.value if isinstance(answer, comms.TaskStateStoreResult) else None

    def set(self, key: str, value: Any) -> None:
        """Store for good, before returning."""
        message = comms.SetTaskStateStore(ti_id=self._instance_id, key=key, value=value, expires_at=None)
        task_runner.SUPERVISOR_COMMS.send(message)

    def delete(self, key: str) -> None:
        """Remove what is stored under a key, if anything is."""
        task_runner.SUPERVISOR_COMMS.send(comms.DeleteTaskStateStore(ti_id=self._instance_id, key=key))
