"""Reports as they come in, written short."""

from __future__ import annotations

import itertools
import json
from datetime import UTC, datetime
from typing import Any

from cpaas_provider.delivery.arrivals import Arrival, Kept
from cpaas_provider.delivery.inbox import Inbox
from cpaas_provider.delivery.reports import read_report
from cpaas_provider.delivery.tally import Counts, counts_of, recipients_of
from cpaas_provider.delivery.tickets import Ticket
from cpaas_provider.store.database import Database

ADA, OBI, UMA = "2348030000001", "2348030000002", "2348030000003"
WHEN = datetime(2026, 5, 1, 12, tzinfo=UTC)

_numbers = itertools.count()


def report(recipient: str | None, status: str, *, ticket: Ticket | None = None, **fields: Any) -> Arrival:
    """Return a report that differs from every other."""
    body = {"status": status, "nonce": next(_numbers), **fields}
    if recipient is not None:
        body["recipient"] = recipient
    return arrival(body, ticket=ticket)


def arrival(body: Any, *, ticket: Ticket | None = None, conn_id: str = "shop") -> Arrival:
    door = "webhook" if ticket is None else "callback"
    return Arrival(conn_id, door, ticket, read_report(body), json.dumps(body), WHEN)


def to(*recipients: str, campaign: str = "spring", reference: str = "pack") -> Ticket:
    """Return the ticket of a request to so many."""
    return Ticket(campaign, reference, len(recipients) or 2)


def kept(database: Database, *arrivals: Arrival) -> list[Kept]:
    return Inbox(database).keep(arrivals)


def counts(database: Database, campaign: str = "spring") -> tuple[int, int, int]:
    """Return how many are delivered, undelivered and in flight."""
    with database.reading() as connection:
        found = counts_of(connection, [campaign]).get(campaign, Counts())
    return found.delivered, found.undelivered, found.in_flight


def outcomes(database: Database, campaign: str = "spring") -> dict[str, str]:
    with database.reading() as connection:
        return {one["recipient"]: one["outcome"] for one in recipients_of(connection, [campaign])}
