"""The lists of campaigns and contact syncs, and the pages of passcodes, airtime, and reports a minute."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from sqlalchemy import Connection, and_, case, func, select
from starlette.requests import Request
from starlette.responses import Response

from cpaas_provider.contacts.key_map.maps import DEFAULT_MAP
from cpaas_provider.contacts.key_map.rejections import newest
from cpaas_provider.database.activity.progress import CAMPAIGN
from cpaas_provider.database.schema.activity import airtime_purchases, passcodes
from cpaas_provider.database.schema.delivery import report_counts
from cpaas_provider.delivery.campaigns import read_campaigns
from cpaas_provider.delivery.tracking.counts import read_counts
from cpaas_provider.pages import campaigns
from cpaas_provider.pages.access import Viewer
from cpaas_provider.pages.base import REFRESH, Pages, check_text, fail, refresh_of, respond
from cpaas_provider.pages.campaigns import BadQuestionError, Filter
from cpaas_provider.pages.details import STATUS_NAMES, STATUSES, reported_statuses
from cpaas_provider.pages.html import charts

DAYS = (1, 7, 30, 90)
REJECTED_ROWS = 20
"""The most rejected rows that the page shows of one key map."""

MINUTES = 120
"""The minutes that the chart of reports covers."""


def list_page(pages: Pages, request: Request, viewer: Viewer, wanted: Filter, kind: str) -> Response:
    """Return campaigns or contact syncs, the newest first.

    :param kind: ``CAMPAIGN`` or ``CONTACT_SYNC``
    """
    with pages.reading() as connection:
        conn_ids = campaigns.connections_by_dag(connection, kind)
        dag_ids = viewer.readable(conn_ids)
        keys = campaigns.list_names(connection, dag_ids, wanted, kind)
        records = read_campaigns(connection, (name for _, name in keys[: campaigns.PAGE_ROWS]))
        shown = pages.rows(connection, list(records.values()))
        rejected = []
        if kind != CAMPAIGN:
            maps = dict.fromkeys(
                (record.conn_id, str(record.settings.get("map", DEFAULT_MAP))) for record in records.values()
            )
            rejected = [(*key_map, *newest(connection, *key_map, limit=REJECTED_ROWS)) for key_map in maps]
        readable = {conn_id for dag_id in dag_ids for conn_id in conn_ids[dag_id]}
        account = pages.account(connection, readable)
    return respond(
        request,
        "campaigns.html" if kind == CAMPAIGN else "contact_syncs.html",
        rows=shown,
        rejected=[(conn_id, name, count, found) for conn_id, name, count, found in rejected if count],
        wanted=wanted,
        conn_ids=sorted(readable),
        **account,
        dag_ids=sorted(dag_ids),
        **_paging(wanted.named, wanted.before, keys),
        refresh=refresh_of(shown),
    )


def _paging(named: Mapping[str, Any], before: Any, keys: Sequence[tuple[datetime, str]]) -> dict[str, Any]:
    """Return the parameters of the links to the first page and to the next one, ``None`` for no link.

    :param before: empty on the first page
    :param keys: those of the rows of this page, and one more if there is a next one
    """
    last = campaigns.write_key(*keys[campaigns.PAGE_ROWS - 1]) if len(keys) > campaigns.PAGE_ROWS else None
    return {
        "newest": urlencode(named) if before else None,
        "older": urlencode({**named, "before": last}) if last else None,
    }


def passcodes_page(pages: Pages, request: Request, viewer: Viewer, days: str) -> Response:
    """Return how many passcodes were requested, verified and expired."""
    shown_days, since = _period(days)
    with pages.reading() as connection:
        rows = _passcodes(connection, since)
        readable = viewer.readable({dag_id for dag_id, *_ in rows})
        account = pages.account(connection, {conn_id for dag_id, conn_id, *_ in rows if dag_id in readable})
    numbers: defaultdict[str, Counter[str]] = defaultdict(Counter)
    spellings: dict[str, str] = {}
    for dag_id, conn_id, outcome, count in rows:
        if dag_id in readable:
            numbers[spellings.setdefault(conn_id.lower(), conn_id)][
                outcome if outcome in ("verified", "expired", "pending") else "other"
            ] += count
    funnels = sorted(numbers.items())
    return respond(
        request, "passcodes.html", funnels=funnels, **account, days=shown_days, choices=DAYS, refresh=REFRESH
    )


def _passcodes(connection: Connection, since: datetime) -> list[tuple[str, str, str, int]]:
    columns = passcodes.c
    # A pending passcode expires by the clock, because tasks may have stopped reading its status.
    is_expired = and_(columns.outcome == "pending", columns.expires_at < datetime.now(UTC))
    outcome = case((is_expired, "expired"), else_=columns.outcome).label("shown")
    query = select(columns.dag_id, columns.conn_id, outcome, func.count()).where(columns.requested_at >= since)
    rows = connection.execute(query.group_by(columns.dag_id, columns.conn_id, "shown"))
    return [(dag_id, conn_id, shown, int(count)) for dag_id, conn_id, shown, count in rows]


def airtime_page(pages: Pages, request: Request, viewer: Viewer, days: str, before: str) -> Response:
    """Return the purchases of airtime by network, and the newest of them one by one.

    :param before: the key of the last row of the previous page; empty for the first page
    """
    check_text(before)
    shown_days, since = _period(days)
    columns = airtime_purchases.c
    with pages.reading() as connection:
        known = connection.execute(select(columns.dag_id).where(columns.bought_at >= since).distinct()).scalars()
        dag_ids = sorted(viewer.readable(known))
        is_readable = and_(columns.bought_at >= since, columns.dag_id.in_(dag_ids))
        totals = select(
            columns.network,
            func.count().label("purchases"),
            func.sum(columns.amount).label("amount"),
            func.sum(columns.charge).label("charge"),
        )
        by_network = connection.execute(totals.where(is_readable).group_by(columns.network)).all()
        key = campaigns.read_key(before) if before else None
        query = campaigns.page_of(
            select(airtime_purchases).where(is_readable), columns.bought_at, columns.reference, key
        )
        rows = connection.execute(query).all()
        shown = rows[: campaigns.PAGE_ROWS]
        counts = read_counts(connection, [row.reference for row in shown])
        account = pages.account(connection, {row.conn_id for row in shown})
    return respond(
        request,
        "airtime.html",
        **account,
        networks=sorted(by_network, key=lambda row: (-(row.amount or 0), row.network)),
        purchases=[(row, _delivery(counts.get(row.reference))) for row in shown],
        days=shown_days,
        choices=DAYS,
        **_paging({"days": shown_days}, before, [(row.bought_at, row.reference) for row in rows]),
    )


def _delivery(counts: Any) -> str:
    if counts is None or not counts.known:
        return "not reported"
    return "delivered" if counts.delivered else "undelivered" if counts.undelivered else "in flight"


def reports_page(pages: Pages, request: Request, viewer: Viewer) -> Response:
    """Return the number of reports a minute, over all DAGs."""
    if not viewer.sees_totals:
        return fail(
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
    last = max(buckets, default=None)
    return respond(
        request,
        "reports.html",
        chart=charts.over_time(buckets, STATUSES, "Delivery reports a minute", until=now),
        kinds=reported_statuses(buckets),
        connections=sorted(by_connection.items()),
        newest=buckets[last].total() if last else 0,
        last=last,
        minutes=MINUTES,
        refresh=REFRESH,
    )


def _period(text: str) -> tuple[int, datetime]:
    """Return the number of days that a page shows, and when they began.

    :raises BadQuestionError: when the text is none of the choices
    """
    if not (text.isascii() and text.isdigit() and len(text) < 4):
        raise BadQuestionError("days must be a number of days.")
    days = int(text)
    if days not in DAYS:
        raise BadQuestionError(f"days must be one of {', '.join(map(str, DAYS))}.")
    return days, datetime.now(UTC) - timedelta(days=days)
