"""The page of one campaign: figures, delivery over time, by network and by reason, and unresolved requests."""

from __future__ import annotations

import shlex
from dataclasses import replace
from datetime import datetime

from markupsafe import Markup
from sqlalchemy import Connection, func, select
from starlette.requests import Request
from starlette.responses import Response

from cpaas_provider.database.schema import report_counts
from cpaas_provider.delivery.reports import DeliveryStatus
from cpaas_provider.pages.access import Viewer
from cpaas_provider.pages.base import REFRESH, Pages, is_reference, will_change
from cpaas_provider.pages.campaigns import CampaignRow, find_campaign
from cpaas_provider.pages.html import charts

STATUSES = [status.name.lower() for status in DeliveryStatus]
STATUS_NAMES = {int(status): status.name.lower() for status in DeliveryStatus}


def campaign_page(pages: Pages, request: Request, viewer: Viewer, reference: str) -> Response:
    """Return the page of a campaign, or the error page if it does not exist or may not be seen."""
    if not is_reference(reference):
        return pages.not_found(request)
    with pages.reading() as connection:
        row = find_campaign(connection, reference)
        if row is None or row.dag_id not in viewer.readable([row.dag_id]):
            return pages.not_found(request)
        if row.is_tracked:
            row = replace(row, summary=pages.summaries.of_one(connection, reference, row.accepted))
        buckets = reports_by_minute(connection, row)
    return pages.respond(
        request,
        "campaign.html",
        row=row,
        chart=charts.over_time(buckets, STATUSES, "Delivery reports over time") if buckets else Markup(""),
        kinds=[status for status in STATUSES if any(status in counts for counts in buckets.values())],
        command=command(row),
        refresh=REFRESH if will_change(row) else 0,
    )


def reports_by_minute(connection: Connection, row: CampaignRow) -> dict[datetime, dict[str, int]]:
    """Return the number of a campaign's reports on its connection in each minute, by status."""
    columns = report_counts.c
    query = select(columns.minute, columns.delivery_status, func.sum(columns.reports))
    query = query.where(columns.campaign == row.reference, columns.conn_id == row.conn_id)
    found: dict[datetime, dict[str, int]] = {}
    for minute, status, number in connection.execute(query.group_by(columns.minute, columns.delivery_status)):
        found.setdefault(minute, {})[STATUS_NAMES.get(status, "in_flight")] = int(number)
    return found


def command(row: CampaignRow) -> str:
    """Return the task instance as the arguments of ``airflow cpaas journal``."""
    named = shlex.join([row.dag_id, row.run_id, row.task_id])
    return f"{named} --map-index {row.map_index}" if row.map_index >= 0 else named
