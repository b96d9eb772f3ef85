"""Airflow's states of task instances, from its own database."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy
import sqlalchemy.orm
from airflow.models.taskinstance import TaskInstance
from airflow.utils.session import create_session

from cpaas_provider.delivery.campaigns import Place
from cpaas_provider.tasks.airflow.task_states import read_task_states
from tests.airflow.harness.campaigns import rows, sms
from tests.airflow.harness.task_runner import TaskRunner, fault
from tests.airflow.harness.tries import Run


def place_of(run: Run) -> Place:
    return run.dag.dag_id, run.run_id, "campaign", -1


def retried(task_runner: TaskRunner, **arguments: Any) -> Run:
    """Return a run whose campaign failed and is tried again."""
    task_runner.sandbox.control(*fault("send_sms", "unavailable", retry_after=0))
    run = sms(task_runner, rows(2), **arguments)
    assert run.run_try().state == "up_for_retry"
    task_runner.sandbox.control("DELETE", "faults")
    return run


def test_state_of_a_task_that_is_tried_again_has_the_time_of_the_next_try(task_runner: TaskRunner) -> None:
    run = retried(task_runner, retry_delay=timedelta(minutes=7))
    found = read_task_states([place_of(run)])[place_of(run)]
    with create_session() as session:
        [end_date] = session.scalars(sqlalchemy.select(TaskInstance.end_date).where(TaskInstance.run_id == run.run_id))
    assert (found.state, found.word, found.retry_at) == (
        "up_for_retry",
        "up for retry",
        end_date + timedelta(minutes=7),
    )
    run.run_try()
    assert read_task_states([place_of(run)])[place_of(run)].state == "success"


def test_states_of_many_tasks_take_one_query(task_runner: TaskRunner) -> None:
    runs = [retried(task_runner), retried(task_runner)]
    statements: list[str] = []
    with create_session() as session:
        engine = session.get_bind()

    def listen(_: Any, __: Any, statement: str, *___: Any) -> None:
        if statement.lstrip().startswith("SELECT"):
            statements.append(statement)

    sqlalchemy.event.listen(engine, "before_cursor_execute", listen)
    try:
        found = read_task_states([*map(place_of, runs), ("no", "such", "task", -1)])
    finally:
        sqlalchemy.event.remove(engine, "before_cursor_execute", listen)
    assert {state.state for state in found.values()} == {"up_for_retry"}
    assert len(found) == 2
    assert len(statements) == 1


def test_page_is_shown_if_airflows_database_cannot_be_read(
    task_runner: TaskRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = sqlalchemy.create_engine("sqlite:////proc/nowhere/airflow.db")
    monkeypatch.setattr(
        "airflow.utils.session.create_session", lambda **_: sqlalchemy.orm.Session(broken), raising=True
    )
    assert read_task_states([("dag", "run", "task", -1)]) == {}
