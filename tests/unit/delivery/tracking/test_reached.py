"""Whether a message reached its recipient is the same everywhere, whatever the status of the recipient is."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from cpaas_provider.cli.deliveries.commands import _OUTCOMES
from cpaas_provider.database.database import Database
from cpaas_provider.database.schema.delivery import deliveries
from cpaas_provider.delivery.campaigns import read_campaigns
from cpaas_provider.delivery.reports import STATUS_WORDS, DeliveryStatus
from cpaas_provider.delivery.tracking.counts import read_counts
from cpaas_provider.delivery.tracking.erasure import erase
from cpaas_provider.delivery.tracking.events import (
    CAMPAIGN_FINISHED,
    KINDS,
    MESSAGES_FAILED,
    detect_events,
    unpublished,
)
from cpaas_provider.pages.summaries import count_campaign
from cpaas_provider.sensors._delivery_status import write_results
from cpaas_provider.sources.base import SourceError
from cpaas_provider.sources.delivery_events import DeliveryEventSource
from cpaas_provider.task_groups import UndeliveredSource
from cpaas_provider.triggers._polling.criteria import DeliveryCriteria
from tests.unit.delivery.report_builders import (
    ADA,
    UMA,
    SentRequest,
    finish_send,
    outcomes,
    report,
    save_reports,
    save_requests,
    start_send,
    token_for,
)

REACHED = {DeliveryStatus.DELIVERED, DeliveryStatus.OPENED, DeliveryStatus.CLICKED}
FAILED = {DeliveryStatus.UNDELIVERED, DeliveryStatus.BOUNCED}
WORDS = {status: word for word, status in STATUS_WORDS.items()}


def rows_of(source: Any) -> list[tuple[Any, ...]]:
    with source.open() as table:
        return [row.values for row in table.rows(["recipient"])]


@pytest.fixture(params=DeliveryStatus)
def status(request: pytest.FixtureRequest, database: Database, monkeypatch: pytest.MonkeyPatch) -> DeliveryStatus:
    """The status of the only recipient of a campaign that has ended."""
    monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", database.engine.url.render_as_string(hide_password=False))
    start_send(database)
    save_requests(database, SentRequest("pack", 1))
    save_reports(database, report(ADA, WORDS[request.param], token=token_for(ADA)))
    finish_send(database, expected=1)
    return request.param


def test_each_status_is_reached_or_failed_or_in_flight() -> None:
    assert {status for status in DeliveryStatus if status.reached} == REACHED
    assert {status for status in DeliveryStatus if status.failed} == FAILED
    assert {status for status in DeliveryStatus if not status.final} == set(DeliveryStatus) - REACHED - FAILED


def test_options_of_the_command_line_are_all_statuses() -> None:
    assert set(_OUTCOMES) == {status.word for status in DeliveryStatus}
    assert [DeliveryStatus.of_word(word) for word in _OUTCOMES] == sorted(DeliveryStatus)


def test_all_figures_agree_on_a_status(database: Database, status: DeliveryStatus) -> None:
    expected = (int(status in REACHED), int(status in FAILED), int(not status.final))
    with database.connect() as connection:
        counts = read_counts(connection, ["spring"])["spring"]
        summary = count_campaign(connection, read_campaigns(connection, ["spring"])["spring"])
        flags = connection.execute(select(deliveries.c.delivered, deliveries.c.failed)).one()
    assert (counts.delivered, counts.undelivered, counts.in_flight) == expected
    assert (summary.delivered, summary.undelivered, summary.in_flight) == expected
    assert [(one.delivered, one.undelivered, one.in_flight) for one in summary.networks] == [expected]
    assert bool(summary.reasons) is (status in FAILED)
    assert tuple(map(bool, flags)) == (status in REACHED, status in FAILED)
    assert outcomes(database) == {ADA: status.word}


def test_wait_for_a_share_succeeds_only_if_the_message_reached_the_recipient(
    database: Database, status: DeliveryStatus
) -> None:
    with database.connect() as connection:
        counts = read_counts(connection, ["spring"])["spring"]
    outcome = (DeliveryCriteria(1, 1.0).evaluate(counts) or {}).get("outcome")
    assert outcome == ("done" if status in REACHED else "missed" if status in FAILED else None)


def test_events_and_their_source_name_only_those_that_were_not_reached(
    database: Database, status: DeliveryStatus
) -> None:
    detect_events(database, dict.fromkeys(KINDS, datetime(2000, 1, 1, tzinfo=UTC)))
    with database.connect() as connection:
        found = {event.kind: event for event in unpublished(connection)}
    assert (MESSAGES_FAILED in found) is (status in FAILED)
    assert (CAMPAIGN_FINISHED in found) is status.final
    if status.final:
        facts = found[CAMPAIGN_FINISHED].facts
        assert (facts["delivered"], facts["undelivered"]) == (int(status in REACHED), int(status in FAILED))
    assert bool(rows_of(DeliveryEventSource("spring"))) is (status in FAILED)


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_next_channel_leaves_out_only_those_that_were_reached(
    status: DeliveryStatus, tmp_path: Path, suffix: str
) -> None:
    from airflow.sdk import ObjectStoragePath

    file = ObjectStoragePath(f"file://{tmp_path}/delivered.{suffix}")
    write_results(["spring"], file)
    source = UndeliveredSource([{"recipient": f"+{ADA}"}], str(file), column="recipient")
    assert bool(rows_of(source)) is (status not in REACHED)


@pytest.mark.parametrize("outcome", ['"sent"', '"Delivered"', "null", "1"])
def test_line_without_an_outcome_of_the_sensor_is_an_error(tmp_path: Path, outcome: str) -> None:
    file = tmp_path / "sent.jsonl"
    file.write_text(f'{{"recipient": "{ADA}", "outcome": {outcome}}}\n')
    with pytest.raises(SourceError, match=r"Line 1 of the delivery results has no outcome of a DeliverySensor"):
        rows_of(UndeliveredSource([{"recipient": f"+{ADA}"}], file, column="recipient"))


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
@pytest.mark.parametrize("is_erased", [False, True])
def test_reached_recipient_that_no_report_names_is_an_error_for_the_next_channel(
    database: Database, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, suffix: str, is_erased: bool
) -> None:
    from airflow.sdk import ObjectStoragePath

    monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", database.engine.url.render_as_string(hide_password=False))
    start_send(database)
    save_requests(database, SentRequest("pack", 1))
    save_reports(database, report(ADA if is_erased else None, "delivered", token=token_for(ADA)))
    if is_erased:
        erase(database, ADA)
    file = ObjectStoragePath(f"file://{tmp_path}/delivered.{suffix}")
    write_results(["spring"], file)
    source = UndeliveredSource([{"recipient": f"+{UMA}"}], str(file), column="recipient")
    if is_erased:
        assert rows_of(source) == [(f"+{UMA}",)]
    else:
        with pytest.raises(SourceError, match=r"Line 1 of the delivery results names no recipient"):
            rows_of(source)
