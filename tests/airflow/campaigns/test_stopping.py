"""A campaign that is stopped or times out: it begins no further request and records those in flight."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from tests.airflow.harness.campaigns import (
    clear_faults,
    count_messages,
    counts,
    digits,
    limit_batches,
    requests,
    rows,
    sms,
)
from tests.airflow.harness.task_runner import TaskRunner, fault
from tests.airflow.journal.test_stopping import Stopper

TEN = digits(10)


@pytest.fixture
def stopper() -> Iterator[Stopper]:
    one = Stopper()
    yield one
    one.join()


def test_responses_within_the_grace_period_are_recorded_and_the_retry_continues(
    task_runner: TaskRunner, stopper: Stopper
) -> None:
    limit_batches(task_runner, max_concurrency=2)
    task_runner.sandbox.control(*fault("send_sms", "slow_drip", seconds=0.3))
    stopper.stop_when(lambda: len(count_messages(task_runner)) >= 4)
    run = sms(task_runner, rows(10), pre_execute=stopper.start)
    stopped = run.run_try()
    found = counts(stopped.report)
    assert (stopped.state, found.get("unknown_recipients", 0)) == ("up_for_retry", 0)
    assert 4 <= found["sent"] < 10
    assert "stopped the task" in stopped.error
    clear_faults(task_runner)
    done = run.change(_pre_execute_hook=None).run_try()
    assert (done.state, count_messages(task_runner)) == ("success", Counter(TEN))


def test_requests_in_flight_without_a_response_are_recorded_as_unknown(
    task_runner: TaskRunner, stopper: Stopper
) -> None:
    limit_batches(task_runner, max_concurrency=2)
    task_runner.sandbox.control(*fault("send_sms", "stall_body", seconds=30, after=4))
    stopper.stop_when(lambda: len(count_messages(task_runner)) >= 5)
    run = sms(task_runner, rows(10), pre_execute=stopper.start, stop_grace_period=0.3, on_unknown="skip")
    stopped = run.run_try()
    found = counts(stopped.report)
    assert (stopped.state, found["sent"]) == ("up_for_retry", 4)
    assert 1 <= found["unknown_recipients"] <= 2
    clear_faults(task_runner)
    done = run.change(_pre_execute_hook=None).run_try()
    assert done.state == "success"
    assert counts(done.result) == {
        "sent": 10 - found["unknown_recipients"],
        "unknown_recipients": found["unknown_recipients"],
    }
    assert max(count_messages(task_runner).values()) == 1


def test_stop_before_the_first_request_sends_nothing(task_runner: TaskRunner, stopper: Stopper) -> None:
    run = sms(task_runner, rows(10), pre_execute=stopper.stop_at_once)
    stopped = run.run_try()
    assert (stopped.state, requests(task_runner)) == ("up_for_retry", 0)
    assert (run.change(_pre_execute_hook=None).run_try().state, count_messages(task_runner)) == (
        "success",
        Counter(TEN),
    )


def test_stop_does_not_wait_for_retry_after(task_runner: TaskRunner, stopper: Stopper) -> None:
    task_runner.sandbox.control(*fault("send_sms", "rate_limit", retry_after=30, times=1))
    stopper.stop_when(lambda: requests(task_runner))
    run = sms(task_runner, rows(3), pre_execute=stopper.start)
    stopped = run.run_try()
    assert (stopped.state, counts(stopped.report)) == ("up_for_retry", {"not_sent": 3})
    assert (run.change(_pre_execute_hook=None).run_try().state, count_messages(task_runner)) == (
        "success",
        Counter(digits(3)),
    )


def test_stop_after_the_last_request_changes_nothing(task_runner: TaskRunner) -> None:
    """The event loop is gone by then; what a signal handler calls must not stumble over that."""

    def afterwards(context: object, result: object) -> None:
        run.dag.get_task("campaign").on_kill()

    run = sms(task_runner, rows(3), post_execute=afterwards)
    assert run.run_try().state == "success"
