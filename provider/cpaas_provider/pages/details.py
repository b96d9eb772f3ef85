"""The page of one campaign, and the page behind the link Delivery of a task: campaigns, or their counts as JSON."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, func, select
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from cpaas_provider.database.activity.stops import find_stops
from cpaas_provider.database.errors import DatabaseError
from cpaas_provider.database.schema.base import CAMPAIGN_LENGTH
from cpaas_provider.database.schema.delivery import report_counts, sends
from cpaas_provider.delivery.reports import DeliveryStatus
from cpaas_provider.delivery.tracking.counts import DeliveryCounts, SendCounts, read_counts, read_sends
from cpaas_provider.delivery.tracking.permanent_failures.brakes import read_brakes
from cpaas_provider.pages.access import Viewer
from cpaas_provider.pages.base import Pages, fail, not_found, refresh_of, respond
from cpaas_provider.pages.campaigns import CampaignRow, find_campaign
from cpaas_provider.pages.html import charts

MOST = 100
"""The most references that one page shows."""

_HINT = (
    "Open the link Delivery of a task that sends. Or give the reference of what was sent: "
    f"/deliveries?campaign=REFERENCE, up to {MOST} times."
)

STATUSES = [status.word for status in DeliveryStatus]
STATUS_NAMES = {int(status): status.word for status in DeliveryStatus}


def campaign_page(pages: Pages, request: Request, viewer: Viewer, reference: str) -> Response:
    """Return the page of a campaign, or the error page if it does not exist or may not be seen."""
    if not _is_reference(reference):
        return not_found(request)
    with pages.reading() as connection:
        found = viewer.visible([find_campaign(connection, reference)])
        if not found:
            return not_found(request)
        row: CampaignRow = found[0]
        if row.is_tracked:
            row = replace(row, summary=pages.summaries.of_one(connection, reference, row.accepted))
        buckets = _reports_by_minute(connection, row)
        brake = next(iter(read_brakes(connection, reference)), None)
        stops = find_stops(connection, [row.conn_id])
    return respond(
        request,
        "campaign.html",
        row=row,
        brake=brake,
        stops=stops,
        chart=charts.over_time(buckets, STATUSES, "Delivery reports over time"),
        kinds=reported_statuses(buckets),
        command=_cli_arguments(row),
        refresh=refresh_of([row]),
    )


def reported_statuses(buckets: charts.Buckets) -> list[str]:
    """Return the statuses that a chart of reports has, in their order."""
    return [status for status in STATUSES if any(status in counts for counts in buckets.values())]


def _reports_by_minute(connection: Connection, row: CampaignRow) -> dict[datetime, dict[str, int]]:
    """Return the number of a campaign's reports on its connection in each minute, by status."""
    columns = report_counts.c
    query = select(columns.minute, columns.delivery_status, func.sum(columns.reports))
    query = query.where(columns.campaign == row.reference, columns.conn_id == row.conn_id)
    found: dict[datetime, dict[str, int]] = {}
    for minute, status, number in connection.execute(query.group_by(columns.minute, columns.delivery_status)):
        found.setdefault(minute, {})[STATUS_NAMES.get(status, "in_flight")] = int(number)
    return found


def _cli_arguments(row: CampaignRow) -> str:
    """Return the task instance as the arguments of ``airflow cpaas journal``."""
    named = shlex.join([row.dag_id, row.run_id, row.task_id])
    return f"{named} --map-index {row.map_index}" if row.map_index >= 0 else named


def deliveries_page(pages: Pages, request: Request, viewer: Viewer, references: Sequence[str]) -> Response:
    """Return the page of one campaign, a list of several, or JSON."""
    as_json = "application/json" in request.headers.get("accept", "")
    if not 0 < len(references) <= MOST or not all(map(_is_reference, references)):
        if as_json:
            return JSONResponse({"detail": _HINT}, 422)
        # Without references it is no error: a user may open the page without a link.
        return fail(request, 422 if references else 200, "Delivery", _HINT)
    wanted = list(dict.fromkeys(references))
    if as_json:
        try:
            with pages.reading() as connection:
                return JSONResponse(_read_statuses(connection, viewer, wanted))
        except DatabaseError as error:
            return JSONResponse({"detail": str(error)}, 503)
    if len(wanted) == 1:
        return campaign_page(pages, request, viewer, wanted[0])
    with pages.reading() as connection:
        found = viewer.visible(find_campaign(connection, reference) for reference in wanted)
        rows = pages.with_summaries(connection, found)
    missing = len(wanted) - len(rows)
    return respond(request, "deliveries.html", rows=rows, missing=missing, refresh=refresh_of(rows))


def _read_statuses(connection: Connection, viewer: Viewer, wanted: list[str]) -> list[dict[str, Any]]:
    """Return the delivery counts of campaigns in their order. Those that may not be seen look like missing ones."""
    rows = connection.execute(select(sends).where(sends.c.campaign.in_(wanted)))
    visible = {row.campaign: row for row in viewer.visible(rows)}
    counts, known = read_counts(connection, visible), read_sends(connection, visible)
    return [
        _line(name, counts.get(name, DeliveryCounts()), known.get(name, SendCounts()), visible.get(name))
        for name in wanted
    ]


def _line(campaign: str, counts: DeliveryCounts, sent: SendCounts, send: Any) -> dict[str, Any]:
    # Until the task has ended, the number of its recipients is unknown.
    has_ended = send is not None and send.expected is not None and sent.accepted is not None
    expected = counts.expected(sent.accepted or 0) if has_ended else None
    unreported = None if expected is None else expected - counts.known
    unknown = sent.unknown
    return {
        "campaign": campaign,
        "task": None if send is None else _task(send),
        "expected": expected,
        "delivered": counts.delivered,
        "undelivered": counts.undelivered,
        "in_flight": counts.in_flight,
        "unreported": unreported,
        "unknown": unknown,
        "state": _state(send, counts.in_flight + (unreported or 0) + (unknown or 0)),
    }


def _task(send: Any) -> str:
    mapped = f" [{send.map_index}]" if send.map_index >= 0 else ""
    return f"{send.dag_id}.{send.task_id}{mapped} ({send.run_id})"


def _state(send: Any, missing: int) -> str:
    if send is None:
        return "not found in this database"
    if send.ended_at is None:
        return "sending"
    return "waiting for reports" if missing else "all reported"


def _is_reference(text: str) -> bool:
    """Return whether a text may be the reference of a campaign."""
    return 0 < len(text) <= CAMPAIGN_LENGTH and text.isprintable()
