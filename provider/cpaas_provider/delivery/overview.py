"""A page that says how far the delivery of what a task sent is; counts alone, behind Airflow's login."""

from __future__ import annotations

import asyncio
import html
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Query
from sqlalchemy import select
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from cpaas_provider.delivery.tally import Counts, counts_of
from cpaas_provider.store.database import Database
from cpaas_provider.store.errors import StoreError
from cpaas_provider.store.schema import CAMPAIGN_LENGTH, sends

PATH = "/deliveries"
MOST = 100
"""Campaigns one page shows."""

_REFRESH = 5
_HEAD = ("Campaign", "Task", "Sent to", "Delivered", "Undelivered", "Open", "State")
_STYLE = (
    "body{font:15px system-ui,sans-serif;margin:2rem;color:#222;background:#fff}"
    "table{border-collapse:collapse}th,td{padding:.4rem .9rem;border-bottom:1px solid #ddd;text-align:left}"
    "td.n{text-align:right;font-variant-numeric:tabular-nums}"
    "@media(prefers-color-scheme:dark){body{color:#ddd;background:#181818}th,td{border-color:#444}}"
)

Campaigns = Annotated[
    list[Annotated[str, Query(min_length=1, max_length=CAMPAIGN_LENGTH)]],
    Query(alias="campaign", min_length=1, max_length=MOST, description="What was sent, by its reference"),
]


def add_overview(app: FastAPI, store: Callable[[], Database], guard: Callable[..., Any], prefix: str = "") -> None:
    """Add the page, for whoever is logged in.

    :param store: opens the store, which may block
    :param guard: dependency that lets in nobody else
    """

    @app.get(prefix + PATH, dependencies=[Depends(guard)], response_class=HTMLResponse)
    async def deliveries(request: Request, campaigns: Campaigns) -> Response:
        """Show counts, as a page or, where that is asked for, as JSON."""
        try:
            found = await asyncio.to_thread(overview, store, campaigns)
        except StoreError as error:
            return JSONResponse({"detail": str(error)}, 503)
        if "application/json" in request.headers.get("accept", ""):
            return JSONResponse(found)
        return HTMLResponse(page_of(found), headers={"Refresh": str(_REFRESH), "Cache-Control": "no-store"})


def overview(store: Callable[[], Database], campaigns: list[str]) -> list[dict[str, Any]]:
    """Return what is known of campaigns, in their order, each once.

    :raises StoreError: when the store cannot be read
    """
    wanted = list(dict.fromkeys(campaigns))
    with store().reading() as connection:
        counts = counts_of(connection, wanted)
        noted = {row.campaign: row for row in connection.execute(select(sends).where(sends.c.campaign.in_(wanted)))}
    return [_line(one, counts.get(one, Counts()), noted.get(one)) for one in wanted]


def _line(campaign: str, counts: Counts, send: Any) -> dict[str, Any]:
    expected = None if send is None else send.expected
    # Until the task has ended, nobody knows to how many it will have sent.
    missing = counts.in_flight if expected is None else max(0, expected - counts.final)
    return {
        "campaign": campaign,
        "task": None if send is None else _task(send),
        "expected": expected,
        "delivered": counts.delivered,
        "undelivered": counts.undelivered,
        "open": missing,
        "state": _state(send, missing),
    }


def _task(send: Any) -> str:
    mapped = f" [{send.map_index}]" if send.map_index >= 0 else ""
    return f"{send.dag_id}.{send.task_id}{mapped} ({send.run_id})"


def _state(send: Any, missing: int) -> str:
    if send is None:
        return "nothing is known of it here"
    if send.ended is None:
        return "being sent"
    return "reports are awaited" if missing else "all reported"


def page_of(lines: list[dict[str, Any]]) -> str:
    """Return the page; whatever a name holds is shown as text."""
    names = ("campaign", "task", "expected", "delivered", "undelivered", "open", "state")
    rows = "".join("<tr>" + "".join(_cell(line[name]) for name in names) + "</tr>" for line in lines)
    heads = "".join(f"<th>{head}</th>" for head in _HEAD)
    return (
        "<!doctype html><html lang=en><meta charset=utf-8><title>Delivery</title>"
        f"<style>{_STYLE}</style><h1>Delivery</h1><table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"
        f"<p>As far as the service has reported; looked up anew every {_REFRESH} seconds.</p></html>"
    )


def _cell(value: Any) -> str:
    if isinstance(value, int):
        return f"<td class=n>{value:,}</td>"
    return f"<td>{html.escape(value) if value is not None else ''}</td>"
