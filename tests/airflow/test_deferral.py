"""A long Retry-After: the task frees its slot, uses no try, and makes its request once, on a worker."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import timezone

from cpaas_provider.operators.airtime import BuyAirtimeOperator
from cpaas_provider.operators.contacts import CreateContactRowOperator
from cpaas_provider.operators.email import SendEmailOperator
from cpaas_provider.operators.otp import RequestOtpOperator
from cpaas_provider.operators.sms import SendSmsOperator
from cpaas_provider.tasks import runner
from cpaas_provider.triggers import wait
from cpaas_provider.triggers.wait import WaitTrigger
from tests.airflow.harness.task_runner import TaskRunner, address, digits, fault, open_task_runner, phone
from tests.airflow.harness.tries import Run, new_dag
from tests.sandbox import Sandbox

LONG = 90  # longer than the client waits by itself
OPERATIONS = {
    "sms": ("send_sms", "sms", digits("sms")),
    "email": ("send_email", "email", address("email")),
    "otp": ("request_otp", "otp", digits("otp")),
    "airtime": ("buy_airtime", "airtime", digits("airtime")),
    "contact": ("create_contact_row", "contacts", "Deferred"),
}


def long_retry_after(name: str, **params: Any) -> tuple[str, str, Any]:
    return fault(OPERATIONS[name][0], "rate_limit", **{"retry_after": LONG, "times": 1, **params})


@pytest.fixture(scope="module")
def finished_run(airflow_db: object, sandbox_process: Sandbox) -> Iterator[TaskRunner]:
    with pytest.MonkeyPatch.context() as patch, open_task_runner(sandbox_process) as task_runner:
        # For the trigger the moment has come as soon as it starts.
        patch.setattr(wait, "timezone", SimpleNamespace(utcnow=lambda: timezone.utcnow() + dt.timedelta(seconds=LONG)))
        with task_runner.dag("deferral") as dag:

            def busy(name: str) -> str:
                return task_runner.prepare(name, long_retry_after(name))

            SendSmsOperator(task_id=busy("sms"), recipients=phone("sms"), content="To {{ ti.task_id }}")
            SendEmailOperator(task_id=busy("email"), recipients=address("email"), content="To {{ ti.task_id }}")
            RequestOtpOperator(task_id=busy("otp"), recipient=phone("otp"))
            BuyAirtimeOperator(task_id=busy("airtime"), network="MTN", amount=100, recipient=phone("airtime"))
            CreateContactRowOperator(task_id=busy("contact"), columns={"Name": "Deferred"})
            SendSmsOperator.partial(task_id=task_runner.prepare("mapped", long_retry_after("sms"))).expand_kwargs(
                [{"recipients": phone(f"mapped_{n}"), "content": f"Number {n}"} for n in (0, 1)]
            )
            unavailable = fault("send_sms", "unavailable", retry_after=LONG, times=1, format="http-date")
            SendSmsOperator(
                task_id=task_runner.prepare("by_date", unavailable), recipients=phone("by_date"), content="Hello"
            )
        yield task_runner.run_dag(dag)


class TestDagRun:
    @pytest.mark.parametrize("name", OPERATIONS)
    def test_request_is_made_once_and_no_try_is_used_up(self, finished_run: TaskRunner, name: str) -> None:
        _, box, recipient = OPERATIONS[name]
        assert finished_run.outcome(name) == ("success", 1)
        assert len(finished_run.inbox_items(box, recipient)) == 1
        assert "The task is deferred until" in finished_run.log(name)

    def test_fields_are_rendered_again_on_the_worker(self, finished_run: TaskRunner) -> None:
        (message,) = finished_run.inbox_items("sms", digits("sms"))
        assert message["text"] == "To sms"

    def test_mapped_instances_are_deferred_too(self, finished_run: TaskRunner) -> None:
        for index in (0, 1):
            assert finished_run.outcome("mapped", index) == ("success", 1)
            (message,) = finished_run.inbox_items("sms", digits(f"mapped_{index}"))
            assert message["text"] == f"Number {index}"

    def test_retry_after_may_be_a_date(self, finished_run: TaskRunner) -> None:
        assert finished_run.outcome("by_date") == ("success", 1)

    def test_try_logs_once_that_airtime_is_deprecated(self, finished_run: TaskRunner) -> None:
        assert finished_run.log("airtime").count("The service has deprecated airtime purchases") == 1


@pytest.fixture
def run(task_runner: TaskRunner) -> Run:
    """A task whose first request the service puts off."""
    with new_dag(params={"text": "Hello"}) as dag:
        SendSmsOperator(task_id="sms", recipients=phone("direct"), content="{{ params.text }}")
    task_runner.sandbox.control(*long_retry_after("sms"))
    return Run(task_runner, dag)


class TestDeferredTry:
    def test_trigger_holds_only_an_absolute_moment(self, run: Run) -> None:
        before = timezone.utcnow()
        path, kwargs = run.run_try().trigger or ("", {})
        assert path == f"{WaitTrigger.__module__}.{WaitTrigger.__qualname__}"
        assert set(kwargs) == {"until"}
        until = dt.datetime.fromisoformat(kwargs["until"])
        assert until.tzinfo is not None
        assert LONG <= (until - before).total_seconds() <= LONG + 10

    def test_deferred_task_stores_plain_json_without_anything_private(self, task_runner: TaskRunner, run: Run) -> None:
        deferred = run.run_try()
        kept = json.dumps([deferred.trigger, deferred.next_kwargs, [row.value for row in run.state_rows()]])
        assert set(deferred.next_kwargs) == {"deadline"}
        for private in (phone("direct"), digits("direct"), "Hello", task_runner.sandbox.api_key):
            assert private not in kept

    def test_resumed_task_sends_once(self, task_runner: TaskRunner, run: Run) -> None:
        assert run.run_try().state == "deferred"
        resumed = run.fire_trigger(early=True).run_try()
        assert (resumed.state, resumed.number, resumed.result["recipients"]) == ("success", 1, 1)
        (message,) = task_runner.inbox_items("sms", digits("direct"))
        assert message["text"] == "Hello"

    def test_task_deferred_again_keeps_its_deadline(self, task_runner: TaskRunner, run: Run) -> None:
        task_runner.sandbox.control(*long_retry_after("sms"))
        first = run.run_try()
        second = run.fire_trigger(early=True).run_try()
        assert (first.state, second.state) == ("deferred", "deferred")
        assert second.next_kwargs["deadline"] == first.next_kwargs["deadline"]
        deadline = dt.datetime.fromisoformat(first.next_kwargs["deadline"])
        assert 23 <= (deadline - timezone.utcnow()).total_seconds() / 3600 <= 24

    def test_retry_after_beyond_the_longest_deferral_is_left_to_the_retries(
        self, task_runner: TaskRunner, run: Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        task_runner.sandbox.control(*long_retry_after("sms"))
        monkeypatch.setattr(runner, "MAX_DEFERRAL", dt.timedelta(seconds=LONG))
        assert run.run_try().state == "deferred"
        resumed = run.fire_trigger(early=True).run_try()
        assert resumed.state == "up_for_retry"
        assert "HTTP 429" in resumed.error
        assert task_runner.inbox_items("sms", digits("direct")) == []
        assert (run.run_try().state, len(task_runner.inbox_items("sms", digits("direct")))) == ("success", 1)

    def test_short_retry_after_is_waited_for_without_deferring(self, task_runner: TaskRunner, run: Run) -> None:
        task_runner.sandbox.control("DELETE", "faults")
        task_runner.sandbox.control(*long_retry_after("sms", retry_after=0))
        assert (run.run_try().state, len(task_runner.inbox_items("sms", digits("direct")))) == ("success", 1)
