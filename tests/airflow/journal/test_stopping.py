"""A task that is stopped or times out: a response within the grace period counts, and every request is recorded."""

from __future__ import annotations

import datetime as dt
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from cpaas_provider.hooks.connection import CpaasConnection
from cpaas_provider.operators import base
from cpaas_provider.sending import shutdown
from tests.airflow.harness.kinds import AIRTIME, OTP, ROW, SMS, Kind
from tests.airflow.harness.task_runner import TaskRunner, fault
from tests.waiting import until

ENOUGH = pytest.mark.parametrize("kind", [SMS, AIRTIME, ROW], ids=lambda kind: kind.name)


class Stopper:
    """Stops a running task, as Airflow does, when something has happened.

    Its ``start`` is the task's ``pre_execute``.
    """

    def __init__(self) -> None:
        self._running: Any = None
        self._thread: threading.Thread | None = None
        self._when: Callable[[], Any] | None = None

    def stop_when(self, happened: Callable[[], Any]) -> None:
        self._when = happened

    def start(self, context: Any) -> None:
        self._running = context["task"]
        if self._when is not None:
            self._thread = threading.Thread(target=self._stop)
            self._thread.start()

    def stop_at_once(self, context: Any) -> None:
        context["task"].on_kill()

    def join(self) -> None:
        if self._thread is not None:
            self._thread.join(10)

    def _stop(self) -> None:
        assert self._when is not None
        until(self._when)
        self._when = None
        # Airflow may say it more than once.
        self._running.on_kill()
        self._running.on_kill()


@pytest.fixture
def stopper() -> Iterator[Stopper]:
    one = Stopper()
    yield one
    one.join()


@ENOUGH
def test_response_within_the_stop_grace_period_is_recorded(
    task_runner: TaskRunner, stopper: Stopper, kind: Kind
) -> None:
    task_runner.sandbox.control(*fault(kind.operation, "slow_drip", seconds=0.5))
    stopper.stop_when(lambda: kind.inbox_items(task_runner))
    run = kind.run(task_runner, pre_execute=stopper.start)
    done = run.run_try()
    assert (done.state, done.result["unknown_recipients"], len(kind.inbox_items(task_runner))) == ("success", 0, 1)
    assert [entry["state"] for entry in run.journal().values()] == ["accepted"]


@ENOUGH
def test_request_without_a_response_is_recorded_as_unknown_before_the_task_ends(
    task_runner: TaskRunner, stopper: Stopper, kind: Kind
) -> None:
    kind.lose(task_runner, "stall_body")
    stopper.stop_when(lambda: kind.inbox_items(task_runner))
    run = kind.run(task_runner, pre_execute=stopper.start, stop_grace_period=0.2, unknown_timeout=0)
    stopped = run.run_try()
    ((reference, entry),) = run.journal().items()
    assert (stopped.state, stopped.references, entry["state"]) == ("up_for_retry", [reference], "unknown")
    assert "stopped the task" in entry["reason"]
    assert stopped.report["unknown_references"] == [reference]
    task_runner.sandbox.control("DELETE", "faults")
    kind.lose(task_runner, "cut_before")
    failed = run.run_try()
    assert (failed.state, failed.references, kind.requests(task_runner)) == ("failed", [reference], 1)


def test_passcode_of_a_stopped_try_is_found_by_the_next(task_runner: TaskRunner, stopper: Stopper) -> None:
    task_runner.sandbox.control(*fault("request_otp", "stall_body", seconds=5, times=1))
    stopper.stop_when(lambda: OTP.inbox_items(task_runner))
    first, second = OTP.run(task_runner, pre_execute=stopper.start, stop_grace_period=0.2).run_to_end()
    assert (first.state, second.state, OTP.requests(task_runner)) == ("up_for_retry", "success", 1)
    assert [one["id"] for one in OTP.inbox_items(task_runner)] == [second.result["id"]]


@ENOUGH
def test_task_stopped_before_its_request_sends_nothing_and_its_retry_sends(
    task_runner: TaskRunner, stopper: Stopper, kind: Kind
) -> None:
    run = kind.run(task_runner, pre_execute=stopper.stop_at_once)
    first = run.run_try()
    assert (first.state, kind.requests(task_runner), run.journal()) == ("up_for_retry", 0, {})
    assert "stopped the task. Nothing more was sent" in first.error
    run.change(_pre_execute_hook=None)
    second = run.run_try()
    assert (second.state, len(kind.inbox_items(task_runner))) == ("success", 1)


def test_request_waiting_for_its_retry_ends_as_not_sent(task_runner: TaskRunner, stopper: Stopper) -> None:
    task_runner.sandbox.control(*fault("send_sms", "rate_limit", retry_after=30, times=1))
    stopper.stop_when(lambda: SMS.requests(task_runner))
    run = SMS.run(task_runner, pre_execute=stopper.start)
    first = run.run_try()
    assert (first.state, [entry["state"] for entry in run.journal().values()]) == ("up_for_retry", ["not_sent"])
    assert (run.run_try().state, len(SMS.inbox_items(task_runner))) == ("success", 1)


def test_stopped_task_begins_no_resend(task_runner: TaskRunner, stopper: Stopper) -> None:
    SMS.lose(task_runner, "stall_body")
    stopper.stop_when(lambda: SMS.inbox_items(task_runner))
    run = SMS.run(task_runner, pre_execute=stopper.start, stop_grace_period=0.2, on_unknown="resend")
    assert (run.run_try().state, SMS.requests(task_runner)) == ("up_for_retry", 1)


class TestExecutionTimeout:
    def test_execution_timeout_counts_from_where_airflow_counts(
        self, task_runner: TaskRunner, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Imports, connection and database come after that, and may take long."""
        gone = 0.0
        clock = SimpleNamespace(monotonic=lambda: time.monotonic() + gone)
        made = CpaasConnection.make_async_client

        def slow(connection: CpaasConnection) -> Any:
            nonlocal gone
            gone = 57.0
            return made(connection)

        monkeypatch.setattr(CpaasConnection, "make_async_client", slow)
        monkeypatch.setattr(base, "time", clock)
        monkeypatch.setattr(shutdown, "time", clock)
        run = SMS.run(task_runner, execution_timeout=dt.timedelta(seconds=60))
        ended = run.run_try()
        assert (ended.state, SMS.requests(task_runner)) == ("up_for_retry", 0)
        assert "execution_timeout is about to end it" in ended.error

    def test_response_before_the_execution_timeout_is_recorded(self, task_runner: TaskRunner) -> None:
        task_runner.sandbox.control(*fault("send_sms", "slow_drip", seconds=0.3))
        run = SMS.run(task_runner, execution_timeout=dt.timedelta(seconds=5))
        assert run.run_try().state == "success"
