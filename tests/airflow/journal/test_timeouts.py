"""A task whose ``execution_timeout`` ends during its request."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable

import pytest

from tests.airflow.harness.campaigns import clear_faults, counts, limit_batches, rows, sms
from tests.airflow.harness.kinds import OTP, SMS, Kind
from tests.airflow.harness.task_runner import TaskRunner, fault
from tests.airflow.harness.tries import Run, Try

TIMEOUTS = (2, 4, 8, 16, 32, 64)
"""Seconds: the first is enough for a quiet machine. A busy one may need longer to get as far as the request."""
ABOUT = "execution_timeout is about to end it"


def end_in_flight(
    task_runner: TaskRunner,
    operation: str,
    begin: Callable[[dt.timedelta], Run],
    requests: int = 1,
    reason: str = ABOUT,
) -> tuple[Run, Try]:
    """Return the first run whose try ended after it had made so many requests, and that try.

    :param begin: prepares the service, and returns a run with that ``execution_timeout``
    :param reason: part of the try's error: a try that stands still is ended by Airflow before it ends by itself
    """
    for seconds in TIMEOUTS:
        task_runner.sandbox.reset()
        run = begin(dt.timedelta(seconds=seconds))
        ended = run.run_try()
        if task_runner.sandbox.counters()["requests"].get(operation, 0) == requests and reason in ended.error:
            return run, ended
    pytest.fail(f"no try got as far as request {requests} within {TIMEOUTS[-1]} s")


def lose_response(task_runner: TaskRunner, kind: Kind) -> None:
    """Have the response stall for longer than any of the tries lasts."""
    task_runner.connect("cpaas_default", timeout=120)
    task_runner.sandbox.control(*fault(kind.operation, "stall_body", seconds=120))
    task_runner.sandbox.control(*fault("find_otps", "unauthorized"))


@pytest.mark.parametrize("kind", [SMS, OTP], ids=lambda kind: kind.name)
def test_journal_is_written_before_airflow_ends_the_try(task_runner: TaskRunner, kind: Kind) -> None:
    def begin(execution_timeout: dt.timedelta) -> Run:
        lose_response(task_runner, kind)
        return kind.run(task_runner, execution_timeout=execution_timeout, unknown_timeout=0)

    run, ended = end_in_flight(task_runner, kind.operation, begin)
    ((reference, entry),) = run.journal().items()
    assert (ended.state, ended.references, entry["state"]) == ("up_for_retry", [reference], "unknown")


def test_try_that_airflow_ended_leaves_its_intent_in_the_journal(task_runner: TaskRunner) -> None:
    def begin(execution_timeout: dt.timedelta) -> Run:
        lose_response(task_runner, SMS)
        return SMS.run(task_runner, execution_timeout=execution_timeout, stop_grace_period=0)

    run, _ = end_in_flight(task_runner, SMS.operation, begin, reason="")
    failed = run.change(execution_timeout=None).run_try()
    assert (failed.state, SMS.requests(task_runner)) == ("failed", 1)
    assert failed.references == list(run.journal())


def test_journal_of_a_campaign_is_written_before_its_time_is_up(task_runner: TaskRunner) -> None:
    def begin(execution_timeout: dt.timedelta) -> Run:
        limit_batches(task_runner, timeout=120)
        task_runner.sandbox.control(*fault("send_sms", "stall_body", seconds=120, after=2))
        return sms(task_runner, rows(5), execution_timeout=execution_timeout, on_unknown="skip")

    run, ended = end_in_flight(task_runner, "send_sms", begin, requests=3)
    assert (ended.state, counts(ended.report)) == ("up_for_retry", {"sent": 2, "unknown_recipients": 1, "not_sent": 2})
    clear_faults(task_runner)
    done = run.change(execution_timeout=None).run_try()
    assert (done.state, counts(done.result)) == ("success", {"sent": 4, "unknown_recipients": 1})
