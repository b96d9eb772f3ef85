"""What Airflow does only through the supervisor's messages: task state past the workers' backend, and a form.

Airflow has no public way for that. This module uses its private ``task_runner.SUPERVISOR_COMMS`` and the messages
``GetTaskStateStore``, ``SetTaskStateStore``, ``DeleteTaskStateStore`` and ``CreateHITLDetailPayload``.
``tests/airflow/test_private_parts.py`` fails when one of them changes.
"""

from __future__ import annotations

from collections.abc import Sequence
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

    def set(self, key: str, value: Any, *, retention: object) -> None:
        """Store for good, before returning. The retention has no effect."""
        message = comms.SetTaskStateStore(ti_id=self._instance_id, key=key, value=value, expires_at=None)
        task_runner.SUPERVISOR_COMMS.send(message)

    def delete(self, key: str) -> None:
        """Remove what is stored under a key, if anything is."""
        task_runner.SUPERVISOR_COMMS.send(comms.DeleteTaskStateStore(ti_id=self._instance_id, key=key))


def show_form(instance_id: Any, subject: str, body: str, options: Sequence[str]) -> tuple[str, str | None]:
    """Show a form to a user, under Required Actions in Airflow's UI, and return the subject and body that it has.

    Airflow retains the first form of a task instance. If there is one, it removes the
    response and returns the old texts.
    """
    # Of its own function, airflow.sdk.execution_time.hitl, the texts cannot be had.
    message = comms.CreateHITLDetailPayload(
        ti_id=instance_id, options=list(options), subject=subject, body=body, params={}, assigned_users=[]
    )
    shown = task_runner.SUPERVISOR_COMMS.send(message)
    if not isinstance(shown, comms.HITLDetailRequestResult):
        raise TypeError("Airflow returned no form.")
    return shown.subject, shown.body
