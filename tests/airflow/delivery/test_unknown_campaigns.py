"""Campaigns with unknown requests: the database has them and their manual resolution."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import pytest

from cpaas_provider.database.schema.delivery import requests, sends
from cpaas_provider.delivery.callbacks.tokens import CallbackToken
from cpaas_provider.delivery.tracking.events import CAMPAIGN_FINISHED, detect_events, unpublished
from tests.airflow.delivery import test_callbacks
from tests.airflow.delivery.test_callbacks import Received
from tests.airflow.harness import campaigns
from tests.airflow.harness.campaigns import digits, limit_batches, rows
from tests.airflow.harness.command_line import CommandLine, CommandResult
from tests.airflow.harness.task_runner import TaskRunner, fault
from tests.airflow.harness.tries import Run, Try
from tests.unit.delivery.report_builders import report, save_reports

received = test_callbacks.received
EVER = {CAMPAIGN_FINISHED: dt.datetime(2000, 1, 1, tzinfo=dt.UTC)}
CONN_ID = "cpaas_default"


@pytest.fixture
def journal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., CommandResult]:
    """Run ``airflow cpaas journal ...``."""
    return CommandLine(monkeypatch, capsys, "cpaas", "journal")


@pytest.fixture
def lost(task_runner: TaskRunner, received: Received) -> Callable[..., tuple[Run, Try]]:
    """Runs a campaign of one request a recipient, of which the responses of the first requests are lost."""

    def run(recipients: int, lost: int, first: int, **options: Any) -> tuple[Run, Try]:
        limit_batches(
            task_runner, 1, callback_url=received.url, callback_secret="of-callbacks", timeout=test_callbacks.TIMEOUT
        )
        task_runner.sandbox.control("PUT", "settings", {"report_delay_seconds": 3600})
        task_runner.sandbox.control(*fault("send_sms", "cut_before", times=lost))
        given = {"on_unknown": "skip", "unknown_timeout": dt.timedelta(0), **options}
        campaign = campaigns.sms(task_runner, rows(recipients, first), **given)
        return campaign, campaign.run_try()

    return run


def finished(received: Received) -> list[dict[str, Any]]:
    detect_events(received.store, EVER)
    with received.store.connect() as connection:
        return [dict(event.facts) for event in unpublished(connection) if event.kind == CAMPAIGN_FINISHED]


def states(received: Received) -> list[tuple[str, int]]:
    return sorted((row.state, row.unknown) for row in received.rows(requests))


def deliver(received: Received, reference: str, *recipients: str) -> None:
    """Have the requests of these recipients reported as delivered, whichever they are."""
    of_campaign = [row.reference for row in received.rows(requests) if row.state == "accepted"]
    for name, recipient in zip(of_campaign, recipients, strict=True):
        token = CallbackToken(reference, name, 1)
        save_reports(received.store, report(recipient, "delivered", token=token, conn_id=CONN_ID))


def test_end_records_which_requests_are_unknown(lost: Callable[..., Any], received: Received) -> None:
    _, done = lost(4, 2, 1100)
    assert (done.result["sent"], done.result["unknown_recipients"]) == (2, 2)
    assert states(received) == [("accepted", 0), ("accepted", 0), ("unknown", 1), ("unknown", 1)]
    assert [(row.expected, row.unknown) for row in received.rows(sends)] == [(2, 0)]


@pytest.mark.parametrize("is_sent", [True, False])
def test_manual_resolution_ends_the_wait_of_the_campaign(
    lost: Callable[..., Any], received: Received, journal: Callable[..., CommandResult], *, is_sent: bool
) -> None:
    run, done = lost(3, 1, 1200 if is_sent else 1300)
    reference = done.result["reference"]
    deliver(received, reference, *digits(2, 1200))
    assert finished(received) == []
    said = journal("resolve", "--sent" if is_sent else "--not-sent", run.dag.dag_id, run.run_id, "campaign", "--yes")
    assert said.status == 0, said.err
    assert f"Recorded for delivery tracking: 1 request of {reference}, in sqlite:" in said.out
    assert [row.expected for row in received.rows(sends)] == [3 if is_sent else 2]
    if is_sent:
        assert finished(received) == []
        (name,) = done.result["unknown_references"]
        token = CallbackToken(reference, name, 1)
        save_reports(received.store, report("2348031009999", "failed", token=token, conn_id=CONN_ID))
    (facts,) = finished(received)
    figures = [facts[name] for name in ("recipients", "delivered", "undelivered", "unreported", "unknown")]
    assert figures == ([3, 2, 1, 0, 0] if is_sent else [2, 2, 0, 0, 0])


def test_resolution_without_the_database_says_what_still_waits(
    lost: Callable[..., Any], journal: Callable[..., CommandResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, _ = lost(2, 1, 1400)
    monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", "postgresql+psycopg2://nobody@127.0.0.1:1/nowhere")
    said = journal("resolve", "--sent", run.dag.dag_id, run.run_id, "campaign", "--yes")
    assert said.status == 0, said.err
    assert "Resolved as sent: 1 request to 1 recipient" in said.out
    assert "The resolution could not be recorded for delivery tracking." in said.out
    assert "The journal has the resolution." in said.out


def test_resend_in_other_requests_supersedes_only_the_unknown_requests_that_it_repeats(
    lost: Callable[..., Any], task_runner: TaskRunner, received: Received
) -> None:
    run, first = lost(4, 3, 1500, on_unknown="fail")
    assert first.state == "failed"
    assert states(received) == [("accepted", 0), *[("unknown", 1)] * 3]
    campaigns.clear_faults(task_runner)
    limit_batches(
        task_runner, 2, callback_url=received.url, callback_secret="of-callbacks", timeout=test_callbacks.TIMEOUT
    )
    operator: Any = run.dag.get_task("campaign")
    # The third recipient is no longer in the source. The first two are sent to again by one request.
    operator.source = [*rows(2, 1500), *rows(1, 1503)]
    operator.on_unknown = "resend"
    assert run.clear().run_try().state == "failed"
    assert states(received) == [("accepted", 0), ("accepted", 0), ("superseded", 0), ("superseded", 0), ("unknown", 1)]
