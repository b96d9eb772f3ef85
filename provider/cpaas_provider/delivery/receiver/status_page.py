"""A page with the delivery counts of what a task sent, behind Airflow's login."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Query
from jinja2 import Environment
from sqlalchemy import select
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from cpaas_provider.database.database import Database
from cpaas_provider.database.errors import DatabaseError
from cpaas_provider.database.schema import CAMPAIGN_LENGTH, sends
from cpaas_provider.delivery.tracking.counts import DeliveryCounts, read_counts

PATH = "/deliveries"
MOST = 100
"""Campaigns one page shows."""

_REFRESH = 5
_COLUMNS = {
    "campaign": "Campaign",
    "task": "Task",
    "expected": "Recipients",
    "delivered": "Delivered",
    "undelivered": "Undelivered",
    "in_flight": "In flight",
    "unreported": "Unreported",
    "state": "State",
}

_PAGE = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string("""\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width,initial-scale=1">
<title>Delivery</title>
<style>
  body { font: 15px system-ui, sans-serif; margin: 2rem; color: #222; background: #fff }
  table { border-collapse: collapse }
  th, td { padding: .4rem .9rem; border-bottom: 1px solid #ddd; text-align: left }
  td { overflow-wrap: anywhere }
  td.n { text-align: right; font-variant-numeric: tabular-nums }
  /* On a phone each campaign is a card, each figure beside its name. */
  @media (max-width: 45rem) {
    body { margin: 1rem }
    table, tbody, tr, td { display: block }
    thead { display: none }
    tr { margin-bottom: 1rem; border: 1px solid #ddd; border-radius: .4rem }
    td { display: flex; justify-content: space-between; gap: 1rem; text-align: right }
    td::before { content: attr(data-name); color: #777; text-align: left }
  }
  @media (prefers-color-scheme: dark) {
    body { color: #ddd; background: #181818 }
    th, td { border-color: #444 }
  }
</style>
<h1>Delivery</h1>
{% if message %}
<p>{{ message }}</p>
{% else %}
<table>
<thead><tr>{% for head in columns.values() %}<th>{{ head }}</th>{% endfor %}</tr></thead>
<tbody>
{% for line in lines %}
<tr>
{% for name, head in columns.items() %}
{% if line[name] is integer %}
<td class="n" data-name="{{ head }}">{{ "{:,}".format(line[name]) }}</td>
{% else %}
<td data-name="{{ head }}">{{ line[name] if line[name] is not none }}</td>
{% endif %}
{% endfor %}
</tr>
{% endfor %}
</tbody>
</table>
<p>Counts of the delivery reports received so far. The page refreshes every {{ refresh }} seconds.</p>
{% endif %}
</html>
""")

_HINT = (
    "Open the link Delivery of a task that sends. Or give the reference of what was sent: "
    f"{PATH}?campaign=REFERENCE, up to {MOST} times."
)

Campaigns = Annotated[
    list[str],
    Query(alias="campaign", description=f"Reference of a campaign or of a single request, 1 to {MOST} of them"),
]


def add_status_page(app: FastAPI, store: Callable[[], Database], guard: Callable[..., Any], prefix: str = "") -> None:
    """Add the page, for whoever is logged in.

    :param store: opens the store, which may block
    :param guard: dependency that lets in nobody else
    """

    @app.get(prefix + PATH, dependencies=[Depends(guard)], response_class=HTMLResponse)
    async def deliveries(request: Request, campaigns: Campaigns = ()) -> Response:  # type: ignore[assignment]
        """Show delivery counts as an HTML page, or as JSON with `Accept: application/json`."""
        as_json = "application/json" in request.headers.get("accept", "")

        def answer(message: str, status: int) -> Response:
            if as_json:
                return JSONResponse({"detail": message}, status)
            return HTMLResponse(render(message=message), status, headers={"Cache-Control": "no-store"})

        if not _is_question(campaigns):
            # Whoever opens the page by hand has asked nothing wrong.
            return answer(_HINT, 422 if as_json or campaigns else 200)
        try:
            found = await asyncio.to_thread(read_statuses, store, campaigns)
        except DatabaseError as error:
            return answer(str(error), 503)
        if as_json:
            return JSONResponse(found)
        return HTMLResponse(render(found), headers={"Refresh": str(_REFRESH), "Cache-Control": "no-store"})


def _is_question(campaigns: Sequence[str]) -> bool:
    return 0 < len(campaigns) <= MOST and all(
        0 < len(one) <= CAMPAIGN_LENGTH and one.isprintable() for one in campaigns
    )


def read_statuses(store: Callable[[], Database], campaigns: list[str]) -> list[dict[str, Any]]:
    """Return what is known of campaigns, in their order, each once.

    :raises DatabaseError: when the store cannot be read
    """
    wanted = list(dict.fromkeys(campaigns))
    with store().connect() as connection:
        counts = read_counts(connection, wanted)
        noted = {row.campaign: row for row in connection.execute(select(sends).where(sends.c.campaign.in_(wanted)))}
    return [_line(one, counts.get(one, DeliveryCounts()), noted.get(one)) for one in wanted]


def _line(campaign: str, counts: DeliveryCounts, send: Any) -> dict[str, Any]:
    accepted = None if send is None else send.expected
    expected = None if accepted is None else counts.expected(accepted)
    # Until the task has ended, nobody knows to how many it will have sent.
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


def render(lines: Sequence[dict[str, Any]] = (), message: str = "") -> str:
    """Return the page. Whatever a name or message holds is shown as text.

    :param message: shown in place of the table
    """
    return _PAGE.render(columns=_COLUMNS, lines=lines, message=message, refresh=_REFRESH)
