"""A person's answer to a task that waits for one, as Airflow's API and scheduler hand it to the task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow.models.hitl import HITLDetail, HITLUser
from airflow.models.taskinstance import TaskInstance
from airflow.models.trigger import handle_event_submit
from airflow.sdk import timezone
from airflow.triggers.base import TriggerEvent
from airflow.utils.session import create_session
from sqlalchemy import select

from tests.airflow.harness.running import of_task_instance
from tests.airflow.harness.tries import Run


def _waiting(session: Any, run: Run, task_id: str, map_index: int) -> tuple[TaskInstance, HITLDetail]:
    where = of_task_instance(TaskInstance, run.dag.dag_id, run.run_id, task_id, map_index)
    instance = session.scalar(select(TaskInstance).where(*where))
    assert instance.state == "awaiting_input", instance.state
    return instance, session.scalar(select(HITLDetail).where(HITLDetail.ti_id == instance.id))


def form(run: Run, task_id: str, map_index: int = -1) -> str:
    """Return what a person reads: subject and body."""
    with create_session() as session:
        detail = _waiting(session, run, task_id, map_index)[1]
        assert detail.response_received is False
        return f"{detail.subject}\n{detail.body}"


def answer(run: Run, task_id: str, *options: str, map_index: int = -1) -> Run:
    """Have a person choose options, as Airflow's API records it."""
    with create_session() as session:
        instance, detail = _waiting(session, run, task_id, map_index)
        assert set(options) <= set(detail.options)
        detail.responded_by = HITLUser(id="1", name="admin")
        detail.responded_at = timezone.utcnow()
        chosen: Sequence[str] = list(options)
        detail.chosen_options = list(chosen)
        handle_event_submit(TriggerEvent(detail.as_resume_event_payload()), task_instance=instance, session=session)
    return run


def expire(run: Run, task_id: str, map_index: int = -1) -> Run:
    """Let the time for an answer pass, as the scheduler does where there is no default."""
    with create_session() as session:
        instance, _ = _waiting(session, run, task_id, map_index)
        assert instance.trigger_timeout is not None
        event = {"error": "The response timeout has passed.", "error_type": "timeout"}
        handle_event_submit(TriggerEvent(event), task_instance=instance, session=session)
    return run


def lose_process(run: Run, task_id: str) -> Run:
    """Have the scheduler find that a task's process is gone, so that the next try begins from the start."""
    with create_session() as session:
        where = of_task_instance(TaskInstance, run.dag.dag_id, run.run_id, task_id, -1)
        instance = session.scalar(select(TaskInstance).where(*where))
        instance.prepare_db_for_next_try(session)
        instance.clear_next_method_args()
        instance.state = "up_for_retry"
    return run
