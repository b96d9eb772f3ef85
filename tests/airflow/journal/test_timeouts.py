"""A task whose ``execution_timeout`` ends during its request, and is long enough for a busy machine to make it."""

from __future__ import annotations

import datetime as dt

import pytest

from tests.airflow.harness.campaigns import clear_faults, counts, limit_batches, rows, sms
from tests.airflow.harness.kinds import OTP, SMS, Kind
from tests.airflow.harness.task_runner import TaskRunner, fault

# The answer stalls for 5 s.
TIMEOUT = dt.timedelta(seconds=4)


@pytest.fixture
def patient_runner(task_runner: TaskRunner) -> TaskRunner:
    """A connection that waits for an answer longer than the task may run."""
    task_runner.connect("cpaas_default", timeout=30)
    return task_runner


@pytest.mark.parametrize("kind", [SMS, OTP], ids=lambda kind: kind.name)
def test_journal_is_written_before_airflow_ends_the_try(patient_runner: TaskRunner, kind: Kind) -> None:
    kind.lose(patient_runner, "stall_body")
    run = kind.run(patient_runner, execution_timeout=TIMEOUT, unknown_timeout=0)
    ended = run.run_try()
    ((reference, entry),) = run.journal().items()
    assert (ended.state, ended.references, entry["state"]) == ("up_for_retry", [reference], "unknown")
    assert "execution_timeout is about to end it" in ended.error


def test_try_that_airflow_ended_leaves_its_intent_in_the_journal(patient_runner: TaskRunner) -> None:
    SMS.lose(patient_runner, "stall_body")
    run = SMS.run(patient_runner, execution_timeout=TIMEOUT, stop_grace_period=0)
    run.run_try()
    failed = run.run_try()
    assert (failed.state, SMS.requests(patient_runner)) == ("failed", 1)
    assert failed.references == list(run.journal())


def test_journal_of_a_campaign_is_written_before_its_time_is_up(task_runner: TaskRunner) -> None:
    limit_batches(task_runner, timeout=30)
    task_runner.sandbox.control(*fault("send_sms", "stall_body", seconds=30, after=2))
    run = sms(task_runner, rows(5), execution_timeout=TIMEOUT, on_unknown="skip")
    ended = run.run_try()
    assert (ended.state, counts(ended.report)) == ("up_for_retry", {"sent": 2, "unknown_recipients": 1, "not_sent": 2})
    assert "execution_timeout is about to end it" in ended.error
    clear_faults(task_runner)
    done = run.run_try()
    assert (done.state, counts(done.result)) == ("success", {"sent": 4, "unknown_recipients": 1})
