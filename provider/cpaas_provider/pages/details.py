"""The page of one campaign, and the page behind the link Delivery of a task: campaigns, or their counts as JSON."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, func, select
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from cpaas_provider.database.activity.progress import CONTACT_SYNC
from cpaas_provider.database.errors import DatabaseError
from cpaas_provider.database.schema.activity import task_progress
from cpaas_provider.database.schema.base import CAMPAIGN_LENGTH
from cpaas_provider.database.schema.delivery import report_counts
from cpaas_provider.delivery.campaigns import (
    CampaignFigures,
    CampaignRecord,
    TaskState,
    read_campaign_counts,
    read_campaigns,
)
from cpaas_provider.delivery.reports import DeliveryStatus
from cpaas_provider.delivery.tracking.permanent_failures.brakes import read_brakes
from cpaas_provider.pages.access import Viewer
from cpaas_provider.pages.base import Pages, fail, not_found, refresh_of, respond
from cpaas_provider.pages.html import charts

MOST = 100
"""The most references that one page shows."""

_HINT = (
    "Open the link Delivery of a task that sends. Or give the reference of what was sent: "
    f"/deliveries?campaign=REFERENCE, up to {MOST} times."
)

_MISSING = {
    **dict.fromkeys(("campaign", "task", "task_state", "open", *CampaignFigures.__struct_fields__)),
    "state": "not found in this database",
}

STATUSES = [status.word for status in DeliveryStatus]
STATUS_NAMES = {int(status): status.word for status in DeliveryStatus}


def campaign_page(pages: Pages, request: Request, viewer: Viewer, reference: str) -> Response:
    """Return the page of a campaign, or the error page if it does not exist or may not be seen."""
    if not _is_reference(reference):
        return not_found(request)
    with pages.reading() as connection:
        found = viewer.visible(read_campaigns(connection, [reference]).values())
        if not found:
            return not_found(request)
        row = pages.row(connection, found[0])
        buckets = _reports_by_minute(connection, row.record)
        brake = next(iter(read_brakes(connection, reference)), None)
        account = pages.account(connection, [row.record.conn_id])
    return respond(
        request,
        "campaign.html",
        row=row,
        brake=brake,
        **account,
        chart=charts.over_time(buckets, STATUSES, "Delivery reports over time", since=row.record.started_at),
        kinds=reported_statuses(buckets),
        command=_cli_arguments(row.record),
        refresh=refresh_of([row]),
    )


def contact_sync_page(pages: Pages, request: Request, viewer: Viewer, reference: str) -> Response:
    """Return the page of a contact sync, or the error page if it does not exist or may not be seen."""
    if not _is_reference(reference):
        return not_found(request)
    with pages.reading() as connection:
        is_sync = task_progress.c.reference == reference, task_progress.c.kind == CONTACT_SYNC
        names = connection.execute(select(task_progress.c.reference).where(*is_sync)).scalars().all()
        found = viewer.visible(read_campaigns(connection, names).values())
        if not found:
            return not_found(request)
        [row] = pages.rows(connection, found)
        account = pages.account(connection, [row.record.conn_id])
    return respond(request, "contact_sync.html", row=row, **account, refresh=refresh_of([row]))


def reported_statuses(buckets: charts.Buckets) -> list[str]:
    """Return the statuses that a chart of reports has, in their order."""
    return [status for status in STATUSES if any(status in counts for counts in buckets.values())]


def _reports_by_minute(connection: Connection, row: CampaignRecord) -> dict[datetime, dict[str, int]]:
    """Return the number of a campaign's reports on its connection in each minute, by status."""
    columns = report_counts.c
    query = select(columns.minute, columns.delivery_status, func.sum(columns.reports))
    query = query.where(columns.campaign == row.reference, columns.conn_id == row.conn_id)
    found: dict[datetime, dict[str, int]] = {}
    for minute, status, number in connection.execute(query.group_by(columns.minute, columns.delivery_status)):
        found.setdefault(minute, {})[STATUS_NAMES.get(status, "in_flight")] = int(number)
    return found


def _cli_arguments(row: CampaignRecord) -> str:
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
                return JSONResponse(_read_statuses(pages, connection, viewer, wanted))
        except DatabaseError as error:
            return JSONResponse({"detail": str(error)}, 503)
    if len(wanted) == 1:
        return campaign_page(pages, request, viewer, wanted[0])
    with pages.reading() as connection:
        rows = pages.rows(connection, viewer.visible(read_campaigns(connection, wanted).values()))
    missing = len(wanted) - len(rows)
    return respond(request, "deliveries.html", rows=rows, missing=missing, refresh=refresh_of(rows))


def _read_statuses(pages: Pages, connection: Connection, viewer: Viewer, wanted: Sequence[str]) -> list[dict[str, Any]]:
    """Return the figures of campaigns in their order. Those that may not be seen look like missing ones."""
    visible = {record.reference: record for record in viewer.visible(read_campaigns(connection, wanted).values())}
    states = pages.task_states([record.place for record in visible.values()])
    counts = read_campaign_counts(connection, visible.values())
    lines = {
        name: _line(record, record.figures(counts.get(name), states.get(record.place)), states.get(record.place))
        for name, record in visible.items()
    }
    return [lines.get(name) or {**_MISSING, "campaign": name} for name in wanted]


def _line(record: CampaignRecord, figures: CampaignFigures, task: TaskState | None) -> dict[str, Any]:
    mapped = f" [{record.map_index}]" if record.map_index >= 0 else ""
    return {
        "campaign": record.reference,
        "task": f"{record.dag_id}.{record.task_id}{mapped} ({record.run_id})",
        "task_state": None if task is None else task.state,
        **figures.as_json(),
    }


def _is_reference(text: str) -> bool:
    """Return whether a text may be the reference of a campaign."""
    return 0 < len(text) <= CAMPAIGN_LENGTH and text.isprintable()
