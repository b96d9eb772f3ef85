"""What the commands read of the provider's database: sends, their counts, and the status of each recipient."""

from __future__ import annotations

from argparse import Namespace
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, and_, exists, func, or_, select

from cpaas_provider.api.recipients.email_address import mask_email
from cpaas_provider.api.recipients.msisdn import mask_msisdn
from cpaas_provider.api.redact import redact
from cpaas_provider.database.schema import deliveries, requests, sends
from cpaas_provider.delivery.reports import DeliveryStatus
from cpaas_provider.delivery.tracking.counts import IS_COUNTED, DeliveryCounts, expected_recipients, read_counts
from cpaas_provider.delivery.tracking.report_store import UNTRACKED_PREFIX

_REASONS = 20
_GROUPS = 10_000


@dataclass(frozen=True)
class Filters:
    """Which sends are meant.

    :param since: from this time on
    :param until: before this time
    """

    conn_id: str | None = None
    dag_id: str | None = None
    run_id: str | None = None
    since: datetime | None = None
    until: datetime | None = None

    @classmethod
    def of(cls, args: Namespace) -> Filters:
        """Return those that were given to a command.

        :raises SystemExit: when a time cannot be read
        """
        since, until = _moment("--since", args.since), _moment("--until", args.until)
        return cls(args.conn_id, args.dag_id, args.run_id, since, until)

    def conditions(self, column: Any) -> list[ColumnElement[bool]]:
        """Return them for a query on sends.

        :param column: the time that counts
        """
        found = [
            sends.c[name] == value
            for name in ("conn_id", "dag_id", "run_id")
            if (value := getattr(self, name)) is not None
        ]
        return [*found, *self.times(column)]

    def times(self, column: Any) -> list[ColumnElement[bool]]:
        """Return the conditions on a time."""
        found: list[ColumnElement[bool]] = []
        if self.since is not None:
            found.append(column >= self.since)
        if self.until is not None:
            found.append(column < self.until)
        return found


def _moment(option: str, text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise SystemExit(f"{option} is not a date or time in ISO 8601, such as 2026-05-01.") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


IS_SINGLE = exists().where(
    requests.c.conn_id == sends.c.conn_id,
    requests.c.reference == sends.c.campaign,
    requests.c.campaign == sends.c.campaign,
)
"""Of a send: it is one request, and belongs to no campaign."""


def read_sends(connection: Connection, filters: Filters, limit: int, *, singles: bool) -> list[Row[Any]]:
    """Return sends, newest first.

    :param singles: with requests that belong to no campaign
    """
    query = select(sends).where(*filters.conditions(sends.c.started_at))
    if not singles:
        query = query.where(~IS_SINGLE)
    return list(connection.execute(query.order_by(sends.c.started_at.desc(), sends.c.campaign).limit(limit)))


def find_send(connection: Connection, reference: str) -> Row[Any] | None:
    """Return the send of a reference: a campaign's, or that of one of its requests."""
    campaign = select(requests.c.campaign).where(requests.c.reference == reference)
    query = select(sends).where(or_(sends.c.campaign == reference, sends.c.campaign.in_(campaign)))
    return connection.execute(query.limit(1)).first()


def describe(connection: Connection, found: Iterable[Row[Any]]) -> list[dict[str, Any]]:
    """Return what is known of sends, with their counts."""
    rows = list(found)
    names = [row.campaign for row in rows]
    counts = read_counts(connection, names)
    accepted = expected_recipients(connection, names)
    return [_described(row, counts.get(row.campaign, DeliveryCounts()), accepted.get(row.campaign)) for row in rows]


def _described(send: Row[Any], counts: DeliveryCounts, accepted: int | None) -> dict[str, Any]:
    unreported = None if accepted is None else counts.expected(accepted) - counts.known
    if send.ended_at is None:
        state = "sending"
    else:
        state = "waiting for reports" if counts.in_flight + (unreported or 0) else "all reported"
    return {
        "reference": send.campaign,
        "operation": send.operation,
        "conn_id": send.conn_id,
        "dag_id": send.dag_id,
        "run_id": send.run_id,
        "task_id": send.task_id,
        "map_index": send.map_index,
        "started_at": _time(send.started_at),
        "state": state,
        "accepted": accepted,
        "delivered": counts.delivered,
        "undelivered": counts.undelivered,
        "in_flight": counts.in_flight,
        "unreported": unreported,
        "unknown": send.unknown,
    }


def details(connection: Connection, send: Row[Any]) -> dict[str, Any]:
    """Return everything known of one send, but its reasons."""
    (line,) = describe(connection, [send])
    made = select(func.count()).select_from(requests).where(requests.c.campaign == send.campaign)
    counts = read_counts(connection, [send.campaign]).get(send.campaign, DeliveryCounts())
    return {
        **line,
        "requests": connection.execute(made).scalar_one(),
        "ended_at": _time(send.ended_at),
        "finished_at": _time(send.finished_at),
        "last_report_at": _time(counts.updated_at),
    }


def reasons(connection: Connection, campaign: str) -> list[dict[str, Any]]:
    """Return how often each status and reason was reported, the most frequent first."""
    columns = deliveries.c.delivery_status, deliveries.c.status, deliveries.c.reason
    number = func.count()
    query = select(*columns, number.label("recipients")).where(deliveries.c.campaign == campaign, IS_COUNTED)
    found: Counter[tuple[str, str, str | None]] = Counter()
    for row in connection.execute(query.group_by(*columns).order_by(number.desc()).limit(_GROUPS)):
        # A service that names the recipient in its reason has a reason for each.
        reason = redact(row.reason, ()) if row.reason else None
        found[DeliveryStatus(row.delivery_status).name.lower(), row.status, reason] += row.recipients
    return [
        {"outcome": outcome, "status": status, "reason": reason, "recipients": recipients}
        for (outcome, status, reason), recipients in found.most_common(_REASONS)
    ]


def read_deliveries(
    connection: Connection, filters: Filters, reference: str | None, outcome: DeliveryStatus | None, limit: int
) -> list[dict[str, Any]]:
    """Return the status of recipients, the one that changed last first."""
    query: Select[Any] = select(deliveries).where(*filters.times(deliveries.c.updated_at))
    if reference is not None:
        # Found by their campaign, as nothing else of them is in an index.
        of_request = or_(requests.c.reference == reference, requests.c.message_id == reference)
        names = connection.execute(select(requests.c.campaign).where(of_request)).scalars().all()
        query = query.where(
            deliveries.c.campaign.in_({reference, f"{UNTRACKED_PREFIX}{reference}", *names}),
            or_(
                and_(deliveries.c.campaign == reference, IS_COUNTED),
                deliveries.c.reference == reference,
                deliveries.c.message_id == reference,
            ),
        )
    if filters.conn_id is not None:
        query = query.where(deliveries.c.conn_id == filters.conn_id)
    if filters.dag_id is not None or filters.run_id is not None:
        theirs = [sends.c[name] == value for name in ("dag_id", "run_id") if (value := getattr(filters, name))]
        query = query.where(deliveries.c.campaign.in_(select(sends.c.campaign).where(*theirs)))
    if outcome is not None:
        query = query.where(deliveries.c.delivery_status == int(outcome))
    ordered = query.order_by(deliveries.c.updated_at.desc(), deliveries.c.campaign, deliveries.c.recipient)
    return [_delivery(row) for row in connection.execute(ordered.limit(limit))]


def _delivery(row: Row[Any]) -> dict[str, Any]:
    # What the service sent in place of a recipient it does not name.
    named = "" if row.recipient.startswith("#") else row.recipient
    mask = mask_email if "@" in named else mask_msisdn
    return {
        "recipient": mask(named) if named else None,
        "outcome": DeliveryStatus(row.delivery_status).name.lower(),
        "status": row.status or None,
        "reason": redact(row.reason, (f"+{named}", named)) if row.reason else None,
        "conflict": bool(row.delivered and row.failed),
        "reported_at": _time(row.reported_at) if row.status else None,
        "conn_id": row.conn_id,
        "campaign": row.campaign,
        "reference": row.reference or None,
        "message_id": row.message_id,
    }


def _time(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat(timespec="seconds")
