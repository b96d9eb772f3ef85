"""A task that failed before it could send, and is then cleared: it has nothing to resolve, and sends."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from airflow.models.taskinstance import TaskInstance
from airflow.providers.standard.operators.python import PythonOperator
from airflow.sdk import BaseOperator, task
from airflow.sdk.exceptions import AirflowTaskTimeout
from airflow.utils.session import create_session
from sqlalchemy import select

from cpaas_provider.hooks.cpaas import CpaasHook
from cpaas_provider.operators.sms import SendSmsOperator, SmsCampaignOperator
from cpaas_provider.sending.journal.model import NOTHING_SENT_KEY
from cpaas_provider.sending.requests.message import MessageRequest
from cpaas_provider.sources.base import Table
from cpaas_provider.tasks.airflow.task_listener import opens_client
from tests.airflow.harness.campaigns import TEXT, rows
from tests.airflow.harness.kinds import ROW, SENDS, SMS, Kind
from tests.airflow.harness.task_runner import TaskRunner, phone
from tests.airflow.harness.tries import Run, new_dag

EACH = pytest.mark.parametrize("kind", [*SENDS.values(), ROW], ids=lambda kind: kind.name)


class FailsFirst:
    """Code of the author that raises in the first try."""

    def __init__(self, error: type[BaseException] = RuntimeError) -> None:
        self._error = error

    def __call__(self, context: Any) -> None:
        if context["ti"].try_number == 1:
            raise self._error("the author's code failed")


def check_sends_after_clear(run: Run, sent: Callable[[], int], map_index: int = -1) -> None:
    """Check that a try fails without a request, and that the task sends once it is cleared."""
    first = run.run_try(map_index=map_index)
    assert (first.state in ("failed", "up_for_retry"), sent()) == (True, 0)
    again = run.clear(map_index=map_index).run_try(map_index=map_index)
    assert (again.state, sent(), again.error) == ("success", 1, "")


@EACH
@pytest.mark.parametrize("retries", [0, 2])
def test_raising_pre_execute_is_no_lost_journal(task_runner: TaskRunner, kind: Kind, retries: int) -> None:
    run = kind.run(task_runner, pre_execute=FailsFirst(), retries=retries)
    check_sends_after_clear(run, lambda: len(kind.inbox_items(task_runner)))


@pytest.mark.parametrize("error", [AirflowTaskTimeout, RuntimeError])
@pytest.mark.parametrize("retries", [0, 2])
@pytest.mark.parametrize(
    ("owner", "method"),
    [(SendSmsOperator, "_open_runtime"), (SendSmsOperator, "make_attempt"), (MessageRequest, "build_spec")],
    ids=["runtime", "attempt", "spec"],
)
def test_error_before_the_journal_is_written_is_no_lost_journal(
    task_runner: TaskRunner,
    monkeypatch: pytest.MonkeyPatch,
    owner: type,
    method: str,
    retries: int,
    error: type[BaseException],
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise error("failed before the journal was written")

    # With a try in hand, Airflow's listener cannot record for the operator that nothing was sent.
    run = SMS.run(task_runner, retries=retries)
    with monkeypatch.context() as patch:
        patch.setattr(owner, method, fail)
        ended = run.run_try()
    assert (ended.state, SMS.requests(task_runner)) == ("up_for_retry" if retries else "failed", 0)
    assert [row.key for row in run.state_rows()] == [NOTHING_SENT_KEY]
    again = run.clear().run_try()
    assert (again.state, len(SMS.inbox_items(task_runner)), again.error) == ("success", 1, "")


def test_process_that_exits_in_pre_execute_leaves_no_lost_journal(task_runner: TaskRunner) -> None:
    check_sends_after_clear(
        SMS.run(task_runner, pre_execute=FailsFirst(SystemExit)), lambda: len(SMS.inbox_items(task_runner))
    )


class CheckedSms(SendSmsOperator):
    """An operator of an author, whose own check raises in the first try."""

    def execute(self, context: Any) -> Any:
        FailsFirst()(context)
        return super().execute(context)


class PreparedSms(SendSmsOperator):
    """An operator of an author, whose own ``pre_execute`` raises in the first try."""

    def pre_execute(self, context: Any) -> None:
        FailsFirst()(context)


@pytest.mark.parametrize("operator", [CheckedSms, PreparedSms])
def test_raising_code_of_a_subclass_is_no_lost_journal(task_runner: TaskRunner, operator: type[BaseOperator]) -> None:
    with new_dag() as dag:
        operator(task_id="send", recipients=phone("adaeze"), content="Your parcel is here")
    check_sends_after_clear(Run(task_runner, dag), lambda: len(SMS.inbox_items(task_runner)))


@pytest.mark.parametrize("retries", [0, 2])
def test_bad_argument_of_a_mapped_operator_is_no_lost_journal(task_runner: TaskRunner, retries: int) -> None:
    run = SMS.mapped(task_runner, [{"recipients": phone("adaeze")}], on_unknown="never", retries=retries)
    first = run.run_try(map_index=0)
    assert ("on_unknown" in first.error, SMS.requests(task_runner)) == (True, 0)
    mapped = run.dag.get_task("send")
    mapped.partial_kwargs["on_unknown"] = "fail"
    assert run.clear(map_index=0).run_try(map_index=0).state == "success"
    assert len(SMS.inbox_items(task_runner)) == 1


def test_bad_argument_of_expand_kwargs_is_no_lost_journal(task_runner: TaskRunner) -> None:
    given = [{"recipients": phone("adaeze"), "unknown_timeout": "soon"}]
    run = SMS.mapped(task_runner, given)
    assert run.run_try(map_index=0).state in ("failed", "up_for_retry")
    given[0]["unknown_timeout"] = 60  # type: ignore[assignment]  # the author corrects it
    assert run.clear(map_index=0).run_try(map_index=0).state == "success"
    assert len(SMS.inbox_items(task_runner)) == 1


def test_mapped_operator_that_is_made_in_another_task_records_nothing(task_runner: TaskRunner) -> None:
    with new_dag() as dag:
        mapped = SendSmsOperator.partial(task_id="send", content="x", on_unknown="never")
        mapped.expand(recipients=[phone("adaeze")])

        @task
        def make() -> None:
            dag.get_task("send").unmap({"recipients": phone("adaeze")})

        make()
    run = Run(task_runner, dag)
    # The listener records something of a function only if no retry follows.
    ended = run.run_try("make")
    assert (ended.state, "on_unknown" in ended.error, run.state_rows()) == ("up_for_retry", True, [])


class StoppedSource:
    """A source whose reading ends the task in the first try, as a timeout of Airflow does."""

    template_fields = ()

    def __init__(self, on_read: Callable[[], object] = lambda: None) -> None:
        self.reads = 0
        self._on_read = on_read

    @contextmanager
    def open(self) -> Iterator[Table]:
        from airflow.sdk.exceptions import AirflowTaskTimeout

        from cpaas_provider.sources import ListSource

        self.reads += 1
        if self.reads == 1:
            self._on_read()
            raise AirflowTaskTimeout("timed out")
        with ListSource(rows(3)).open() as table:
            yield table

    def __str__(self) -> str:
        return "a source"

    def __deepcopy__(self, memo: Any) -> StoppedSource:
        return self

    __copy__ = lambda self: self  # noqa: E731 - Airflow copies what it renders


def test_timeout_while_the_source_is_read_is_no_lost_journal(task_runner: TaskRunner) -> None:
    with new_dag() as dag:
        SmsCampaignOperator(task_id="send", source=StoppedSource(), content=TEXT, retries=0)
    run = Run(task_runner, dag)
    assert (run.run_try().state, task_runner.sandbox.counters()["requests"].get("send_sms", 0)) == ("failed", 0)
    again = run.clear().run_try()
    assert (again.state, again.result["sent"]) == ("success", 3)


def test_marker_of_nothing_sent_is_stored_before_the_source_is_read(task_runner: TaskRunner) -> None:
    # A kill meanwhile runs nothing that could store it.
    stored: list[list[str]] = []
    with new_dag() as dag:
        source = StoppedSource(lambda: stored.append([row.key for row in run.state_rows()]))
        SmsCampaignOperator(task_id="send", source=source, content=TEXT, retries=0)
    run = Run(task_runner, dag)
    run.run_try()
    assert stored == [[NOTHING_SENT_KEY]]


def helper() -> Any:
    with CpaasHook().get_idempotent_client() as client:
        return client.send_sms(phone("adaeze"), "Your parcel is here")


def test_xcom_that_cannot_be_mapped_over_is_no_lost_journal(task_runner: TaskRunner) -> None:
    with new_dag() as dag:

        @task
        def find() -> list[str]:
            return [phone("adaeze")]

        found = find()
        SendSmsOperator.partial(task_id="send", content="Your parcel is here", retries=0).expand(recipients=found)
    run = Run(task_runner, dag)
    with create_session() as session:
        scheduled = session.scalars(select(TaskInstance).where(TaskInstance.run_id == run.run_id)).all()
        mapped = next(one for one in scheduled if one.task_id == "send")
        mapped.map_index = 0
    assert (run.run_try("send", 0).state, SMS.inbox_items(task_runner)) == ("failed", [])
    run.run_try("find")
    assert (run.clear("send", 0).run_try("send", 0).state, len(SMS.inbox_items(task_runner))) == ("success", 1)


class Sender:
    """Code of an author that fails before its client in the first try."""

    def send(self, ti: Any) -> Any:
        if ti.try_number == 1:
            raise RuntimeError("the author's code failed")
        return helper()

    def __call__(self, ti: Any) -> Any:
        return self.send(ti)


def send_of_class(ti: Any) -> Any:
    return Sender().send(ti)


def send_with_argument(number: int, ti: Any) -> Any:
    return Sender().send(ti)


CALLED: dict[str, Any] = {
    "method": Sender().send,
    "instance": Sender(),
    "partial": functools.partial(send_with_argument, 1),
    "class of the module": send_of_class,
}

DIVIDES = "{{ 1 // (ti.try_number - 1) }}"
"""A template that cannot be rendered in the first try."""


class TestIdempotentClient:
    @pytest.mark.parametrize("called", CALLED.values(), ids=CALLED)
    def test_code_of_any_kind_before_the_client_is_no_lost_journal(self, task_runner: TaskRunner, called: Any) -> None:
        assert opens_client(called)
        with new_dag() as dag:
            PythonOperator(task_id="send", python_callable=called, retries=0)
        check_sends_after_clear(Run(task_runner, dag), lambda: len(SMS.inbox_items(task_runner)))

    def test_template_of_a_function_is_no_lost_journal(self, task_runner: TaskRunner) -> None:
        with new_dag() as dag:

            @task(retries=0)
            def send(number: Any) -> Any:
                return helper()

            send(DIVIDES)
        check_sends_after_clear(Run(task_runner, dag), lambda: len(SMS.inbox_items(task_runner)))

    def test_template_of_a_mapped_function_is_no_lost_journal(self, task_runner: TaskRunner) -> None:
        with new_dag() as dag:

            @task(retries=0)
            def send(number: Any) -> Any:
                return helper()

            send.expand(number=[DIVIDES])
        check_sends_after_clear(Run(task_runner, dag), lambda: len(SMS.inbox_items(task_runner)), map_index=0)

    @pytest.mark.parametrize("retries", [0, 2])
    def test_code_before_the_client_is_no_lost_journal(self, task_runner: TaskRunner, retries: int) -> None:
        with new_dag() as dag:

            @task(retries=retries)
            def send(ti: Any = None) -> Any:
                if ti.try_number == 1:
                    raise RuntimeError("the author's code failed")
                with CpaasHook().get_idempotent_client() as client:
                    return client.send_sms(phone("adaeze"), "Your parcel is here")

            send()
        check_sends_after_clear(Run(task_runner, dag), lambda: len(SMS.inbox_items(task_runner)))

    def test_code_before_a_function_with_the_client_is_no_lost_journal(self, task_runner: TaskRunner) -> None:
        with new_dag() as dag:

            @task(retries=0)
            def send(ti: Any = None) -> Any:
                if ti.try_number == 1:
                    raise RuntimeError("the author's code failed")
                return helper()

            send()
        check_sends_after_clear(Run(task_runner, dag), lambda: len(SMS.inbox_items(task_runner)))

    def test_dropped_state_stays_a_lost_journal(self, task_runner: TaskRunner) -> None:
        with new_dag() as dag:

            @task(retries=0)
            def send() -> Any:
                return helper()

            send()
        run = Run(task_runner, dag)
        assert run.run_try().state == "success"
        lost = run.clear(drop_state=True).run_try()
        assert (lost.state, len(SMS.inbox_items(task_runner))) == ("failed", 1)

    def test_only_functions_that_open_a_client_are_found(self) -> None:
        def nested() -> Any:
            return [helper() for _ in range(2)]

        assert opens_client(helper)
        assert opens_client(nested)
        assert not opens_client(rows)
        assert not opens_client(StoppedSource())
        assert not opens_client(Path.exists)
        assert not opens_client(len)


def test_dropped_state_stays_a_lost_journal_whatever_runs_before(task_runner: TaskRunner) -> None:
    run = SMS.run(task_runner, pre_execute=lambda context: None)
    assert run.run_try().state == "success"
    lost = run.clear(drop_state=True).run_try()
    assert (lost.state, len(SMS.inbox_items(task_runner))) == ("failed", 1)
