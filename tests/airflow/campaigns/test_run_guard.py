"""Backfills, catch-up runs and stale runs of campaigns do not send."""

from __future__ import annotations

import datetime as dt

from airflow.sdk import timezone
from airflow.utils.types import DagRunType

from tests.airflow.harness.campaigns import clear_faults, counts, limit_batches, requests, rows, sms
from tests.airflow.harness.task_runner import TaskRunner, fault
from tests.airflow.harness.tries import scheduled_at

DAY = dt.timedelta(days=1)
DAILY = {"schedule": DAY, "start_date": timezone.datetime(2026, 1, 1)}


def ago(days: float) -> dt.datetime:
    return timezone.utcnow() - days * DAY


def test_backfill_is_skipped(task_runner: TaskRunner) -> None:
    facts = {"run_type": DagRunType.BACKFILL_JOB, "run_after": timezone.utcnow()}
    skipped = sms(task_runner, rows(3), dag=DAILY, run=facts).run_try()
    assert (skipped.state, requests(task_runner)) == ("skipped", 0)


def test_backfill_sends_with_allow_backfill(task_runner: TaskRunner) -> None:
    facts = {"run_type": DagRunType.BACKFILL_JOB, "run_after": ago(90)}
    assert sms(task_runner, rows(3), dag=DAILY, run=facts, allow_backfill=True).run_try().state == "success"


def test_catch_up_run_is_skipped(task_runner: TaskRunner) -> None:
    facts = scheduled_at(ago(2), started=timezone.utcnow())
    skipped = sms(task_runner, rows(3), dag={**DAILY, "catchup": True}, run=facts, max_lateness=None).run_try()
    assert (skipped.state, requests(task_runner)) == ("skipped", 0)


def test_late_run_is_skipped(task_runner: TaskRunner) -> None:
    skipped = sms(task_runner, rows(3), run={"run_after": ago(1.1)}).run_try()
    assert (skipped.state, requests(task_runner)) == ("skipped", 0)
    assert "max_lateness" in skipped.log
    assert sms(task_runner, rows(3), run={"run_after": ago(1.1)}, max_lateness=2 * DAY).run_try().state == "success"


def test_dry_run_may_be_late(task_runner: TaskRunner) -> None:
    assert sms(task_runner, rows(3), run={"run_after": ago(30)}, dry_run=True).run_try().state == "success"


def test_late_clear_of_a_finished_campaign_returns_its_result(task_runner: TaskRunner) -> None:
    run = sms(task_runner, rows(3))
    first = run.run_try()
    again = run.age(days=30).clear().run_try()
    assert (again.state, again.result, requests(task_runner)) == ("success", first.result, 1)


def test_late_clear_of_a_partly_sent_campaign_fails_with_its_counts(task_runner: TaskRunner) -> None:
    limit_batches(task_runner)
    task_runner.sandbox.control(*fault("send_sms", "unauthorized", after=2))
    run = sms(task_runner, rows(5))
    run.run_try()
    clear_faults(task_runner)
    before = requests(task_runner)
    failed = run.age(days=30).clear().run_try()
    assert (failed.state, requests(task_runner)) == ("failed", before)
    assert counts(failed.report) == {"sent": 2, "not_sent": 3}
    assert "An earlier try sent a request" in failed.error


def test_unknown_request_is_not_resent_late(task_runner: TaskRunner) -> None:
    task_runner.sandbox.control(*fault("send_sms", "cut_after", times=1))
    run = sms(task_runner, rows(2))
    run.run_try()
    failed = run.change(on_unknown="resend").age(days=30).clear().run_try()
    assert (failed.state, requests(task_runner)) == ("failed", 1)
