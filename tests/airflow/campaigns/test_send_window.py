"""The send window: open it sends, closed it defers, and a recipient whose window is open does not wait for others."""

from __future__ import annotations

import datetime as dt
import itertools
from collections import Counter
from typing import Any

import pytest
from airflow.sdk import timezone

from cpaas_provider.sending.campaign import batcher
from tests.airflow.harness.campaigns import count_messages, counts, digits, limit_batches, requests, rows, sms
from tests.airflow.harness.task_runner import TaskRunner, fault

HOUR = dt.timedelta(hours=1)


def window(opens: float, closes: float) -> dict[str, Any]:
    """Return a window that opens and closes so many hours from now."""
    now = timezone.utcnow()
    times = [(now + hours * HOUR).strftime("%H:%M:%S") for hours in (opens, closes)]
    return {"send_window": tuple(times), "timezone": "UTC"}


def until(one: Any) -> dt.timedelta:
    """Return how long a deferred try waits."""
    return dt.datetime.fromisoformat(one.trigger[1]["until"]) - timezone.utcnow()


@pytest.fixture
def hours(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Let hours pass, as far as send windows go: call it with how many."""

    def pass_by(count: float) -> None:
        clock = type(
            "Clock", (dt.datetime,), {"now": classmethod(lambda _, zone: dt.datetime.now(zone) + count * HOUR)}
        )
        monkeypatch.setattr(batcher, "datetime", clock)

    return pass_by


def test_open_window_sends(task_runner: TaskRunner) -> None:
    done = sms(task_runner, rows(3), **window(-1, 1)).run_try()
    assert (done.state, count_messages(task_runner)) == ("success", Counter(digits(3)))


def test_open_window_across_midnight_sends(task_runner: TaskRunner) -> None:
    assert sms(task_runner, rows(3), **window(-1, 22)).run_try().state == "success"


def test_closed_window_defers_until_it_opens(task_runner: TaskRunner, hours: Any) -> None:
    run = sms(task_runner, rows(3), **window(2, 5))
    deferred = run.run_try()
    assert (deferred.state, requests(task_runner)) == ("deferred", 0)
    assert 1.9 * HOUR < until(deferred) <= 2 * HOUR
    hours(3)
    resumed = run.fire_trigger(early=True).run_try()
    assert (resumed.state, resumed.number, count_messages(task_runner)) == ("success", 1, Counter(digits(3)))


def test_window_that_closes_midway_defers_remaining_recipients(
    task_runner: TaskRunner, hours: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit_batches(task_runner)
    run = sms(task_runner, rows(6), **window(-1, 1))
    asked = iter([0, 0, 0])
    now = dt.datetime.now
    clock = type("Clock", (dt.datetime,), {"now": classmethod(lambda _, zone: now(zone) + next(asked, 2) * HOUR)})
    monkeypatch.setattr(batcher, "datetime", clock)
    deferred = run.run_try()
    assert deferred.state == "deferred"
    sent = sum(count_messages(task_runner).values())
    assert 0 < sent < 6
    assert 20.9 * HOUR < until(deferred) < 23.1 * HOUR
    monkeypatch.undo()
    hours(24)
    resumed = run.fire_trigger(early=True).run_try()
    assert (resumed.state, count_messages(task_runner), counts(resumed.result)) == (
        "success",
        Counter(digits(6)),
        {"sent": 6},
    )


def test_campaign_that_began_in_time_is_not_stale_when_it_resumes(task_runner: TaskRunner, hours: Any) -> None:
    run = sms(task_runner, rows(3), max_lateness=HOUR, **window(2, 5))
    assert run.run_try().state == "deferred"
    hours(3)
    run.age(days=2)
    assert run.fire_trigger(early=True).run_try().state == "success"


class TestTimezoneColumn:
    def people(self) -> list[dict[str, Any]]:
        """Two whose clock is the campaign's and two whose clock is twelve hours on."""
        here, there = rows(2, zone="Etc/UTC"), rows(2, 10, zone="Etc/GMT-12")
        return [here[0], there[0], here[1], there[1]]

    def test_recipients_are_sent_to_when_the_window_of_their_timezone_is_open(
        self, task_runner: TaskRunner, hours: Any
    ) -> None:
        given = {**window(-1, 3), "timezone_column": "zone"}
        run = sms(task_runner, self.people(), **given)
        deferred = run.run_try()
        assert (deferred.state, count_messages(task_runner)) == ("deferred", Counter(digits(2)))
        assert 10.9 * HOUR < until(deferred) < 11.1 * HOUR
        hours(12)
        resumed = run.fire_trigger(early=True).run_try()
        assert (resumed.state, count_messages(task_runner)) == ("success", Counter([*digits(2), *digits(2, 10)]))

    def test_no_recipient_is_sent_to_before_a_test_recipient_whose_window_is_closed(
        self, task_runner: TaskRunner, hours: Any
    ) -> None:
        tests = [*rows(1, 20, zone="Etc/UTC"), *rows(1, 30, zone="Etc/GMT-12")]
        given = {**window(-1, 3), "timezone_column": "zone", "test_recipients": tests}
        run = sms(task_runner, self.people(), **given)
        deferred = run.run_try()
        assert (deferred.state, count_messages(task_runner)) == ("deferred", Counter(digits(1, 20)))
        hours(12)
        task_runner.sandbox.control(*fault("send_sms", "error_under_200", times=1, body_status=400))
        failed = run.fire_trigger(early=True).run_try()
        assert (failed.state, count_messages(task_runner)) == ("failed", Counter(digits(1, 20)))

    def test_unknown_timezone_is_an_invalid_row(self, task_runner: TaskRunner) -> None:
        given = {**window(-1, 3), "timezone_column": "zone"}
        failed = sms(task_runner, [*rows(2, zone="Etc/UTC"), *rows(1, 5, zone="Mars/Olympus")], **given).run_try()
        assert counts(failed.report) == {"sent": 2, "invalid_rows": 1}


def test_retry_outside_the_window_is_deferred(task_runner: TaskRunner, hours: Any) -> None:
    limit_batches(task_runner)
    run = sms(
        task_runner,
        rows(3),
        cpaas_conn_id="cpaas_{{ 'refused' if ti.try_number == 1 else 'default' }}",
        **window(-1, 1),
    )
    assert run.run_try().state == "up_for_retry"
    hours(3)
    assert (run.run_try().state, requests(task_runner)) == ("deferred", 0)


def test_unknown_request_is_not_resent_outside_the_window(task_runner: TaskRunner, hours: Any) -> None:
    task_runner.sandbox.control("POST", "faults", {"operation": "send_sms", "kind": "cut_after", "times": 1})
    run = sms(task_runner, rows(2), **window(-1, 1))
    assert run.run_try().state == "failed"
    hours(3)
    again = run.change(on_unknown="resend").clear().run_try()
    assert (again.state, requests(task_runner)) == ("deferred", 1)


def test_resend_is_deferred_when_the_window_closes_while_it_is_under_way(
    task_runner: TaskRunner, hours: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit_batches(task_runner)
    task_runner.sandbox.control("POST", "faults", {"operation": "send_sms", "kind": "cut_after", "times": 4})
    run = sms(task_runner, rows(4), **window(-1, 1))
    assert run.run_try().state == "failed"
    asked = itertools.chain([0, 0, 0], itertools.repeat(2))
    now = dt.datetime.now
    clock = type("Clock", (dt.datetime,), {"now": classmethod(lambda _, zone: now(zone) + next(asked) * HOUR)})
    monkeypatch.setattr(batcher, "datetime", clock)
    deferred = run.change(on_unknown="resend").clear().run_try()
    assert deferred.state == "deferred"
    assert 4 < requests(task_runner) < 8
    monkeypatch.undo()
    hours(24)
    resumed = run.fire_trigger(early=True).run_try()
    assert (resumed.state, counts(resumed.result), requests(task_runner)) == ("success", {"sent": 4}, 8)


def test_campaign_cleared_while_deferred_sends_when_the_window_is_open(task_runner: TaskRunner, hours: Any) -> None:
    """Nothing was claimed yet, so nothing is in doubt."""
    run = sms(task_runner, rows(3), **window(2, 5))
    assert run.run_try().state == "deferred"
    hours(3)
    assert (run.clear().run_try().state, count_messages(task_runner)) == ("success", Counter(digits(3)))


@pytest.mark.parametrize(
    "given",
    [
        {"send_window": ("09:00", "20:00")},
        {"send_window": "09:00-20:00", "timezone": "UTC"},
        {"send_window": ("09:00", "20:00"), "timezone": "Africa/Atlantis"},
        {"timezone": "UTC"},
        {"timezone_column": "zone"},
    ],
)
def test_invalid_window_is_refused_in_the_dag_file(task_runner: TaskRunner, given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"send_window|timezone"):
        sms(task_runner, rows(1), **given)
