"""The pages other than those of campaigns: contact syncs, passcodes, airtime, and reports a minute."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from sqlalchemy import Connection, and_, case, func, select, tuple_
from starlette.requests import Request
from starlette.responses import Response

from cpaas_provider.database.activity.progress import CONTACT_SYNC
from cpaas_provider.database.schema import airtime_purchases, passcodes, report_counts
from cpaas_provider.delivery.tracking.counts import read_counts
from cpaas_provider.pages import campaigns
from cpaas_provider.pages.access import Viewer
from cpaas_provider.pages.base import REFRESH, BadQuestionError, Pages
from cpaas_provider.pages.campaigns import Filter
from cpaas_provider.pages.details import STATUS_NAMES, STATUSES
from cpaas_provider.pages.html import charts

DAYS = (1, 7, 30, 90)
MINUTES = 120
"""The minutes that the chart of reports covers."""


def contact_syncs_page(pages: Pages, request: Request, viewer: Viewer, wanted: Filter) -> Response:
    """Return the contact syncs, the newest first."""
    with pages.reading() as connection:
        places = campaigns.known_places(connection, CONTACT_SYNC)
        dag_ids = viewer.readable(places)
        rows = campaigns.list_rows(connection, dag_ids, wanted, CONTACT_SYNC)
    shown = rows[: campaigns.PAGE_ROWS]
    older = urlencode({**wanted.named, "before": shown[-1].key}) if len(rows) > campaigns.PAGE_ROWS else None
    return pages.respond(
        request,
        "contact_syncs.html",
        rows=shown,
        wanted=wanted,
        conn_ids=sorted({conn_id for dag_id in dag_ids for conn_id in places[dag_id]}),
        dag_ids=sorted(dag_ids),
        older=older,
        newest=urlencode(wanted.named) if wanted.before else None,
        refresh=REFRESH if any(row.state == "sending" for row in shown) else 0,
    )


@dataclass(frozen=True)
class Funnel:
    """The number of passcodes of one connection, by outcome."""

    conn_id: str
    requested: int = 0
    verified: int = 0
    expired: int = 0
    pending: int = 0
    other: int = 0

    @property
    def parts(self) -> list[tuple[str, int]]:
        """The kinds and numbers of the parts of the bar."""
        numbers = {
            "delivered": self.verified,
            "undelivered": self.expired,
            "rejected": self.other,
            "open": self.pending,
        }
        return [(kind, count) for kind, count in numbers.items() if count]


def passcodes_page(pages: Pages, request: Request, viewer: Viewer, days: int) -> Response:
    """Return how many passcodes were requested, verified and expired."""
    since = _since(days)
    with pages.reading() as connection:
        rows = _passcodes(connection, since)
    readable = viewer.readable({dag_id for dag_id, *_ in rows})
    numbers: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for dag_id, conn_id, outcome, count in rows:
        if dag_id in readable:
            numbers[conn_id][outcome if outcome in ("verified", "expired", "pending") else "other"] += count
    funnels = [Funnel(conn_id, outcomes.total(), **outcomes) for conn_id, outcomes in sorted(numbers.items())]
    return pages.respond(request, "passcodes.html", funnels=funnels, days=days, choices=DAYS, refresh=REFRESH)


def _passcodes(connection: Connection, since: datetime) -> list[tuple[str, str, str, int]]:
    columns = passcodes.c
    # A pending passcode expires by the clock, because tasks may have stopped reading its status.
    is_expired = and_(columns.outcome == "pending", columns.expires_at < datetime.now(UTC))
    outcome = case((is_expired, "expired"), else_=columns.outcome).label("shown")
    query = select(columns.dag_id, columns.conn_id, outcome, func.count()).where(columns.requested_at >= since)
    rows = connection.execute(query.group_by(columns.dag_id, columns.conn_id, "shown"))
    return [(dag_id, conn_id, shown, int(count)) for dag_id, conn_id, shown, count in rows]


@dataclass(frozen=True)
class Network:
    """The airtime that was bought for one network."""

    name: str
    purchases: int
    amount: float
    charge: float | None


def airtime_page(pages: Pages, request: Request, viewer: Viewer, days: int, before: str) -> Response:
    """Return the purchases of airtime by network, and the newest of them one by one.

    :param before: the key of the last row of the previous page; empty for the first page
    """
    since, columns = _since(days), airtime_purchases.c
    with pages.reading() as connection:
        known = connection.execute(select(columns.dag_id).where(columns.bought_at >= since).distinct()).scalars()
        dag_ids = sorted(viewer.readable(known))
        is_readable = and_(columns.bought_at >= since, columns.dag_id.in_(dag_ids))
        totals = select(columns.network, func.count(), func.sum(columns.amount), func.sum(columns.charge))
        by_network = connection.execute(totals.where(is_readable).group_by(columns.network)).all()
        query = select(airtime_purchases).where(is_readable)
        if before:
            query = query.where(tuple_(columns.bought_at, columns.reference) < tuple_(*_key(before)))
        query = query.order_by(columns.bought_at.desc(), columns.reference.desc()).limit(campaigns.PAGE_ROWS + 1)
        rows = connection.execute(query).all()
        shown = rows[: campaigns.PAGE_ROWS]
        counts = read_counts(connection, [row.reference for row in shown])
    purchases = [(row, _delivery(counts.get(row.reference))) for row in shown]
    last = shown[-1] if len(rows) > campaigns.PAGE_ROWS else None
    key = f"{last.bought_at.astimezone(UTC).replace(tzinfo=None).isoformat()}~{last.reference}" if last else ""
    return pages.respond(
        request,
        "airtime.html",
        networks=sorted((Network(*row) for row in by_network), key=lambda network: (-network.amount, network.name)),
        purchases=purchases,
        days=days,
        choices=DAYS,
        older=urlencode({"days": days, "before": key}) if key else None,
        newest=urlencode({"days": days}) if before else None,
    )


def _delivery(counts: Any) -> str:
    if counts is None or not counts.known:
        return "not reported"
    return "delivered" if counts.delivered else "undelivered" if counts.undelivered else "in flight"


def reports_page(pages: Pages, request: Request, viewer: Viewer) -> Response:
    """Return the number of reports a minute, over all DAGs."""
    if not viewer.sees_totals:
        return pages.fail(
            request, 403, "Not allowed", "Counts over all DAGs need the permission to see the cluster's activity."
        )
    now = datetime.now(UTC)
    columns = report_counts.c
    query = select(columns.minute, columns.conn_id, columns.delivery_status, func.sum(columns.reports))
    query = query.where(columns.minute >= now - timedelta(minutes=MINUTES))
    buckets: defaultdict[datetime, Counter[str]] = defaultdict(Counter)
    by_connection: defaultdict[str, Counter[str]] = defaultdict(Counter)
    with pages.reading() as connection:
        for minute, conn_id, status, number in connection.execute(
            query.group_by(columns.minute, columns.conn_id, columns.delivery_status)
        ):
            name = STATUS_NAMES.get(status, "in_flight")
            for numbers in (buckets[minute], by_connection[conn_id]):
                numbers[name] += int(number)
    kinds = [status for status in STATUSES if any(status in counts for counts in by_connection.values())]
    last = max(buckets, default=None)
    return pages.respond(
        request,
        "reports.html",
        chart=charts.over_time(buckets, STATUSES, "Delivery reports a minute", until=now),
        kinds=kinds,
        connections=sorted(by_connection.items()),
        newest=buckets[last].total() if last else 0,
        last=last,
        minutes=MINUTES,
        refresh=REFRESH,
    )


def _since(days: int) -> datetime:
    if days not in DAYS:
        raise BadQuestionError(f"days must be one of {', '.join(map(str, DAYS))}.")
    return datetime.now(UTC) - timedelta(days=days)


def _key(before: str) -> tuple[datetime, str]:
    try:
        return campaigns.read_key(before)
    except ValueError:
        raise BadQuestionError("The place in the list is not valid.") from None
