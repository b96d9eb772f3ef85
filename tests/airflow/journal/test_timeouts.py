"""A task whose ``execution_timeout`` is up in the middle, and long enough for a busy machine to make the request."""

from __future__ import annotations

import datetime as dt

import pytest

from tests.airflow.harness.campaigns import accept_all, counts, rows, small_packs, sms
from tests.airflow.harness.kinds import OTP, SMS, Kind
from tests.airflow.harness.stage import Stage, fault

# The answer stalls for 5 s.
TIMEOUT = dt.timedelta(seconds=4)


@pytest.fixture
def patient(stage: Stage) -> Stage:
    """A connection that waits for an answer longer than the task may run."""
    stage.connect("cpaas_default", timeout=30)
    return stage


@pytest.mark.parametrize("kind", [SMS, OTP], ids=lambda kind: kind.name)
def test_the_journal_is_written_before_airflow_ends_the_try(patient: Stage, kind: Kind) -> None:
    kind.lose(patient, "stall_body")
    run = kind.run(patient, execution_timeout=TIMEOUT, unknown_timeout=0)
    ended = run.once()
    ((reference, entry),) = run.journal().items()
    assert (ended.state, ended.references, entry["state"]) == ("up_for_retry", [reference], "unknown")
    assert "execution_timeout is about to end it" in ended.error


def test_a_try_that_airflow_ended_all_the_same_leaves_its_claim(patient: Stage) -> None:
    SMS.lose(patient, "stall_body")
    run = SMS.run(patient, execution_timeout=TIMEOUT, stop_grace_period=0)
    run.once()
    failed = run.once()
    assert (failed.state, SMS.requests(patient)) == ("failed", 1)
    assert failed.references == list(run.journal())


def test_the_journal_of_a_campaign_is_written_before_its_time_is_up(stage: Stage) -> None:
    small_packs(stage, timeout=30)
    stage.sandbox.control(*fault("send_sms", "stall_body", seconds=30, after=2))
    run = sms(stage, rows(5), execution_timeout=TIMEOUT, on_unknown="skip")
    ended = run.once()
    assert (ended.state, counts(ended.report)) == ("up_for_retry", {"sent": 2, "unknown_recipients": 1, "not_sent": 2})
    assert "execution_timeout is about to end it" in ended.error
    accept_all(stage)
    done = run.once()
    assert (done.state, counts(done.result)) == ("success", {"sent": 4, "unknown_recipients": 1})
