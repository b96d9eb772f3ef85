"""What tasks record for the pages, as real task instances."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from cpaas_provider.database.database import open_database
from cpaas_provider.database.schema.activity import airtime_purchases, passcodes, task_progress
from cpaas_provider.operators.airtime import BuyAirtimeOperator
from cpaas_provider.operators.otp import RequestOtpOperator, VerifyOtpOperator
from tests.airflow.harness.campaigns import limit_batches, rows, sms
from tests.airflow.harness.command_line import CommandLine
from tests.airflow.harness.task_runner import TaskRunner, fault
from tests.airflow.harness.tries import Run, new_dag


def progress(reference: str) -> Any:
    with open_database() as database, database.connect() as connection:
        return connection.execute(select(task_progress).where(task_progress.c.reference == reference)).one()


def passcode(otp_id: str) -> Any:
    with open_database() as database, database.connect() as connection:
        return connection.execute(select(passcodes).where(passcodes.c.otp_id == otp_id)).one()


def test_campaign_records_its_report_and_its_guards(task_runner: TaskRunner) -> None:
    done = sms(task_runner, [*rows(3), {"phone": "x"}], max_failure_ratio=1, max_charge=500).run_try()
    found = progress(done.result["reference"])
    figures, settings = json.loads(found.figures), json.loads(found.settings)
    assert (found.kind, found.operation, found.task_id, found.state) == ("campaign", "send_sms", "campaign", "finished")
    assert {name: figures[name] for name in ("recipients", "sent", "invalid_rows", "charge")} == {
        "recipients": 3,
        "sent": 3,
        "invalid_rows": 1,
        "charge": done.result["charge"],
    }
    assert (settings["max_charge"], settings["on_unknown"]) == (500, "fail")
    assert found.ended_at is not None
    assert "2348031" not in found.figures + found.settings


def test_campaign_that_fails_and_is_retried_has_one_record(task_runner: TaskRunner) -> None:
    limit_batches(task_runner, 2)
    task_runner.sandbox.control(*fault("send_sms", "unavailable", retry_after=0))
    run = sms(task_runner, rows(2, 50))
    assert run.run_try().state == "up_for_retry"
    with open_database() as database, database.connect() as connection:
        (failed,) = connection.execute(select(task_progress).where(task_progress.c.dag_id == run.dag.dag_id))
    assert failed.state == "failed"
    task_runner.sandbox.control("DELETE", "faults")
    done = run.run_try()
    found = progress(done.result["reference"])
    assert (found.state, found.started_at) == ("finished", failed.started_at)
    assert found.reference == failed.reference


def test_failed_campaign_records_its_error_until_the_next_try_begins(task_runner: TaskRunner) -> None:
    limit_batches(task_runner, 2)
    task_runner.sandbox.control(*fault("send_sms", "unavailable", retry_after=0))
    run = sms(task_runner, rows(2, 50))
    assert run.run_try().state == "up_for_retry"
    with open_database() as database, database.connect() as connection:
        (failed,) = connection.execute(select(task_progress).where(task_progress.c.dag_id == run.dag.dag_id))
    assert "503" in json.loads(failed.figures)["error"]
    task_runner.sandbox.control("DELETE", "faults")
    done = run.run_try()
    assert "error" not in json.loads(progress(done.result["reference"]).figures)


def test_dry_run_records_nothing(task_runner: TaskRunner) -> None:
    done = sms(task_runner, rows(3), dry_run=True).run_try()
    with open_database() as database, database.connect() as connection:
        query = select(task_progress).where(task_progress.c.reference == done.result["reference"])
        assert connection.execute(query).first() is None


def test_campaign_is_sent_where_its_progress_cannot_be_recorded(
    task_runner: TaskRunner, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", f"sqlite:///{tmp_path}/cpaas.db")
    with open_database() as database:
        database.write(task_progress.drop)
    done = sms(task_runner, rows(3), use_suppression_list=False).run_try()
    assert (done.state, done.error) == ("success", ""), done.error
    assert done.result["sent"] == 3
    assert "The progress cannot be shown on the pages" in done.log


def test_passcode_is_requested_and_verified(task_runner: TaskRunner) -> None:
    with new_dag() as dag:
        RequestOtpOperator(task_id="request", recipient="+2348039990001", token="4821", length=4)
    asked = Run(task_runner, dag).run_try()
    found = passcode(asked.result["id"])
    assert (found.outcome, found.dag_id) == ("pending", dag.dag_id)
    assert found.expires_at - found.requested_at == timedelta(minutes=15)
    with new_dag() as dag:
        VerifyOtpOperator(task_id="verify", otp_id=asked.result["id"], token="4821")
    assert Run(task_runner, dag).run_try().state == "success"
    assert passcode(asked.result["id"]).outcome == "verified"


def test_purchase_for_another_number_does_not_change_the_record_of_the_first(task_runner: TaskRunner) -> None:
    with new_dag() as dag:
        BuyAirtimeOperator(task_id="buy", network="MTN", amount=100, recipient="+2348039990003")
    run = Run(task_runner, dag)
    (first,) = run.run_try().result["references"]
    run.change(amount=200, recipient="+2348039990004").clear()
    _, second = run.run_try().result["references"]
    with open_database() as database, database.connect() as connection:
        query = select(airtime_purchases.c.reference, airtime_purchases.c.amount)
        found = connection.execute(query.where(airtime_purchases.c.dag_id == dag.dag_id)).all()
    assert {row.reference: row.amount for row in found} == {first: 100, second: 200}


@pytest.mark.parametrize("sequence", [(200,), (100, 200)], ids=["at-once", "after-a-clear"])
def test_purchase_of_unknown_amount_is_recorded_and_keeps_an_amount_that_was_known(
    task_runner: TaskRunner,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    sequence: tuple[int, ...],
) -> None:
    with new_dag() as dag:
        BuyAirtimeOperator(task_id="buy", network="mtn", amount=100, recipient="+2348039990005")
    run = Run(task_runner, dag)
    task_runner.sandbox.control(*fault("buy_airtime", "cut_before", times=1))
    assert run.run_try().state == "failed"
    place = (dag.dag_id, run.run_id, "buy")
    assert CommandLine(monkeypatch, capsys, "cpaas", "journal")("resolve", "--sent", *place, "--yes").status == 0
    for amount in sequence:
        done = run.change(amount=amount).clear().run_try()
        assert done.state == "success", done.error
    with open_database() as database, database.connect() as connection:
        query = select(airtime_purchases).where(airtime_purchases.c.dag_id == dag.dag_id)
        found = connection.execute(query).one()
    expected = ("MTN", 100) if sequence[0] == 100 else ("", None)
    assert (found.network, found.amount) == expected
    assert found.reference == done.result["references"][0]


def test_purchase_is_recorded_without_the_number(task_runner: TaskRunner) -> None:
    with new_dag() as dag:
        BuyAirtimeOperator(task_id="buy", network="MTN", amount=100, recipient="+2348039990002")
    done = Run(task_runner, dag).run_try()
    with open_database() as database, database.connect() as connection:
        query = select(airtime_purchases).where(airtime_purchases.c.reference == done.result["references"][0])
        found = connection.execute(query).one()
    assert (found.network, found.amount, found.charge, found.dag_id) == ("MTN", 100, done.result["charge"], dag.dag_id)
    assert "2348039990002" not in str(tuple(found))
