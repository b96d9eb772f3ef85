"""Campaigns with unknown requests: the database has them and their manual resolution."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from typing import Any

import pytest

from cpaas_provider.cli.journal import commands
from cpaas_provider.database.schema.activity import task_progress
from cpaas_provider.database.schema.delivery import requests, sends
from cpaas_provider.delivery.callbacks.tokens import CallbackToken
from cpaas_provider.delivery.tracking.counts import SendCounts, read_sends
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


@pytest.fixture
def resent(
    lost: Callable[..., Any], task_runner: TaskRunner, received: Received
) -> Callable[..., tuple[Run, list[str], str]]:
    """Runs a campaign of two recipients, then sends to both again by one request, all of unknown outcome.

    It returns the run, the references of the first requests, and that of the resend.
    """

    def run(first: int, lost_before: int, *, drop_state: bool = False) -> tuple[Run, list[str], str]:
        campaign, _ = lost(2, lost_before, first, on_unknown="fail", dag={"default_args": {"retries": 0}})
        earlier = [row.reference for row in received.rows(requests)]
        limit_batches(
            task_runner, 2, callback_url=received.url, callback_secret="of-callbacks", timeout=test_callbacks.TIMEOUT
        )
        campaigns.clear_faults(task_runner)
        task_runner.sandbox.control(*fault("send_sms", "cut_before", times=20))
        assert campaign.change(on_unknown="resend").clear(drop_state=drop_state).run_try().state == "failed"
        (resend,) = {row.reference for row in received.rows(requests)} - set(earlier)
        return campaign, earlier, resend

    return run


def known_of(received: Received, reference: str) -> SendCounts:
    with received.store.connect() as connection:
        return read_sends(connection, [reference])[reference]


def campaign_of(received: Received, reference: str) -> str:
    (campaign,) = (str(row.campaign) for row in received.rows(requests) if row.reference == reference)
    return campaign


def test_report_of_the_first_of_two_requests_of_unknown_outcome_counts(
    resent: Callable[..., Any], received: Received
) -> None:
    _, (first, second), resend = resent(1600, 2)
    campaign = campaign_of(received, resend)
    assert sorted(states(received)) == [("unknown", 0), ("unknown", 0), ("unknown", 2)]
    assert known_of(received, campaign) == SendCounts(0, 2)
    save_reports(
        received.store,
        report(digits(1, 1600)[0], "delivered", token=CallbackToken(campaign, first, 1), conn_id=CONN_ID),
    )
    assert known_of(received, campaign) == SendCounts(0, 1)
    assert finished(received) == []
    save_reports(
        received.store, report(digits(2, 1600)[1], "failed", token=CallbackToken(campaign, second, 1), conn_id=CONN_ID)
    )
    assert known_of(received, campaign) == SendCounts(0, 0)
    (facts,) = finished(received)
    assert [facts[name] for name in ("recipients", "delivered", "undelivered", "unknown")] == [2, 1, 1, 0]


def test_resend_that_is_resolved_as_sent_supersedes_the_requests_that_it_repeats(
    resent: Callable[..., Any], received: Received, journal: Callable[..., CommandResult]
) -> None:
    run, _, resend = resent(1700, 2)
    named = (run.dag.dag_id, run.run_id, "campaign", "--reference", resend)
    assert journal("resolve", "--sent", *named, "--yes").status == 0
    assert states(received) == [("accepted", 0), ("superseded", 0), ("superseded", 0)]
    assert known_of(received, campaign_of(received, resend)) == SendCounts(2, 0)


def test_reports_of_a_resend_after_a_lost_journal_count(resent: Callable[..., Any], received: Received) -> None:
    _, _, resend = resent(1800, 1, drop_state=True)
    campaign = campaign_of(received, resend)
    assert known_of(received, campaign) == SendCounts(0, 2)
    for remaining, recipient in ((1, digits(2, 1800)[0]), (0, digits(2, 1800)[1])):
        token = CallbackToken(campaign, resend, 2)
        save_reports(received.store, report(recipient, "delivered", token=token, conn_id=CONN_ID))
        assert known_of(received, campaign) == SendCounts(0, remaining)
    assert [facts["delivered"] for facts in finished(received)] == [2]


def test_report_of_the_request_before_a_resend_stops_further_resends(
    resent: Callable[..., Any], received: Received, task_runner: TaskRunner
) -> None:
    run, earlier, resend = resent(1900, 2)
    campaign = campaign_of(received, resend)
    for reference, recipient in zip(earlier, digits(2, 1900), strict=True):
        token = CallbackToken(campaign, reference, 1)
        save_reports(received.store, report(recipient, "delivered", token=token, conn_id=CONN_ID))
    campaigns.clear_faults(task_runner)
    before = campaigns.count_messages(task_runner)
    done = run.clear().run_try()
    assert (done.state, done.result["sent"], done.result["unknown_recipients"]) == ("success", 2, 0)
    assert campaigns.count_messages(task_runner) == before
    assert known_of(received, campaign) == SendCounts(2, 0)


@pytest.mark.parametrize("is_sent", [True, False])
def test_resolution_of_a_resend_after_a_lost_journal_decides_about_its_recipients(
    resent: Callable[..., Any],
    received: Received,
    journal: Callable[..., CommandResult],
    task_runner: TaskRunner,
    *,
    is_sent: bool,
) -> None:
    run, _, resend = resent(2000 if is_sent else 2100, 1, drop_state=True)
    campaign = campaign_of(received, resend)
    said = journal("resolve", "--sent" if is_sent else "--not-sent", run.dag.dag_id, run.run_id, "campaign", "--yes")
    assert said.status == 0, said.err
    assert known_of(received, campaign) == SendCounts(2 if is_sent else 0, 0)
    campaigns.clear_faults(task_runner)
    before = campaigns.count_messages(task_runner)
    done = run.clear().run_try()
    assert (done.state, done.result["sent"], done.result["unknown_recipients"]) == ("success", 2, 0)
    sent = {} if is_sent else dict.fromkeys(digits(2, 2100), 1)
    assert campaigns.count_messages(task_runner) - before == sent
    assert known_of(received, campaign) == SendCounts(2, 0)


@pytest.mark.parametrize("is_named", [True, False])
@pytest.mark.parametrize("is_sent", [True, False])
def test_resolution_whose_command_was_killed_before_it_reached_the_database_is_recorded_by_the_same_command(
    lost: Callable[..., tuple[Run, Try]],
    received: Received,
    journal: Callable[..., CommandResult],
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_sent: bool,
    is_named: bool,
) -> None:
    run, done = lost(3, 2, 2200 + 20 * is_sent + 10 * is_named)
    campaign = done.result["reference"]
    options = ["--sent" if is_sent else "--not-sent", run.dag.dag_id, run.run_id, "campaign", "--yes"]
    for reference in done.result["unknown_references"] if is_named else ():
        options += ["--reference", reference]

    def kill(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(commands, "record_in_database", kill)
        assert "Stopped" in journal("resolve", *options).err
    assert known_of(received, campaign) == SendCounts(1, 2)
    again = journal("resolve", *options)
    assert again.status == 1
    assert f"Recorded for delivery tracking: 2 requests of {campaign}, in sqlite:" in again.out
    assert known_of(received, campaign) == SendCounts(3 if is_sent else 1, 0)
    assert [row.expected for row in received.rows(sends)] == [3 if is_sent else 1]
    journal("resolve", *options)
    assert [row.expected for row in received.rows(sends)] == [3 if is_sent else 1]


def test_resolve_without_callback_url_names_the_campaign_whose_figures_it_changed(
    task_runner: TaskRunner, received: Received, journal: Callable[..., CommandResult]
) -> None:
    limit_batches(task_runner, 1, timeout=test_callbacks.TIMEOUT)
    task_runner.sandbox.control(*fault("send_sms", "cut_before", times=2))
    run = campaigns.sms(task_runner, rows(3, 2300), on_unknown="skip")
    campaign = run.run_try().result["reference"]

    def figures() -> list[int]:
        (row,) = (row for row in received.rows(task_progress) if row.reference == campaign)
        return [json.loads(row.figures)[name] for name in ("sent", "unknown_recipients")]

    assert figures() == [1, 2]
    said = journal("resolve", "--sent", run.dag.dag_id, run.run_id, "campaign", "--yes")
    assert said.status == 0, said.err
    assert f"Recorded in the figures of the campaign: 2 requests of {campaign}, in sqlite:" in said.out
    assert "nothing was changed there" not in said.out
    assert figures() == [3, 0]
    journal("resolve", "--sent", run.dag.dag_id, run.run_id, "campaign", "--yes")
    assert figures() == [3, 0]
