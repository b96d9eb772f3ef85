"""The pages beside those of campaigns: contact syncs, passcodes, airtime, and reports a minute."""

from __future__ import annotations

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
"""How far back the chart of reports goes."""


def contact_syncs_page(pages: Pages, request: Request, who: Viewer, wanted: Filter) -> Response:
    """Return the contact syncs, the newest first."""
    with pages.reading() as connection:
        places = campaigns.known_places(connection, CONTACT_SYNC)
        dag_ids = who.readable(places)
        rows = campaigns.list_rows(connection, dag_ids, wanted, CONTACT_SYNC)
    shown = rows[: campaigns.PAGE_ROWS]
    older = urlencode({**wanted.named, "before": shown[-1].key}) if len(rows) > campaigns.PAGE_ROWS else None
    return pages.respond(
        request,
        "contact_syncs.html",
        rows=shown,
        wanted=wanted,
        conn_ids=sorted({one for dag_id in dag_ids for one in places[dag_id]}),
        dag_ids=sorted(dag_ids),
        older=older,
        newest=urlencode(wanted.named) if wanted.before else None,
        refresh=REFRESH if any(row.state == "sending" for row in shown) else 0,
    )


@dataclass(frozen=True)
class Funnel:
    """The passcodes of one connection."""

    conn_id: str
    requested: int = 0
    verified: int = 0
    expired: int = 0
    pending: int = 0
    other: int = 0

    @property
    def parts(self) -> list[tuple[str, int]]:
        """The parts of the bar."""
        numbers = {
            "delivered": self.verified,
            "undelivered": self.expired,
            "rejected": self.other,
            "open": self.pending,
        }
        return [(kind, count) for kind, count in numbers.items() if count]


def passcodes_page(pages: Pages, request: Request, who: Viewer, days: int) -> Response:
    """Return how many passcodes were requested, verified and expired."""
    since = _since(days)
    with pages.reading() as connection:
        counted = _passcodes(connection, since)
    readable = who.readable({dag_id for dag_id, *_ in counted})
    numbers: dict[str, dict[str, int]] = {}
    for dag_id, conn_id, outcome, count in counted:
        if dag_id in readable:
            of_connection = numbers.setdefault(conn_id, {})
            name = outcome if outcome in ("verified", "expired", "pending") else "other"
            of_connection[name] = of_connection.get(name, 0) + count
    funnels = [Funnel(name, sum(found.values()), **found) for name, found in sorted(numbers.items())]
    return pages.respond(request, "passcodes.html", funnels=funnels, days=days, choices=DAYS, refresh=REFRESH)


def _passcodes(connection: Connection, since: datetime) -> list[tuple[str, str, str, int]]:
    there = passcodes.c
    # A passcode whose status is not read any more expires by the clock.
    over = and_(there.outcome == "pending", there.expires_at < datetime.now(UTC))
    outcome = case((over, "expired"), else_=there.outcome).label("told")
    query = select(there.dag_id, there.conn_id, outcome, func.count()).where(there.requested_at >= since)
    rows = connection.execute(query.group_by(there.dag_id, there.conn_id, "told"))
    return [(dag_id, conn_id, told, int(count)) for dag_id, conn_id, told, count in rows]


@dataclass(frozen=True)
class Network:
    """The airtime of one network."""

    name: str
    purchases: int
    amount: float
    charge: float | None


def airtime_page(pages: Pages, request: Request, who: Viewer, days: int, before: str) -> Response:
    """Return what airtime was bought, by network, and the newest purchases."""
    since, there = _since(days), airtime_purchases.c
    with pages.reading() as connection:
        known = connection.execute(select(there.dag_id).where(there.bought_at >= since).distinct()).scalars()
        dag_ids = sorted(who.readable(known))
        theirs = and_(there.bought_at >= since, there.dag_id.in_(dag_ids))
        columns = there.network, func.count(), func.sum(there.amount), func.sum(there.charge)
        by_network = connection.execute(select(*columns).where(theirs).group_by(there.network)).all()
        query = select(airtime_purchases).where(theirs)
        if before:
            query = query.where(tuple_(there.bought_at, there.reference) < tuple_(*_key(before)))
        query = query.order_by(there.bought_at.desc(), there.reference.desc()).limit(campaigns.PAGE_ROWS + 1)
        rows = connection.execute(query).all()
        shown = rows[: campaigns.PAGE_ROWS]
        counts = read_counts(connection, [row.reference for row in shown])
    purchases = [(row, _delivery(counts.get(row.reference))) for row in shown]
    last = shown[-1] if len(rows) > campaigns.PAGE_ROWS else None
    key = f"{last.bought_at.astimezone(UTC).replace(tzinfo=None).isoformat()}~{last.reference}" if last else ""
    return pages.respond(
        request,
        "airtime.html",
        networks=sorted((Network(*row) for row in by_network), key=lambda one: (-one.amount, one.name)),
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


def reports_page(pages: Pages, request: Request, who: Viewer) -> Response:
    """Return how many reports arrived a minute, over all DAGs."""
    if not who.sees_totals:
        return pages.fail(
            request, 403, "Not allowed", "Counts over all DAGs need the permission to see the cluster's activity."
        )
    now = datetime.now(UTC)
    there = report_counts.c
    query = select(there.minute, there.conn_id, there.delivery_status, func.sum(there.reports))
    query = query.where(there.minute >= now - timedelta(minutes=MINUTES))
    buckets: dict[datetime, dict[str, int]] = {}
    of_connection: dict[str, dict[str, int]] = {}
    with pages.reading() as connection:
        for minute, conn_id, status, number in connection.execute(
            query.group_by(there.minute, there.conn_id, there.delivery_status)
        ):
            name = STATUS_NAMES.get(status, "in_flight")
            for numbers in (buckets.setdefault(minute, {}), of_connection.setdefault(conn_id, {})):
                numbers[name] = numbers.get(name, 0) + int(number)
    kinds = [one for one in STATUSES if any(one in counts for counts in of_connection.values())]
    last = max(buckets, default=None)
    return pages.respond(
        request,
        "reports.html",
        chart=charts.over_time(buckets, STATUSES, "Delivery reports a minute", until=now),
        kinds=kinds,
        connections=sorted(of_connection.items()),
        newest=sum(buckets[last].values()) if last else 0,
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
