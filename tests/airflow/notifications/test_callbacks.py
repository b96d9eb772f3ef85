"""Notifiers as callbacks of real task instances and DAG runs: what is sent, and what the log states."""

from __future__ import annotations

import asyncio
import json
import re
import time
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import pytest
import structlog
from airflow.callbacks.callback_requests import DagCallbackRequest, DagRunContext
from airflow.dag_processing.processor import _execute_dag_callbacks
from airflow.models.dagrun import DagRun
from airflow.models.deadline import Deadline
from airflow.sdk import AsyncCallback, BaseOperator, SyncCallback
from airflow.sdk.exceptions import AirflowSkipException
from airflow.sdk.execution_time.callback_supervisor import execute_callback
from airflow.triggers.callback import CallbackTrigger
from airflow.utils.session import create_session
from msgspec.structs import replace
from sqlalchemy import func, select

from cpaas_provider.api.text.sms import measure_sms
from cpaas_provider.database.database import open_database
from cpaas_provider.database.schema.alerts import notifications
from cpaas_provider.hooks.cpaas import CpaasHook
from cpaas_provider.notifications import EmailNotifier, SmsNotifier
from cpaas_provider.notifications._runtime import request
from cpaas_provider.notifications._runtime import run as run_module
from tests.airflow.harness.running import run
from tests.airflow.harness.task_runner import fault
from tests.airflow.harness.tries import Run, new_dag
from tests.airflow.notifications.callers import context
from tests.airflow.notifications.conftest import QUICK
from tests.system.leaks import Scan, Secrets

PHONE, OTHER = "0803 555 0001", "+2348035550002"
DIGITS = "2348035550001"
ADDRESS = "ops@example.com"
PARAMS = {
    "number": f"+{DIGITS}",
    "numbers": [f"+{DIGITS}", OTHER],
    "science": "1e5",
    "cells": {"a": 1},
}

pytestmark = pytest.mark.usefixtures("quick")


class Fails(BaseOperator):
    def execute(self, context: Any) -> None:
        raise ConnectionError("password hunter2 of 0803 123 4567")


class Skips(BaseOperator):
    def execute(self, context: Any) -> None:
        raise AirflowSkipException


class Succeeds(BaseOperator):
    def execute(self, context: Any) -> None:
        pass


def failing(kind: type[BaseOperator] = Fails, **callbacks: Any) -> Any:
    with new_dag(default_args={"retries": 0}) as dag:
        kind(task_id="load", **callbacks)
    return dag


def notified(task_runner: Any, notifier: Any) -> str:
    """Run a task that fails and notifies, and return the log of the notifier."""
    ended = Run(task_runner, failing(on_failure_callback=notifier)).run_try()
    assert ended.state == "failed"
    assert "hunter2" in ended.error
    return "\n".join(line for line in ended.log.splitlines() if "hunter2" not in line)


class TestTasks:
    def test_failed_task_sends_default_text_with_link_to_the_run(self, task_runner, texts) -> None:
        dag = failing(on_failure_callback=SmsNotifier(recipients=[PHONE, OTHER]))
        ran = Run(task_runner, dag)
        ended = ran.run_try()
        link = f"http://localhost:8080/dags/{dag.dag_id}/runs/{ran.run_id}"
        assert ended.state == "failed"
        assert texts() == [f"Airflow: {dag.dag_id}.load failed (ConnectionError, try 1) {link}"] * 2
        assert {item["recipient"] for item in task_runner.sandbox.inbox("sms")["items"]} == {DIGITS, OTHER[1:]}
        assert task_runner.sandbox.counters()["requests"]["send_sms"] == 1
        assert re.search(r"Notification sent: sms, alerts: 1, recipients: 2, reference: cpaas-\w{20}\.", ended.log)

    @pytest.mark.parametrize(
        ("kind", "callback", "words"),
        [
            (Succeeds, "on_success_callback", "succeeded"),
            (Succeeds, "on_execute_callback", "started"),
            (Skips, "on_skipped_callback", "was skipped"),
        ],
    )
    def test_other_states_are_named(self, task_runner, texts, kind, callback, words) -> None:
        dag = failing(kind, **{callback: SmsNotifier(recipients=PHONE, include_link=False)})
        Run(task_runner, dag).run_try()
        assert texts() == [f"Airflow: {dag.dag_id}.load {words}"]

    def test_retried_task_is_named_as_such(self, task_runner, texts) -> None:
        with new_dag() as dag:
            Fails(task_id="load", on_retry_callback=SmsNotifier(recipients=PHONE, include_link=False))
        Run(task_runner, dag).run_try()
        assert texts() == [f"Airflow: {dag.dag_id}.load failed and is retried (ConnectionError, try 1)"]

    def test_fields_are_templates_and_stay_as_they_are_for_the_next_alert(self, task_runner, texts) -> None:
        notifier = SmsNotifier(
            recipients=["{{ '0803 555 0001' }}"],
            content="{{ ti.task_id }} of {{ run_id }} is broken.",
            sender_id="{{ 'Ops' }}",
            group="{{ run_id }}",
            include_link=False,
        )
        runs = [Run(task_runner, failing(on_failure_callback=notifier)) for _ in range(2)]
        for ran in runs:
            ran.run_try()
        assert texts() == [f"load of {ran.run_id} is broken." for ran in runs]
        assert {item["sender_id"] for item in task_runner.sandbox.inbox("sms")["items"]} == {"Ops"}
        assert "{{" in notifier.content

    def test_kind_and_group_make_groups_of_their_own(self, task_runner) -> None:
        notifier = SmsNotifier(recipients=PHONE)
        dags = [
            failing(on_failure_callback=notifier),
            failing(on_failure_callback=notifier),
            failing(Succeeds, on_success_callback=notifier),
            failing(on_failure_callback=SmsNotifier(recipients=PHONE, group="orders")),
        ]
        groups = []
        for dag in dags:
            Run(task_runner, dag).run_try()
            with open_database() as database, database.connect() as connection:
                groups.append(connection.execute(select(func.count()).select_from(notifications)).scalar_one())
        assert [number - groups[0] for number in groups] == [0, 0, 1, 2]

    @pytest.mark.parametrize("native", [True, False])
    @pytest.mark.parametrize(
        ("fields", "text"),
        [
            ({"content": "{{ ti.task_id }}: {{ exception }}"}, "load: password hunter2 of 0803 123 4567"),
            ({"content": "{{ ti.try_number }}"}, "1"),
            ({"content": "{{ params.science }}"}, "1e5"),
            ({"content": "[{{ ti.try_number }}, 2]"}, "[1, 2]"),
            ({"content": "{{ params.cells }}"}, "{'a': 1}"),
            ({"content": "late", "group": "{{ ti.try_number }}"}, "late"),
            ({"content": "late", "sender_id": "{{ 4711 }}"}, "late"),
            ({"content": "late", "cpaas_conn_id": "cpaas_{{ 'default' }}"}, "late"),
        ],
    )
    def test_templates_of_any_value_are_sent_as_text_in_every_dag(
        self, task_runner, texts, native, fields, text
    ) -> None:
        notifier = SmsNotifier(recipients="{{ params.number }}", include_link=False, **fields)
        with new_dag(default_args={"retries": 0}, render_template_as_native_obj=native, params=PARAMS) as dag:
            Fails(task_id="load", on_failure_callback=notifier)
        Run(task_runner, dag).run_try()
        assert texts() == [text]

    @pytest.mark.parametrize("native", [True, False])
    @pytest.mark.parametrize(
        "recipients",
        [
            "{{ params.numbers }}",
            "{{ params.numbers | tojson }}",
            "{{ params.numbers | join(',') }}",
            ["{{ params.number }}", "{{ params.numbers[1] }}"],
            "{{ var.json.on_call }}",
            "{{ var.value.on_call }}",
        ],
    )
    def test_recipients_of_a_list_are_notified_in_every_dag(self, task_runner, native, recipients, monkeypatch) -> None:
        monkeypatch.setenv("AIRFLOW_VAR_ON_CALL", json.dumps(PARAMS["numbers"]))
        notifier = EmailNotifier(recipients=[ADDRESS], content="late", subject="{{ params.number }}")
        sms = SmsNotifier(recipients=recipients, content="late")
        with new_dag(default_args={"retries": 0}, render_template_as_native_obj=native, params=PARAMS) as dag:
            Fails(task_id="load", on_failure_callback=[sms, notifier])
        Run(task_runner, dag).run_try()
        assert {item["recipient"] for item in task_runner.sandbox.inbox("sms")["items"]} == {DIGITS, OTHER[1:]}
        assert task_runner.sandbox.inbox("email")["items"][0]["subject"] == PARAMS["number"]

    def test_callback_of_a_native_dag_is_sent_as_text(self, task_runner, texts) -> None:
        notifier = SmsNotifier(recipients="{{ params.numbers }}", content="{{ run_id | length }}", include_link=False)
        dag = new_dag(
            default_args={"retries": 0},
            on_failure_callback=notifier,
            render_template_as_native_obj=True,
            params=PARAMS,
        )
        with dag:
            Fails(task_id="load")
        done = run(dag)
        assert texts() == [str(len(done.run_id))] * 2

    def test_marks_go_and_the_encoding_replaces_typography(self, task_runner, texts) -> None:
        for content, encoding in (
            ("\ufeffHel\u200blo", None),
            ("It\u2019s", None),
            ("It\u2019s", "gsm7"),
            ("\u2019ọ", "gsm7"),
        ):
            SmsNotifier(recipients=PHONE, content=content, encoding=encoding, include_link=False, window=0)(context(1))
        assert texts() == ["Hello", "It\u2019s", "It's", "\u2019ọ"]

    def test_encoding_lets_a_longer_text_through(self, task_runner, texts) -> None:
        SmsNotifier(
            recipients=PHONE, content="\u2019" + "x" * 150, encoding="gsm7", include_link=False, max_pages=1, window=0
        )(context(1))
        assert texts() == ["'" + "x" * 150]

    def test_encoding_that_is_none_is_refused(self) -> None:
        with pytest.raises(ValueError, match="encoding must be 'gsm7' or None"):
            SmsNotifier(recipients=PHONE, encoding="ucs2")

    def test_email_has_subject_text_and_link(self, task_runner) -> None:
        dag = failing(on_failure_callback=EmailNotifier(recipients="ops@example.com", from_name="Airflow"))
        ran = Run(task_runner, dag)
        ran.run_try()
        [email] = task_runner.sandbox.inbox("email")["items"]
        what = f"{dag.dag_id}.load failed (ConnectionError, try 1)"
        assert email["subject"] == f"Airflow: {what}"
        assert email["text"] == f"{what}.\n\nhttp://localhost:8080/dags/{dag.dag_id}/runs/{ran.run_id}"
        assert (email["recipient"], email["sender_id"]) == ("ops@example.com", "shop@example.com")

    @pytest.mark.parametrize(
        "odd",
        ["Air\nflow", "Air\r\nBcc: x@example.com", "A\x00B", "A\x0bB", "A\x85B", "A\u2029B", "\u2028", "x" * 1000],
    )
    def test_odd_subject_and_name_do_not_keep_an_email_back(self, task_runner, odd) -> None:
        EmailNotifier(recipients="ops@example.com", from_name=odd, subject=odd, content=odd)(context(1))
        [email] = task_runner.sandbox.inbox("email")["items"]
        assert (email["from_name"] or "").isprintable()
        assert email["subject"].isprintable()


class TestFaults:
    """A notifier that cannot send leaves the failure of the task alone, and its log states why."""

    def test_template_of_the_text_that_fails_is_replaced_by_the_default(self, task_runner, texts) -> None:
        log = notified(task_runner, SmsNotifier(recipients=PHONE, content="{{ missing.of('0803') }}"))
        assert "load failed" in texts()[0]
        assert "The template of content cannot be rendered (UndefinedError). The default is sent." in log

    @pytest.mark.parametrize(
        ("content", "reason"),
        [
            ("{{ none }}", "content is the word 'None'"),
            ("your code is {code}", "content has placeholders (code), which a notification cannot fill"),
        ],
    )
    def test_unreadable_text_is_replaced_by_the_default(self, task_runner, texts, content, reason) -> None:
        log = notified(task_runner, SmsNotifier(recipients=PHONE, content=content))
        assert "load failed" in texts()[0]
        assert f"{reason}. The default is sent." in log

    def test_braces_in_the_text_of_an_error_are_sent(self, texts) -> None:
        notifier = SmsNotifier(recipients=PHONE, content="{{ exception }}")
        notifier({**context(1), "exception": ValueError("no rows for {1}")})
        assert texts()[0].startswith("no rows for {1}")

    def test_sender_without_a_value_sends_nothing(self, task_runner, texts) -> None:
        log = notified(task_runner, SmsNotifier(recipients=PHONE, sender_id="{{ none }}"))
        assert "A notification could not be sent. sender_id is the word 'None' after rendering." in log
        assert (texts(), task_runner.sandbox.counters()["requests"]) == ([], {})

    @pytest.mark.parametrize("piece", ["word ", "\U0001f600", "\n\x00\x1b[31m", "https://a.example/", "\ud800"])
    def test_text_of_a_megabyte_is_stored_and_sent_in_part(self, task_runner, texts, monkeypatch, piece) -> None:
        stored: list[str] = []
        seal = run_module.seal
        monkeypatch.setattr(run_module, "seal", lambda *given: stored.append(seal(*given)) or stored[-1])
        notifier = SmsNotifier(recipients=PHONE, content="{{ exception }}")
        notifier({**context(1), "exception": ValueError(piece * (1_000_000 // len(piece)))})
        [text] = texts()
        assert measure_sms(text).pages <= 2
        assert text.endswith(" http://localhost:8080/dags/orders/runs/now")
        assert len(stored[0]) < 400_000

    def test_template_of_recipients_that_fails_sends_nothing(self, task_runner, texts) -> None:
        log = notified(task_runner, SmsNotifier(recipients="{{ var.value.on_call }}"))
        assert "A notification could not be sent. The template of recipients cannot be rendered" in log
        assert texts() == []

    def test_invalid_recipients_are_left_out_and_counted(self, task_runner, texts) -> None:
        log = notified(task_runner, SmsNotifier(recipients=[PHONE, "0803 12", "no number"]))
        assert len(texts()) == 1
        assert "Recipients of the notifier left out as invalid: recipient 2 is not a phone number of NG" in log
        assert "; recipient 3 contains letters." in log
        assert "0803" not in log

    def test_recipients_that_are_not_allowed_get_nothing(self, task_runner) -> None:
        task_runner.connect("staging", allowed_recipients=OTHER)
        for notifier, recipient in ((SmsNotifier, PHONE), (EmailNotifier, ADDRESS)):
            log = notified(task_runner, notifier(recipients=recipient, cpaas_conn_id="staging"))
            assert "A notification could not be sent. The notifier has no valid and allowed recipient." in log
        assert task_runner.sandbox.counters()["requests"] == {}

    @pytest.mark.parametrize(
        ("conn_id", "words"),
        [
            ("missing", "The connection 'missing' could not be read (AirflowNotFoundException). Nothing was sent."),
            ("cpaas_refused", "Notification not sent, alerts: 1. The next one reports them."),
            ("cpaas_wrong_key", "Notification about 1 alert was rejected. Nothing was sent"),
        ],
    )
    def test_connection_that_cannot_be_used_is_named(self, task_runner, texts, conn_id, words) -> None:
        assert words in notified(task_runner, SmsNotifier(recipients=PHONE, cpaas_conn_id=conn_id))
        assert texts() == []

    def test_request_of_unknown_outcome_is_not_sent_again(self, task_runner, texts) -> None:
        task_runner.sandbox.control("POST", "faults", {"operation": "send_sms", "kind": "cut_after", "times": 1})
        notifier = SmsNotifier(recipients=PHONE)
        log = notified(task_runner, notifier)
        assert "is of unknown outcome. It may have been sent, so it is not sent again." in log
        assert len(texts()) == 1
        notified(task_runner, notifier)
        assert "alerts since" not in texts()[1]

    def test_alert_that_was_not_sent_is_in_the_next_notification(self, task_runner, texts) -> None:
        task_runner.sandbox.control(
            "POST", "faults", {"operation": "send_sms", "kind": "unavailable", "retry_after": 30}
        )
        notifier = SmsNotifier(recipients=PHONE)
        assert "Notification not sent, alerts: 1." in notified(task_runner, notifier)
        task_runner.sandbox.control("PUT", "scene", {"faults": []})
        notified(task_runner, notifier)
        [text] = texts()
        assert text.startswith("Airflow: 2 alerts since ")

    @pytest.mark.parametrize(
        ("notifier", "operation", "recipient"),
        [(SmsNotifier, "send_sms", PHONE), (EmailNotifier, "send_email", ADDRESS)],
    )
    def test_alert_that_waits_shows_nothing_private_in_any_table(
        self, task_runner, notifier, operation, recipient
    ) -> None:
        task_runner.sandbox.control(*fault(operation, "unavailable", retry_after=30))
        error = "{{ exception }}"
        log = notified(task_runner, notifier(recipients=recipient, content=error, group=f"{recipient} {error}"))
        assert "Notification not sent, alerts: 1." in log
        numbers = {DIGITS, "2348031234567"}
        keys = {task_runner.sandbox.api_key}
        scan = Scan(Secrets(keys=keys, numbers=numbers, addresses={ADDRESS}, texts={"hunter2"}))
        with open_database() as database, database.connect() as connection:
            [waiting] = connection.execute(select(notifications)).all()
            assert list(scan.provider_database(connection)) == []
        assert (waiting.alerts, waiting.message is not None) == (1, True)
        shown = f"{recipient} password hunter2 of 0803 123 4567"
        assert {leak.kind for leak in scan.text("here", shown)} >= {"number", "text"}

    def test_missing_database_sends_nothing(self, task_runner, texts, monkeypatch) -> None:
        monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", "sqlite:////dev/null/nowhere.db")
        log = notified(task_runner, SmsNotifier(recipients=PHONE))
        assert "Without it the number of notifications has no limit, so nothing was sent." in log
        assert texts() == []
        assert "Notification sent" in notified(task_runner, SmsNotifier(recipients=PHONE, window=0))
        assert len(texts()) == 1


class TestBounds:
    """A notifier ends within some seconds, whatever is slow."""

    @pytest.fixture(autouse=True)
    def _short(self, monkeypatch) -> None:
        monkeypatch.setattr(request, "CONNECT_SECONDS", 0.3)
        monkeypatch.setattr(request, "CALLER_SECONDS", 0.7)
        monkeypatch.setattr(run_module, "CALLER_SECONDS", 0.7)

    @pytest.mark.parametrize("window", [0, 60])
    def test_pause_of_a_shared_rate_limit_is_not_waited_for(self, task_runner, texts, window) -> None:
        task_runner.connect("shared", share_rate_limit=True)
        with CpaasHook("shared").get_conn() as client:
            client.get_contact_table()
            client.rate_limiter.block_for(60)
            client.rate_limiter.share_hold()
        began = time.monotonic()
        log = notified(task_runner, SmsNotifier(recipients=PHONE, cpaas_conn_id="shared", window=window))
        assert time.monotonic() - began < 10
        assert "Notification not sent, alerts: 1." in log
        assert texts() == []

    def test_response_that_arrives_byte_by_byte_is_of_unknown_outcome(self, task_runner, texts) -> None:
        task_runner.sandbox.control("POST", "faults", {"operation": "send_sms", "kind": "slow_drip", "seconds": 30})
        began = time.monotonic()
        log = notified(task_runner, SmsNotifier(recipients=PHONE))
        assert time.monotonic() - began < 10
        assert "is of unknown outcome. It may have been sent, so it is not sent again." in log

    def test_clock_that_was_ahead_does_not_keep_a_caller_waiting(self, task_runner, texts, monkeypatch) -> None:
        notifier = SmsNotifier(recipients=PHONE)
        monkeypatch.setattr(
            run_module, "TIMING", replace(QUICK, quiet=timedelta(minutes=50), longest=timedelta(minutes=55))
        )
        began = time.monotonic()
        notified(task_runner, notifier)
        assert time.monotonic() - began < 10
        assert len(texts()) == 1


class TestDags:
    @pytest.mark.parametrize(
        ("kind", "callback", "words"),
        [(Fails, "on_failure_callback", "failed"), (Succeeds, "on_success_callback", "succeeded")],
    )
    def test_callback_of_a_dag_names_the_dag(self, task_runner, texts, kind, callback, words) -> None:
        notifier = SmsNotifier(recipients=PHONE, content="{{ dag.dag_id }} {{ reason }}", include_link=False)
        default = SmsNotifier(recipients=PHONE)
        with new_dag(default_args={"retries": 0}, **{callback: [notifier, default]}) as dag:
            kind(task_id="load")
        done = run(dag)
        link = f"http://localhost:8080/dags/{dag.dag_id}/runs/{quote(done.run_id)}"
        reason = "task_failure" if words == "failed" else "success"
        assert texts() == [f"{dag.dag_id} {reason}", f"Airflow: DAG {dag.dag_id} {words} {link}"]

    @pytest.mark.parametrize("with_task", [True, False])
    def test_dag_processor_runs_the_callback(self, task_runner, texts, with_task) -> None:
        """As Airflow's scheduler requests it, and its DAG processor runs it."""
        with new_dag(
            on_failure_callback=SmsNotifier(recipients=PHONE, content="{{ dag.dag_id }}: {{ reason }}")
        ) as dag:
            Fails(task_id="load")
        ran = Run(task_runner, dag)
        ran.run_try()
        with create_session() as session:
            row = session.scalar(select(DagRun).where(DagRun.dag_id == dag.dag_id))
            [instance] = row.task_instances
            request = DagCallbackRequest(
                filepath="dag.py",
                dag_id=dag.dag_id,
                run_id=ran.run_id,
                bundle_name="tests",
                bundle_version=None,
                msg="timed_out",
                context_from_server=DagRunContext(dag_run=row, last_ti=instance) if with_task else None,
            )
        request = DagCallbackRequest.model_validate_json(request.model_dump_json())
        _execute_dag_callbacks(SimpleNamespace(dags={dag.dag_id: dag}), request, structlog.get_logger())
        assert texts() == [f"{dag.dag_id}: timed_out http://localhost:8080/dags/{dag.dag_id}/runs/{ran.run_id}"]


class TestDeadlines:
    """Airflow's own rows and its trigger, which the triggerer runs."""

    def missed(self, task_runner: Any, callback: Any) -> Any:
        """Have Airflow find a deadline missed; return the callback's row."""
        with new_dag() as dag:
            Succeeds(task_id="load")
        Run(task_runner, dag)
        with create_session() as session:
            row = session.scalar(select(DagRun).where(DagRun.dag_id == dag.dag_id))
            moment = datetime(2026, 3, 1, 12, 30, tzinfo=UTC)
            deadline = Deadline(moment, callback, row.id, None, dag.dag_id)
            session.add(deadline)
            session.flush()
            deadline.handle_miss(session)
            session.flush()
            data = json.loads(json.dumps(deadline.callback.data, default=str))
        return dag.dag_id, data

    def test_triggerer_sends_it(self, task_runner, texts) -> None:
        callback = AsyncCallback(SmsNotifier, {"recipients": [PHONE], "window": 60})
        dag_id, data = self.missed(task_runner, callback)
        trigger = CallbackTrigger(data["path"], data["kwargs"])

        async def events() -> list[Any]:
            return [event.payload async for event in trigger.run()]

        assert [event["state"] for event in asyncio.run(events())] == ["running", "success"]
        [text] = texts()
        assert text.startswith(f"Airflow: DAG {dag_id} missed its deadline (2026-03-01 12:30 UTC) http://localhost")

    def test_event_loop_is_free_meanwhile(self, task_runner, texts) -> None:
        dag_id, data = self.missed(task_runner, AsyncCallback(EmailNotifier, {"recipients": "ops@example.com"}))
        trigger = CallbackTrigger(data["path"], data["kwargs"])

        async def longest_pause() -> float:
            running = asyncio.ensure_future(anext_all(trigger.run()))
            loop, most = asyncio.get_running_loop(), 0.0
            while not running.done():
                before = loop.time()
                await asyncio.sleep(0)
                most = max(most, loop.time() - before)
            return most

        async def anext_all(events: Any) -> None:
            async for _ in events:
                pass

        assert asyncio.run(longest_pause()) < 0.5
        [email] = task_runner.sandbox.inbox("email")["items"]
        assert email["subject"] == f"Airflow: DAG {dag_id} missed its deadline (2026-03-01 12:30 UTC)"

    def test_executor_sends_it(self, task_runner, texts) -> None:
        callback = SyncCallback(SmsNotifier, {"recipients": PHONE, "content": "{{ dag_run.dag_id }} is late"})
        dag_id, data = self.missed(task_runner, callback)
        done = execute_callback(data["path"], data["kwargs"], "dag.py", None, structlog.get_logger())
        assert done == (True, None)
        assert texts()[0].startswith(f"{dag_id} is late http://localhost:8080/dags/{dag_id}/runs/")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"recipients": []}, "recipients is empty"),
        ({"recipients": PHONE, "window": -1}, "window must be"),
        ({"recipients": PHONE, "window": timedelta(days=2)}, "window must be"),
        ({"recipients": PHONE, "max_pages": 0}, "max_pages must be"),
    ],
)
def test_argument_that_cannot_work_is_refused_when_the_dag_is_parsed(arguments, words) -> None:
    with pytest.raises(ValueError, match=words):
        SmsNotifier(**arguments)
