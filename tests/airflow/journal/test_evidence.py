"""Probes that establish the outcome of an unknown request by its reference: the task is deferred until they do."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any, ClassVar

import msgspec.structs
import pytest

from cpaas_provider.api.errors import CpaasNotSentError
from cpaas_provider.operators.airtime import BuyAirtimeOperator
from cpaas_provider.operators.sms import SendSmsOperator
from cpaas_provider.sending import resolver
from cpaas_provider.sending.journal.model import RequestRecord
from tests.airflow.harness.kinds import SMS, FailsAfterSend
from tests.airflow.harness.task_runner import TaskRunner, phone
from tests.airflow.harness.tries import Run, new_dag

WAIT = "cpaas_provider.triggers.wait.WaitTrigger"


class Reports:
    """Evidence like delivery reports: for a while there is nothing, then there is something for a reference.

    :param after: how often it is asked in vain
    """

    def __init__(self, after: int, *, max_wait: float = 60, notes: Any = None, error: Exception | None = None) -> None:
        self.max_wait = dt.timedelta(seconds=max_wait)
        self.asked: list[RequestRecord] = []
        self._after = after
        self._notes = notes
        self._error = error

    async def snapshot(self, client: Any) -> Any:
        return self._notes

    async def check(self, client: Any, entry: RequestRecord) -> dict[str, Any] | None:
        self.asked.append(entry)
        if self._error:
            raise self._error
        return None if len(self.asked) <= self._after else {"id": f"reported of {entry.reference}", "charge": 4.0}


class Looking:
    """A request with ways to look afterwards.

    :param request: the operator's own
    """

    def __init__(self, request: Any, ways: Sequence[Reports]) -> None:
        self._request = request
        self._ways = ways

    def __getattr__(self, name: str) -> Any:
        return getattr(self._request, name)

    def build_spec(self, *given: Any) -> Any:
        return msgspec.structs.replace(self._request.build_spec(*given), probes=self._ways)


class SmsWithReports(SendSmsOperator):
    """Sends, and knows where to look afterwards."""

    ways: ClassVar[Sequence[Reports]] = ()

    def build_request(self) -> Any:
        return Looking(super().build_request(), self.ways)


class AirtimeWithReports(BuyAirtimeOperator):
    """Buys, and knows where to look afterwards."""

    ways: ClassVar[Sequence[Reports]] = ()

    def build_request(self) -> Any:
        return Looking(super().build_request(), self.ways)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolver, "_FIRST_PROBE", dt.timedelta(seconds=0.1))


@pytest.fixture
def sending(task_runner: TaskRunner, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a run whose first answer is lost, and which has these ways to find out."""

    def made(*ways: Reports, how: str = "cut_after", **given: Any) -> Run:
        monkeypatch.setattr(SmsWithReports, "ways", ways)
        SMS.lose(task_runner, how, times=1)
        with new_dag() as dag:
            SmsWithReports(task_id="send", **{**SMS.arguments(), **given})
        return Run(task_runner, dag)

    return made


def test_probe_with_an_immediate_outcome_resolves_the_request_in_the_same_try(
    task_runner: TaskRunner, sending: Any
) -> None:
    run = sending(Reports(after=0))
    done = run.run_try()
    (reference,) = run.journal()
    assert (done.state, done.number, done.result["id"]) == ("success", 1, f"reported of {reference}")
    assert (done.result["recipients"], done.result["unknown_recipients"], done.result["charge"]) == (1, 0, 4.0)
    assert SMS.requests(task_runner) == 1
    assert f"A probe established that request {reference} of unknown outcome was accepted." in done.log


def test_task_is_deferred_until_a_probe_has_an_outcome_and_uses_no_try(task_runner: TaskRunner, sending: Any) -> None:
    reports = Reports(after=2)
    run = sending(reports)
    first, second, third = run.run_to_end()
    assert [one.state for one in (first, second, third)] == ["deferred", "deferred", "success"]
    assert (third.number, third.result["recipients"], SMS.requests(task_runner)) == (1, 1, 1)
    assert first.trigger[0] == second.trigger[0] == WAIT
    assert {entry.reference for entry in reports.asked} == set(run.journal())
    assert "A probe may still resolve it. The task is deferred until" in first.log


def test_secret_removed_while_deferred_ends_the_try_and_works_once_listed_again(
    task_runner: TaskRunner, sending: Any
) -> None:
    run = sending(Reports(after=1), on_unknown="resend", retries=2)
    assert run.run_try().state == "deferred"
    task_runner.connect("cpaas_default", callback_secret="new", password="sk_test_the_new_one")
    ended = run.fire_trigger(early=True).run_try()
    assert (ended.state, SMS.requests(task_runner)) == ("up_for_retry", 1)
    assert "after the new one" in ended.error
    task_runner.connect(
        "cpaas_default", callback_secret=f"new, {task_runner.sandbox.api_key}", password="sk_test_the_new_one"
    )
    assert (run.run_try().state, SMS.requests(task_runner)) == ("success", 1)


def test_deferred_task_stores_nothing_private(sending: Any) -> None:
    deferred = sending(Reports(after=9)).run_try()
    assert phone("somebody")[1:] not in str((deferred.trigger, deferred.next_kwargs))


@pytest.mark.parametrize(
    ("on_unknown", "state", "requests"), [("fail", "failed", 1), ("skip", "success", 1), ("resend", "success", 2)]
)
def test_on_unknown_applies_after_unknown_timeout_without_an_outcome(
    task_runner: TaskRunner, sending: Any, on_unknown: str, state: str, requests: int
) -> None:
    run = sending(Reports(after=99), on_unknown=on_unknown, unknown_timeout=50)
    assert run.run_try().state == "deferred"
    assert run.fire_trigger(early=True).run_try().state == "deferred"
    last = run.backdate_requests(seconds=50).fire_trigger(early=True).run_try()
    assert (last.state, last.number, SMS.requests(task_runner)) == (state, 1, requests)
    assert (last.report or last.result)["unknown_recipients"] == (0 if on_unknown == "resend" else 1)


def test_wait_ends_after_the_max_wait_of_every_probe(sending: Any) -> None:
    run = sending(Reports(after=99, max_wait=50), unknown_timeout=600)
    assert run.run_try().state == "deferred"
    assert run.backdate_requests(seconds=50).fire_trigger(early=True).run_try().state == "failed"


def test_unknown_timeout_of_zero_does_not_defer(sending: Any) -> None:
    assert sending(Reports(after=99), unknown_timeout=0).run_try().state == "failed"


def test_snapshot_taken_before_the_request_is_passed_to_its_probe(sending: Any) -> None:
    noting, silent = Reports(after=1, notes={"seen": ["r1", "r2"]}), Reports(after=99)
    run = sending(silent, noting)
    assert [one.state for one in run.run_to_end()] == ["deferred", "success"]
    assert {str(entry.probe_snapshot) for entry in noting.asked} == {"{'seen': ['r1', 'r2']}"}
    assert {entry.probe_snapshot for entry in silent.asked} == {None}


def test_probe_that_cannot_be_reached_is_tried_later(task_runner: TaskRunner, sending: Any) -> None:
    blocked = Reports(after=0, error=CpaasNotSentError("The store of reports is away."))
    run = sending(blocked)
    first = run.run_try()
    assert (first.state, "failed: The store of reports is away." in first.log) == ("deferred", True)
    blocked._error = None
    assert (run.fire_trigger().run_try().state, SMS.requests(task_runner)) == ("success", 1)


def test_failing_probe_resolves_nothing_and_sends_nothing(task_runner: TaskRunner, sending: Any) -> None:
    broken = Reports(after=0, error=KeyError("column"))
    run = sending(broken)
    assert (run.run_try().state, SMS.requests(task_runner)) == ("up_for_retry", 1)
    broken._error = None
    assert (run.run_try().state, SMS.requests(task_runner)) == ("success", 1)


def test_later_try_probes_before_it_sends(task_runner: TaskRunner, sending: Any) -> None:
    run = sending(Reports(after=1), unknown_timeout=0, on_unknown="resend")
    SMS.lose(task_runner, "error_500")
    run.change(on_unknown="fail")
    assert run.run_try().state == "failed"
    again = run.change(on_unknown="resend").clear().run_try()
    assert (again.state, again.result["unknown_recipients"], SMS.requests(task_runner)) == ("success", 0, 1)


def test_changed_content_does_not_matter_if_a_probe_resolves_the_request(task_runner: TaskRunner, sending: Any) -> None:
    run = sending(Reports(after=1), unknown_timeout=0)
    run.run_try()
    again = run.change(content="Another text").clear().run_try()
    assert (again.state, SMS.requests(task_runner)) == ("success", 1)


def test_outcome_of_a_probe_is_stored_for_later_tries(task_runner: TaskRunner, sending: Any) -> None:
    reports = Reports(after=0)
    run = sending(reports, post_execute=FailsAfterSend(1))
    first, second = run.run_to_end()
    assert (first.state, second.state, len(reports.asked), SMS.requests(task_runner)) == (
        "up_for_retry",
        "success",
        1,
        1,
    )


def test_probe_resolves_a_purchase(task_runner: TaskRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AirtimeWithReports, "ways", (Reports(after=1),))
    from tests.airflow.harness.kinds import AIRTIME

    AIRTIME.lose(task_runner, "cut_after", times=1)
    with new_dag() as dag:
        AirtimeWithReports(task_id="send", **AIRTIME.arguments())
    waiting, done = Run(task_runner, dag).run_to_end()
    assert (waiting.state, done.state, AIRTIME.requests(task_runner)) == ("deferred", "success", 1)
