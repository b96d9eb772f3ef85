"""A purchase of unknown outcome with a delivery report: the status of the report decides."""

from __future__ import annotations

import asyncio
import datetime as dt
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cpaas_provider.database.database import open_database
from cpaas_provider.delivery.receiver.writer import ReceivedReport
from cpaas_provider.sending import engine as engine_module
from cpaas_provider.sending import resolver
from cpaas_provider.sending.errors import RefutedError, UnknownOutcomeError
from cpaas_provider.sending.journal.model import RequestRecord
from cpaas_provider.sending.spec import OnUnknown
from cpaas_provider.tasks.delivery.tracker import PurchaseReportProbe
from tests.airflow.delivery.test_callbacks import Received, received
from tests.airflow.harness.kinds import AIRTIME
from tests.airflow.harness.task_runner import TaskRunner, digits, fault
from tests.airflow.harness.tries import Run, Try
from tests.unit.delivery.report_builders import WHEN, report, save_reports, token_for
from tests.unit.sending.model import AtRequest, Plan, World
from tests.unit.sending.ports import FunctionClient
from tests.unit.sending.records import record

WHO = digits("somebody")
__all__ = ["received"]


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolver, "_FIRST_PROBE", dt.timedelta(seconds=0.1))


def make_report(reference: str, status: str, at: dt.datetime | None = None) -> ReceivedReport:
    """Return a report of a request that the service never answered."""
    token = token_for(WHO, campaign=reference, reference=reference)
    one = report(WHO, status, token=token, conn_id="cpaas_default", id="buy-1")
    return ReceivedReport(one.conn_id, one.source, one.token, one.report, one.body, at or dt.datetime.now(dt.UTC))


def lost(task_runner: TaskRunner, **given: object) -> tuple[Run, str]:
    """Return a run that waits to learn what became of its purchase, which the service does not know of."""
    task_runner.sandbox.control(*fault("buy_airtime", "cut_before", times=1))
    run = AIRTIME.run(task_runner, **given)
    assert run.run_try().state == "deferred"
    (reference,) = run.journal()
    return run, reference


def after(task_runner: TaskRunner, received: Received, *statuses: str) -> tuple[Run, Try]:
    """Return a run, and what became of it when reports with these statuses came."""
    run, reference = lost(task_runner)
    save_reports(received.store, *(make_report(reference, status) for status in statuses))
    return run, run.run_try()


@pytest.mark.parametrize("status", ["success", "sent", "pending"])
def test_report_of_a_purchase_resolves_it(task_runner: TaskRunner, received: Received, status: str) -> None:
    _, done = after(task_runner, received, status)
    assert (done.state, done.result["id"], done.result["status"]) == ("success", "buy-1", status)
    assert AIRTIME.requests(task_runner) == 1


@pytest.mark.parametrize(("amount", "named"), [(100, 100), (200, None)], ids=["same-amount", "changed-amount"])
def test_report_of_an_earlier_purchase_names_no_amount_that_was_not_bought(
    task_runner: TaskRunner, received: Received, amount: int, named: int | None
) -> None:
    run, reference = lost(task_runner)
    save_reports(received.store, make_report(reference, "success"))
    done = run.change(amount=amount).run_try()
    assert (done.state, done.result["amount"], AIRTIME.requests(task_runner)) == ("success", named, 1)


@pytest.mark.parametrize("status", ["failed", "error", "duplicate"])
def test_report_of_a_failed_purchase_fails_the_task_with_the_reason(
    task_runner: TaskRunner, received: Received, status: str
) -> None:
    run, failed = after(task_runner, received, "pending", status)
    assert failed.state == "failed"
    assert f"Airtime was not bought: a delivery report has the status {status}" in failed.error
    assert "outcome unknown" not in failed.error.lower()
    assert [entry["state"] for entry in run.journal().values()] == ["rejected"]
    assert AIRTIME.requests(task_runner) == 1
    # Nothing was bought, so it is bought when the task is cleared.
    assert run.clear().run_try().state == "success"
    assert AIRTIME.requests(task_runner) == 2


def test_success_takes_precedence_over_failure_in_any_order(task_runner: TaskRunner, received: Received) -> None:
    _, done = after(task_runner, received, "failed", "success")
    assert (done.state, done.result["status"]) == ("success", "success")


def test_status_outside_the_contract_resolves_nothing(task_runner: TaskRunner, received: Received) -> None:
    _, waiting = after(task_runner, received, "expired")
    assert waiting.state == "deferred"


def test_report_of_an_earlier_purchase_does_not_resolve_a_later_one(
    task_runner: TaskRunner, received: Received
) -> None:
    run, _ = after(task_runner, received, "failed")
    task_runner.sandbox.control(*fault("buy_airtime", "cut_before", times=1))
    assert run.clear().run_try().state == "deferred"
    assert run.run_try().state == "deferred"


@pytest.mark.parametrize(
    ("status", "doubted", "settles"),
    [("duplicate", True, True), ("duplicate", False, False), ("success", True, True), ("failed", True, False)],
)
def test_duplicate_is_proof_of_a_purchase_that_was_repeated(
    tmp_path: Path, status: str, doubted: bool, settles: bool
) -> None:
    entry = record("pack", "buy_airtime", started_at=WHEN, previous_unknown=doubted)
    with open_database(f"sqlite:///{tmp_path}/store.db") as store:
        save_reports(store, make_report("pack", status))
        evidence = PurchaseReportProbe(SimpleNamespace(database=store, conn_id="cpaas_default"))  # type: ignore[arg-type]  # all it needs of it
        client = FunctionClient(lambda fields: None)
        if settles:
            assert asyncio.run(evidence.check(client, entry)) == {"id": "buy-1", "status": status}
        else:
            with pytest.raises(RefutedError, match=status):
                asyncio.run(evidence.check(client, entry))


def test_duplicate_of_a_purchase_that_was_made_is_no_failure(task_runner: TaskRunner, received: Received) -> None:
    # No report of the sandbox comes in time.
    task_runner.sandbox.control("PUT", "settings", {"report_delay_seconds": 600})
    task_runner.sandbox.control(*fault("buy_airtime", "cut_after", times=1))
    run = AIRTIME.run(task_runner, on_unknown="resend", unknown_timeout=0)
    done = run.run_try()
    assert (done.state, done.result["status"]) == ("success", "duplicate")
    (reference,) = run.journal()
    save_reports(received.store, make_report(reference, "duplicate"))
    assert received.counts(reference) == (0, 0, 1)
    save_reports(received.store, make_report(reference, "success"))
    assert received.counts(reference) == (1, 0, 0)


def report_says_failed(monkeypatch: pytest.MonkeyPatch, world: World) -> None:
    """Have every probe find a report of a purchase that failed."""

    async def refuted(client: Any, entry: RequestRecord) -> None:
        raise RefutedError("A report says failed.")

    async def snapshot(client: Any) -> None:
        return None

    world.looks = True
    way = SimpleNamespace(max_wait=dt.timedelta(), snapshot=snapshot, check=refuted)
    monkeypatch.setattr(world, "evidence", lambda attempt: way)


def test_late_report_of_a_failed_purchase_does_not_refute_its_repetition(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(policy=OnUnknown.FAIL)
    world.source = world.source[:1]
    world.run(Plan(requests=(AtRequest.REJECTED,)))
    world.clear(dropped=False)
    report_says_failed(monkeypatch, world)
    ended = world.run(Plan(requests=(AtRequest.UNKNOWN_ACCEPTED,)))
    assert (len(ended.requests), type(ended.error)) == (1, UnknownOutcomeError)
    world.clear(dropped=False)
    again = world.run()
    assert (again.requests, type(again.error)) == ([], UnknownOutcomeError)


def test_failed_retry_does_not_resolve_the_first_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "_FIRST_PAUSE", 0.0)
    world = World(policy=OnUnknown.RESEND)
    world.source = world.source[:1]
    world.run(Plan(requests=(AtRequest.UNKNOWN_NOT,) * 9))
    world.clear(dropped=False)
    world.policy = OnUnknown.FAIL
    report_says_failed(monkeypatch, world)
    ended = world.run()
    assert isinstance(ended.error, UnknownOutcomeError)
    assert not ended.requests
