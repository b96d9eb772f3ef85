"""Reports as they come in, written short."""

from __future__ import annotations

import itertools
import json
from datetime import UTC, datetime
from typing import Any

from cpaas_provider.database.database import Database
from cpaas_provider.delivery.callbacks.tokens import Ticket
from cpaas_provider.delivery.receiver.received import Arrival, Kept
from cpaas_provider.delivery.reports import read_report
from cpaas_provider.delivery.tracking.counts import Counts, counts_of, recipients_of
from cpaas_provider.delivery.tracking.report_store import Inbox
from cpaas_provider.delivery.tracking.sent_requests import (
    NotedRequest,
    TrackedSend,
    note_end,
    note_requests,
    note_send,
    track,
)

ADA, OBI, UMA = "2348030000001", "2348030000002", "2348030000003"
WHEN = datetime(2026, 5, 1, 12, tzinfo=UTC)

_numbers = itertools.count()


def report(
    recipient: str | None, status: str, *, ticket: Ticket | None = None, conn_id: str = "shop", **fields: Any
) -> Arrival:
    """Return a report that differs from every other."""
    body = {"status": status, "nonce": next(_numbers), **fields}
    if recipient is not None:
        body["recipient"] = recipient
    return arrival(body, ticket=ticket, conn_id=conn_id)


def arrival(body: Any, *, ticket: Ticket | None = None, conn_id: str = "shop") -> Arrival:
    door = "webhook" if ticket is None else "callback"
    return Arrival(conn_id, door, ticket, read_report(body), json.dumps(body), WHEN)


def to(*recipients: str, campaign: str = "spring", reference: str | None = None) -> Ticket:
    """Return the ticket of a request to so many; no two campaigns have the same request."""
    return Ticket(campaign, reference or ("pack" if campaign == "spring" else f"{campaign}-pack"), len(recipients) or 2)


def kept(database: Database, *arrivals: Arrival) -> list[Kept]:
    return Inbox(database).keep(arrivals)


def begun(database: Database, campaign: str = "spring", conn_id: str = "shop") -> None:
    """Have it noted that something is sent."""
    send = TrackedSend(campaign, "send_sms", conn_id, "dag", "run", "send", -1)
    database.write(lambda connection: note_send(connection, send))


def noted(database: Database, *made: NotedRequest, campaign: str = "spring", conn_id: str = "shop") -> None:
    """Have requests noted that the service accepted."""
    database.write(lambda connection: note_requests(connection, campaign, conn_id, made))


def ended(database: Database, campaign: str = "spring", *, expected: int, unknown: int = 0) -> None:
    """Have it noted to how many was sent, and of how many nobody knows."""
    database.write(lambda connection: note_end(connection, campaign, expected, unknown))


def tracked(
    database: Database, *recipients: str, campaign: str = "spring", conn_id: str = "shop", reference: str = "pack"
) -> None:
    """Have it noted who a request went to."""
    database.write(lambda connection: track(connection, campaign, conn_id, reference, recipients))


def counts(database: Database, campaign: str = "spring") -> tuple[int, int, int]:
    """Return how many are delivered, undelivered and in flight."""
    with database.connect() as connection:
        found = counts_of(connection, [campaign]).get(campaign, Counts())
    return found.delivered, found.undelivered, found.in_flight


def outcomes(database: Database, campaign: str = "spring") -> dict[str, str]:
    with database.connect() as connection:
        return {one["recipient"]: one["outcome"] for one in recipients_of(connection, [campaign])}
