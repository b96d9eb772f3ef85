"""The page behind the link Delivery of a task: one campaign, several messages, or their delivery counts as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, select
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from cpaas_provider.database.errors import DatabaseError
from cpaas_provider.database.schema import sends
from cpaas_provider.delivery.tracking.counts import DeliveryCounts, read_counts
from cpaas_provider.pages.access import Viewer
from cpaas_provider.pages.base import REFRESH, Pages, is_reference, will_change
from cpaas_provider.pages.campaigns import find_campaign
from cpaas_provider.pages.details import campaign_page

PATH = "/deliveries"
MOST = 100
"""The most references that one page shows."""

_HINT = (
    "Open the link Delivery of a task that sends. Or give the reference of what was sent: "
    f"{PATH}?campaign=REFERENCE, up to {MOST} times."
)


def deliveries_page(pages: Pages, request: Request, viewer: Viewer, references: Sequence[str]) -> Response:
    """Return the page of one campaign, a list of several, or JSON."""
    as_json = "application/json" in request.headers.get("accept", "")
    if not 0 < len(references) <= MOST or not all(map(is_reference, references)):
        if as_json:
            return JSONResponse({"detail": _HINT}, 422)
        # Without references it is no error: a user may open the page without a link.
        return pages.fail(request, 422 if references else 200, "Delivery", _HINT)
    wanted = list(dict.fromkeys(references))
    if as_json:
        try:
            with pages.reading() as connection:
                return JSONResponse(read_statuses(connection, viewer, wanted))
        except DatabaseError as error:
            return JSONResponse({"detail": str(error)}, 503)
    if len(wanted) == 1:
        return pages.guarded(request, lambda: campaign_page(pages, request, viewer, wanted[0]))
    return pages.guarded(request, lambda: _several(pages, request, viewer, wanted))


def _several(pages: Pages, request: Request, viewer: Viewer, wanted: list[str]) -> Response:
    with pages.reading() as connection:
        found = [row for reference in wanted if (row := find_campaign(connection, reference)) is not None]
        readable = viewer.readable(row.dag_id for row in found)
        rows = pages.with_summaries(connection, [row for row in found if row.dag_id in readable])
    refresh = REFRESH if any(map(will_change, rows)) else 0
    return pages.respond(request, "deliveries.html", rows=rows, missing=len(wanted) - len(rows), refresh=refresh)


def read_statuses(connection: Connection, viewer: Viewer, wanted: list[str]) -> list[dict[str, Any]]:
    """Return the delivery counts of campaigns in their order. Those that may not be seen look like missing ones."""
    rows = connection.execute(select(sends).where(sends.c.campaign.in_(wanted))).all()
    readable = viewer.readable({row.dag_id for row in rows})
    visible = {row.campaign: row for row in rows if row.dag_id in readable}
    counts = read_counts(connection, visible)
    return [_line(name, counts.get(name, DeliveryCounts()), visible.get(name)) for name in wanted]


def _line(campaign: str, counts: DeliveryCounts, send: Any) -> dict[str, Any]:
    accepted = None if send is None else send.expected
    expected = None if accepted is None else counts.expected(accepted)
    # Until the task has ended, the number of its recipients is unknown.
    unreported = None if expected is None else expected - counts.known
    return {
        "campaign": campaign,
        "task": None if send is None else _task(send),
        "expected": expected,
        "delivered": counts.delivered,
        "undelivered": counts.undelivered,
        "in_flight": counts.in_flight,
        "unreported": unreported,
        "state": _state(send, counts.in_flight + (unreported or 0)),
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
