"""Writes of the task's state that are repeated after newer ones, in real task instances."""

from __future__ import annotations

import contextlib
import gc
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow.models.task_state_store import TaskStateStoreModel
from airflow.sdk import get_current_context, task
from airflow.sdk.exceptions import AirflowException
from airflow.utils.session import create_session

from cpaas_provider.hooks.cpaas import CpaasHook
from cpaas_provider.sending.journal import log
from cpaas_provider.tasks.airflow.store import TaskStateStore, open_task_state
from tests.airflow.harness.campaigns import clear_faults, count_messages, digits, limit_batches, rows, sms
from tests.airflow.harness.kinds import SMS
from tests.airflow.harness.late_writes import LateWrites
from tests.airflow.harness.task_runner import TaskRunner, fault, forget_campaign_database
from tests.airflow.harness.tries import Run, new_dag


class Copies:
    """The writes of the journal's first try, to be carried out again."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.kept: list[tuple[str, str]] = []
        store = TaskStateStore.set

        def keep(state: TaskStateStore, key: str, value: Any) -> None:
            store(state, key, value)
            with create_session() as session:
                newest = session.query(TaskStateStoreModel).filter_by(key=key)
                self.kept.append((key, max(newest, key=lambda row: row.id).value))

        patch.setattr(TaskStateStore, "set", keep)

    def carry_out(self, run: Run, which: int) -> None:
        """Have a copy of a write arrive late, as the server would store it."""
        key, value = self.kept[which]
        with create_session() as session:
            row = session.query(TaskStateStoreModel).filter_by(run_id=run.run_id, key=key).one_or_none()
            if row is not None:
                row.value = value


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch) -> Copies:
    return Copies(monkeypatch)


@pytest.mark.parametrize("which", [0, 1, 3, -2])
def test_cleared_campaign_sends_to_no_recipient_twice(task_runner: TaskRunner, copies: Copies, which: int) -> None:
    limit_batches(task_runner)
    task_runner.sandbox.control(*fault("send_sms", "unauthorized", after=4))
    run = sms(task_runner, rows(6))
    assert run.run_try().state == "failed"
    clear_faults(task_runner)
    copies.carry_out(run, which)
    assert (run.clear().run_try().state, count_messages(task_runner)) == ("success", Counter(digits(6)))


@pytest.mark.parametrize("which", [0, 1, 2])
def test_single_send_of_several_tries_is_not_made_again(task_runner: TaskRunner, copies: Copies, which: int) -> None:
    run = SMS.run(task_runner)
    task_runner.sandbox.control(*fault("send_sms", "rate_limit", times=5, retry_after=0))
    assert [one.state for one in run.run_to_end()] == ["up_for_retry", "success"]
    copies.carry_out(run, which)
    run.clear().run_try()
    assert len(SMS.inbox_items(task_runner)) == 1


@pytest.mark.parametrize("backend", ["", "no.such.Backend"], ids=["by the accessor", "past a backend"])
def test_parts_that_were_put_together_are_removed(
    task_runner: TaskRunner, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    monkeypatch.setenv("AIRFLOW__WORKERS__STATE_STORE_BACKEND", backend)
    monkeypatch.setattr(log, "MOST_PARTS", 4)
    limit_batches(task_runner)
    run = sms(task_runner, rows(10))
    assert run.run_try().state == "success"
    keys = [row.key for row in run.state_rows() if row.key.startswith("cpaas_journal")]
    whole = [key for key in keys if key.count(".") == 1]
    assert len(whole) >= 2
    # The first part tells that there is a journal; the last segment's are not put together yet.
    assert len(keys) <= len(whole) + 1 + 3
    assert (run.clear().run_try().state, count_messages(task_runner)) == ("success", Counter(digits(10)))


@pytest.fixture(params=["task_state", "database"])
def stored_in(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Where the journal is."""
    forget_campaign_database()
    monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", f"sqlite:///{tmp_path}/cpaas.db")
    monkeypatch.setenv("AIRFLOW__CPAAS__JOURNAL", request.param)
    yield
    forget_campaign_database()


@pytest.mark.usefixtures("stored_in")
def test_second_client_of_a_try_sends_once_although_the_writes_of_the_first_arrive_late(
    task_runner: TaskRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = LateWrites(monkeypatch)
    first, second = (f"+{recipient}" for recipient in digits(2))

    @task(task_id="send")
    def send() -> None:
        if not late.are_answered:
            with contextlib.suppress(AirflowException), CpaasHook().get_idempotent_client() as client:
                client.send_sms(first, "Hello")
            gc.collect()
            late.are_answered = True
        with CpaasHook().get_idempotent_client() as client:
            client.send_sms([second, first], "Hello")

    with new_dag() as dag:
        send()
    run = Run(task_runner, dag)
    ended = run.run_try()
    assert (ended.state, count_messages(task_runner)) == ("success", Counter(digits(2))), ended.error
    late.arrive(run)
    assert run.clear().run_try().state == "success"
    assert count_messages(task_runner) == Counter(digits(2))


def test_failed_write_is_repeated_before_its_key_is_read(
    task_runner: TaskRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = LateWrites(monkeypatch)

    @task(task_id="reads")
    def reads() -> list[Any]:
        context = get_current_context()
        with contextlib.suppress(ConnectionError):
            open_task_state(context).set("cpaas_key", "first")
        late.are_answered = True
        return [open_task_state(context).get(key) for key in ("cpaas_key", "cpaas_other")]

    with new_dag() as dag:
        reads()
    run = Run(task_runner, dag)
    assert run.run_try().result == ["first", None]
    assert [(row.key, json.loads(row.value)) for row in run.state_rows()] == [("cpaas_key", "first")]
