"""A run that is deleted and recreated under the same id: nothing of the first run counts in the second.

A cloned deployment, or new Airflow metadata beside the same database, is the same to the provider.
"""

from __future__ import annotations

import datetime as dt
import json
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from airflow.sdk import task

from cpaas_provider.hooks.cpaas import CpaasHook
from cpaas_provider.operators.sms import SendSmsOperator
from cpaas_provider.sending import resolver
from cpaas_provider.sensors.delivery import DeliverySensor
from tests import journals
from tests.airflow.delivery.test_callbacks import Received, received
from tests.airflow.harness.campaigns import count_messages, digits, requests, rows, sms
from tests.airflow.harness.kinds import AIRTIME, KINDS, SMS, Kind
from tests.airflow.harness.task_runner import TaskRunner, fault, forget_campaign_database, phone, setting
from tests.airflow.harness.tries import Run, new_dag
from tests.unit.delivery.report_builders import report, save_reports, token_for

__all__ = ["received"]
ONE = (1, timedelta(days=7))


@pytest.fixture(autouse=True)
def own_variables(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(resolver, "_FIRST_PROBE", dt.timedelta(seconds=0.1))
    forget_campaign_database()
    yield
    forget_campaign_database()


def run_of_client(task_runner: TaskRunner) -> Run:
    """Return a run of a task that sends with the idempotent client."""

    @task(task_id="send")
    def send() -> Any:
        with CpaasHook().get_idempotent_client(unknown_timeout=0) as client:
            return client.send_sms(phone("adaeze"), "Your parcel is here")

    with new_dag() as dag:
        send()
    return Run(task_runner, dag)


SENDS: dict[str, Callable[[TaskRunner], Run]] = {
    "single": lambda task_runner: SMS.run(task_runner, unknown_timeout=0),
    "campaign": lambda task_runner: sms(task_runner, rows(1), unknown_timeout=0),
    "client": run_of_client,
}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_recreated_run_sends_again_under_new_references(task_runner: TaskRunner, kind: Kind) -> None:
    task_runner.sandbox.control(*setting(airtime_guard_seconds=0))
    run = kind.run(task_runner)
    run.run_try()
    first = set(run.journal())
    assert run.recreate().run_try().state == "success"
    assert not first & set(run.journal())


@pytest.mark.parametrize("run_of", SENDS.values(), ids=SENDS)
def test_lost_request_is_not_resolved_by_the_first_run(
    task_runner: TaskRunner, received: Received, run_of: Callable[[TaskRunner], Run]
) -> None:
    run = run_of(task_runner)
    assert run.run_try().state == "success"
    task_runner.sandbox.control(*fault("send_sms", "cut_before"))
    failed = run.recreate().run_try()
    assert failed.state == "failed"
    assert "Outcome unknown" in failed.error


def test_report_of_the_first_run_does_not_resolve_a_purchase_of_the_recreated_run(
    task_runner: TaskRunner, received: Received
) -> None:
    run = AIRTIME.run(task_runner, unknown_timeout=0)
    first = run.run_try().result["references"][0]
    token = token_for(AIRTIME.recipient, campaign=first, reference=first)
    bought = report(AIRTIME.recipient, "success", token=token, conn_id="cpaas_default", id="buy-1")
    save_reports(received.store, bought)
    task_runner.sandbox.control(*fault("buy_airtime", "cut_before"))
    failed = run.recreate().run_try()
    assert failed.state == "failed"
    assert "Outcome unknown" in failed.error


def test_sensor_does_not_see_what_the_first_run_delivered(task_runner: TaskRunner, received: Received) -> None:
    with new_dag() as dag:
        sent = SendSmsOperator(task_id="send", recipients="+2348031000001", content="Hello")
        DeliverySensor(task_id="wait", send_result=sent.output, mode="reschedule")
    run = Run(task_runner, dag)
    (reference,) = run.run_try("send").result["references"]
    received.wait_for_counts(reference, 1)
    assert run.run_try("wait").state == "success"
    task_runner.sandbox.control("PUT", "settings", {"report_delay_seconds": 3600})
    run.recreate().run_try("send")
    assert run.run_try("wait").state == "up_for_reschedule"


def test_campaign_is_another_one_for_pages_and_sensors(task_runner: TaskRunner, received: Received) -> None:
    run = sms(task_runner, rows(2))
    first = run.run_try().result["reference"]
    received.wait_for_counts(first, 2)
    task_runner.sandbox.control("PUT", "settings", {"report_delay_seconds": 3600})
    again = run.recreate().run_try().result["reference"]
    assert again != first
    assert received.counts(again) == (0, 0, 0)


@pytest.mark.parametrize("name", SENDS)
def test_recreated_run_counts_separately_for_the_frequency_cap(
    task_runner: TaskRunner, name: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", f"sqlite:///{tmp_path}/store.db")
    if name == "client":

        @task(task_id="send")
        def send() -> Any:
            with CpaasHook().get_idempotent_client(frequency_cap=ONE) as client:
                return client.send_sms("+2348031200000", "Hello")

        with new_dag() as dag:
            send()
        run = Run(task_runner, dag)
    else:
        run = (
            SMS.run(task_runner, frequency_cap=ONE)
            if name == "single"
            else sms(task_runner, rows(1), frequency_cap=ONE)
        )
    run.run_try()
    for _ in range(2):
        run.recreate().run_try()
    assert requests(task_runner) == 1


def test_retry_of_one_run_is_no_other_message_for_the_frequency_cap(
    task_runner: TaskRunner, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", f"sqlite:///{tmp_path}/store.db")
    task_runner.sandbox.control(*fault("send_sms", "unauthorized", times=1))
    run = sms(task_runner, rows(2), frequency_cap=ONE)
    assert run.run_try().state == "failed"
    assert run.clear().run_try().state == "success"
    assert count_messages(task_runner) == Counter(digits(2))


def test_clear_keeps_the_nonce_and_its_resend_has_a_new_reference(task_runner: TaskRunner, received: Received) -> None:
    run = sms(task_runner, rows(2), resend_on_clear=True)
    first = run.run_try().result["reference"]
    (nonce,) = nonces(run)
    assert run.clear().run_try().result["reference"] != first
    assert nonces(run) == {nonce}


def nonces(run: Run) -> set[str]:
    return {json.loads(row.value)["nonce"] for row in run.state_rows() if journals.is_key(row.key)}


@pytest.mark.parametrize("run_of", SENDS.values(), ids=SENDS)
def test_no_outcome_is_established_after_a_lost_journal(
    task_runner: TaskRunner, received: Received, run_of: Callable[[TaskRunner], Run]
) -> None:
    run = run_of(task_runner)
    run.run_try()
    before = requests(task_runner)
    failed = run.clear(drop_state=True).run_try()
    assert (failed.state, requests(task_runner)) == ("failed", before)
    assert "Outcome unknown" in failed.error


def test_keyed_campaign_retries_rejected_recipients_in_a_recreated_run(
    task_runner: TaskRunner, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", f"sqlite:///{tmp_path}/store.db")
    task_runner.sandbox.control(*fault("send_sms", "error_under_200", times=1, body_status=422))
    run = sms(task_runner, rows(1), idempotency_key="spring")
    assert run.run_try().state == "failed"
    assert run.recreate().run_try().state == "success"
    assert run.recreate().run_try().state == "success"
    assert count_messages(task_runner) == Counter(digits(1))
