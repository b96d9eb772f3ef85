"""A campaign that is told to stop, or whose time is up: nothing further leaves, what is under way is noted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from tests.airflow.harness.campaigns import accept_all, counts, digits, reached, requests, rows, small_packs, sms
from tests.airflow.harness.stage import Stage, fault
from tests.airflow.journal.test_stopping import Stopper

TEN = digits(10)


@pytest.fixture
def stopper() -> Iterator[Stopper]:
    one = Stopper()
    yield one
    one.over()


def test_answers_that_come_in_the_last_moment_are_settled_and_the_next_try_sends_the_rest(
    stage: Stage, stopper: Stopper
) -> None:
    small_packs(stage, max_concurrency=2)
    stage.sandbox.control(*fault("send_sms", "slow_drip", seconds=0.3))
    stopper.when(lambda: len(reached(stage)) >= 4)
    run = sms(stage, rows(10), pre_execute=stopper.begins)
    stopped = run.once()
    found = counts(stopped.report)
    assert (stopped.state, found.get("unknown_recipients", 0)) == ("up_for_retry", 0)
    assert 4 <= found["sent"] < 10
    assert "stopped the task" in stopped.error
    accept_all(stage)
    done = run.change(_pre_execute_hook=None).once()
    assert (done.state, reached(stage)) == ("success", Counter(TEN))


def test_without_an_answer_it_is_noted_as_unknown_and_at_most_what_was_under_way(
    stage: Stage, stopper: Stopper
) -> None:
    small_packs(stage, max_concurrency=2)
    stage.sandbox.control(*fault("send_sms", "stall_body", seconds=30, after=4))
    stopper.when(lambda: len(reached(stage)) >= 5)
    run = sms(stage, rows(10), pre_execute=stopper.begins, stop_grace_period=0.3, on_unknown="skip")
    stopped = run.once()
    found = counts(stopped.report)
    assert (stopped.state, found["sent"]) == ("up_for_retry", 4)
    assert 1 <= found["unknown_recipients"] <= 2
    accept_all(stage)
    done = run.change(_pre_execute_hook=None).once()
    assert done.state == "success"
    assert counts(done.result) == {
        "sent": 10 - found["unknown_recipients"],
        "unknown_recipients": found["unknown_recipients"],
    }
    assert max(reached(stage).values()) == 1


def test_told_before_anything_left_it_sends_nothing(stage: Stage, stopper: Stopper) -> None:
    run = sms(stage, rows(10), pre_execute=stopper.at_once)
    stopped = run.once()
    assert (stopped.state, requests(stage)) == ("up_for_retry", 0)
    assert (run.change(_pre_execute_hook=None).once().state, reached(stage)) == ("success", Counter(TEN))


def test_a_service_that_asks_for_patience_does_not_keep_it(stage: Stage, stopper: Stopper) -> None:
    stage.sandbox.control(*fault("send_sms", "rate_limit", retry_after=30, times=1))
    stopper.when(lambda: requests(stage))
    run = sms(stage, rows(3), pre_execute=stopper.begins)
    stopped = run.once()
    assert (stopped.state, counts(stopped.report)) == ("up_for_retry", {"not_sent": 3})
    assert (run.change(_pre_execute_hook=None).once().state, reached(stage)) == ("success", Counter(digits(3)))


def test_told_when_all_is_sent_it_ends_as_it_would_have(stage: Stage) -> None:
    """The event loop is gone by then; what a signal handler calls must not stumble over that."""

    def afterwards(context: object, result: object) -> None:
        run.dag.get_task("campaign").on_kill()

    run = sms(stage, rows(3), post_execute=afterwards)
    assert run.once().state == "success"
