"""Reports as they come in, written short."""

from __future__ import annotations

import itertools
import json
from datetime import UTC, datetime
from typing import Any

from cpaas_provider.database.database import Database
from cpaas_provider.delivery.callbacks.tokens import CallbackToken
from cpaas_provider.delivery.receiver.writer import ReceivedReport, StoreResult
from cpaas_provider.delivery.reports import read_report
from cpaas_provider.delivery.tracking.counts import DeliveryCounts, read_counts, read_recipients
from cpaas_provider.delivery.tracking.report_store import ReportStore
from cpaas_provider.delivery.tracking.sent_requests import (
    SentRequest,
    TrackedSend,
    record_recipients,
    record_requests,
    record_send_finished,
    record_send_started,
)

ADA, OBI, UMA = "2348030000001", "2348030000002", "2348030000003"
WHEN = datetime(2026, 5, 1, 12, tzinfo=UTC)

_numbers = itertools.count()


def report(
    recipient: str | None,
    status: str,
    *,
    token: CallbackToken | None = None,
    conn_id: str = "shop",
    region: str | None = None,
    **fields: Any,
) -> ReceivedReport:
    """Return a report that differs from every other.

    :param region: ``default_region`` of its connection
    """
    body = {"status": status, "nonce": next(_numbers), **fields}
    if recipient is not None:
        body["recipient"] = recipient
    return received_report(body, token=token, conn_id=conn_id, region=region)


def received_report(
    body: Any, *, token: CallbackToken | None = None, conn_id: str = "shop", region: str | None = None
) -> ReceivedReport:
    source = "webhook" if token is None else "callback"
    return ReceivedReport(conn_id, source, token, read_report(body, region), json.dumps(body), WHEN)


def token_for(*recipients: str, campaign: str = "spring", reference: str | None = None) -> CallbackToken:
    """Return the token of a request to so many; no two campaigns have the same request."""
    return CallbackToken(
        campaign, reference or ("pack" if campaign == "spring" else f"{campaign}-pack"), len(recipients) or 2
    )


def save_reports(database: Database, *incoming: ReceivedReport) -> list[StoreResult]:
    return ReportStore(database).save(incoming)


def start_send(database: Database, campaign: str = "spring", conn_id: str = "shop") -> None:
    """Record the start of a send."""
    send = TrackedSend(campaign, "send_sms", conn_id, "dag", "run", "send", -1)
    database.write(lambda connection: record_send_started(connection, send))


def save_requests(database: Database, *made: SentRequest, campaign: str = "spring", conn_id: str = "shop") -> None:
    """Record requests of a campaign."""
    database.write(lambda connection: record_requests(connection, campaign, conn_id, made))


def finish_send(database: Database, campaign: str = "spring", *, expected: int, unknown: int = 0) -> None:
    """Record the end of a send, with the numbers of accepted and unknown recipients."""
    database.write(lambda connection: record_send_finished(connection, campaign, expected, unknown))


def save_recipients(
    database: Database, *recipients: str, campaign: str = "spring", conn_id: str = "shop", reference: str = "pack"
) -> None:
    """Record the recipients of a request."""
    database.write(lambda connection: record_recipients(connection, campaign, conn_id, {reference: recipients}))


def save_send(
    database: Database, *recipients: str, is_tracked: bool, campaign: str = "spring", reference: str = "pack"
) -> None:
    """Record a request of a campaign, and its recipients only if they are tracked."""
    start_send(database, campaign)
    save_requests(database, SentRequest(reference, len(recipients), "m1"), campaign=campaign)
    if is_tracked:
        save_recipients(database, *recipients, campaign=campaign, reference=reference)


def counts(database: Database, campaign: str = "spring") -> tuple[int, int, int]:
    """Return how many are delivered, undelivered and in flight."""
    with database.connect() as connection:
        found = read_counts(connection, [campaign]).get(campaign, DeliveryCounts())
    return found.delivered, found.undelivered, found.in_flight


def outcomes(database: Database, campaign: str = "spring") -> dict[str, str]:
    with database.connect() as connection:
        return {line["recipient"] or "": line["outcome"] for line in read_recipients(connection, [campaign])}
