"""Backfills, catch-ups and late runs of campaigns: a message of last March helps nobody."""

from __future__ import annotations

import datetime as dt

from airflow.sdk import timezone
from airflow.utils.types import DagRunType

from tests.airflow.harness.campaigns import accept_all, counts, requests, rows, small_packs, sms
from tests.airflow.harness.stage import Stage, fault
from tests.airflow.harness.tries import scheduled_at

DAY = dt.timedelta(days=1)
DAILY = {"schedule": DAY, "start_date": timezone.datetime(2026, 1, 1)}


def ago(days: float) -> dt.datetime:
    return timezone.utcnow() - days * DAY


def test_a_backfill_is_skipped(stage: Stage) -> None:
    facts = {"run_type": DagRunType.BACKFILL_JOB, "run_after": timezone.utcnow()}
    skipped = sms(stage, rows(3), dag=DAILY, run=facts).once()
    assert (skipped.state, requests(stage)) == ("skipped", 0)


def test_unless_the_author_allows_it(stage: Stage) -> None:
    facts = {"run_type": DagRunType.BACKFILL_JOB, "run_after": ago(90)}
    assert sms(stage, rows(3), dag=DAILY, run=facts, allow_backfill=True).once().state == "success"


def test_a_run_that_catches_up_is_skipped(stage: Stage) -> None:
    facts = scheduled_at(ago(2), started=timezone.utcnow())
    skipped = sms(stage, rows(3), dag={**DAILY, "catchup": True}, run=facts, max_lateness=None).once()
    assert (skipped.state, requests(stage)) == ("skipped", 0)


def test_a_late_run_is_skipped(stage: Stage) -> None:
    skipped = sms(stage, rows(3), run={"run_after": ago(1.1)}).once()
    assert (skipped.state, requests(stage)) == ("skipped", 0)
    assert "max_lateness" in skipped.log
    assert sms(stage, rows(3), run={"run_after": ago(1.1)}, max_lateness=2 * DAY).once().state == "success"


def test_a_dry_run_may_be_late(stage: Stage) -> None:
    assert sms(stage, rows(3), run={"run_after": ago(30)}, dry_run=True).once().state == "success"


def test_a_late_clear_of_what_was_done_returns_it(stage: Stage) -> None:
    run = sms(stage, rows(3))
    first = run.once()
    again = run.age(days=30).clear().once()
    assert (again.state, again.result, requests(stage)) == ("success", first.result, 1)


def test_what_is_left_of_a_late_one_is_not_sent_and_what_was_done_is_told(stage: Stage) -> None:
    small_packs(stage)
    stage.sandbox.control(*fault("send_sms", "unauthorized", after=2))
    run = sms(stage, rows(5))
    run.once()
    accept_all(stage)
    before = requests(stage)
    failed = run.age(days=30).clear().once()
    assert (failed.state, requests(stage)) == ("failed", before)
    assert counts(failed.report) == {"sent": 2, "not_sent": 3}
    assert "An earlier try sent a request" in failed.error


def test_what_is_unknown_is_not_resent_late(stage: Stage) -> None:
    stage.sandbox.control(*fault("send_sms", "cut_after", times=1))
    run = sms(stage, rows(2))
    run.once()
    failed = run.change(on_unknown="resend").age(days=30).clear().once()
    assert (failed.state, requests(stage)) == ("failed", 1)
