"""Shared by all routes of the pages: access to the database, the frame of a page, and error pages."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any
from urllib.parse import quote

from fastapi.routing import APIRoute
from msgspec import Struct
from sqlalchemy import Connection
from starlette.requests import Request
from starlette.responses import Response

from cpaas_provider.database.activity.stops import find_stops
from cpaas_provider.database.database import Database
from cpaas_provider.database.errors import DatabaseError
from cpaas_provider.delivery.campaigns import CampaignRecord, Place, TaskState
from cpaas_provider.delivery.tracking.counts import open_report_database
from cpaas_provider.hooks._account.budget import read_budgets
from cpaas_provider.hooks._account.options import BudgetOptions
from cpaas_provider.pages.campaigns import BadQuestionError, CampaignRow
from cpaas_provider.pages.html.rendering import render
from cpaas_provider.pages.summaries import Summaries, Summary

REFRESH = 5
"""Seconds after which the browser reloads a page with changing figures."""


TaskStates = Callable[[Collection[Place]], Mapping[Place, TaskState]]


class LazyDatabase:
    """The database, opened by its first use."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._database: Database | None = None

    def __call__(self) -> Database:
        """Return the database.

        :raises DatabaseError: when it cannot be opened, or cannot store reports
        """
        with self._lock:
            if self._database is None:
                self._database = open_report_database()
            return self._database

    def close(self) -> None:
        """Close the database, if it was opened."""
        with self._lock:
            database, self._database = self._database, None
        if database is not None:
            database.close()


class Pages(Struct, frozen=True):
    """The database and the summaries that the routes share.

    :param database: returns the database; opens it on the first call, which may block
    :param task_states: returns Airflow's states of task instances, by one query
    :param default_region: returns the region of a connection's national numbers, ``None`` if it has none
    :param budget_options: returns the budget of a connection, ``None`` if it has none
    """

    database: Callable[[], Database]
    summaries: Summaries
    task_states: TaskStates
    default_region: Callable[[str], str | None]
    budget_options: Callable[[str], BudgetOptions | None]

    def reading(self) -> contextlib.AbstractContextManager[Connection]:
        """Open a connection for reading, on which all figures of a page are of one moment."""
        return self.database().connect(one_moment=True)

    def account(self, connection: Connection, conn_ids: Collection[str]) -> dict[str, Any]:
        """Return the stops and the budgets of connections, for the part of a page about the account."""
        now = datetime.now(UTC)
        options = {conn_id: self.budget_options(conn_id) for conn_id in sorted(conn_ids)}
        statuses = [
            status
            for conn_id, option in options.items()
            if option is not None
            for status in read_budgets(connection, conn_id, option, now)
        ]
        return {"stops": find_stops(connection, conn_ids), "budgets": statuses}

    def rows(self, connection: Connection, records: Sequence[CampaignRecord]) -> list[CampaignRow]:
        """Return campaigns or contact syncs with their figures, each query for all of them."""
        states = self.task_states([record.place for record in records])
        summaries = self.summaries.of_list(connection, records)
        return [row_of(record, states.get(record.place), summaries.get(record.reference)) for record in records]

    def row(self, connection: Connection, record: CampaignRecord) -> CampaignRow:
        """Return one campaign with all that its page shows."""
        state = self.task_states([record.place]).get(record.place)
        return row_of(record, state, self.summaries.of_one(connection, record) if record.is_tracked else None)


def row_of(record: CampaignRecord, task: TaskState | None, summary: Summary | None) -> CampaignRow:
    """Return a campaign or contact sync with its figures."""
    counts, is_current = (None, True) if summary is None else (summary.counts, summary.is_current)
    return CampaignRow(record, record.figures(counts, task, is_current=is_current), task, summary)


class PageRoute(APIRoute):
    """A route that responds with an error page if a parameter or the database cannot be used."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler of requests."""
        handle = super().get_route_handler()

        async def guarded(request: Request) -> Response:
            try:
                return await handle(request)
            except BadQuestionError as error:
                page = 422, "Not a valid request", str(error)
            except DatabaseError as error:
                page = 503, "The database is not available", str(error)
            return await asyncio.to_thread(fail, request, *page)

        return guarded


def respond(request: Request, template: str, status: int = 200, **values: Any) -> Response:
    """Return a page from a template, with the values that the frame of all pages needs."""
    root = request.scope.get("root_path", "")
    frame = {"root": root, "task_url": partial(_task_url, root.removesuffix("/cpaas")), "refresh": 0}
    return render(template, status, **{**frame, **values})


def refresh_of(rows: Iterable[CampaignRow]) -> int:
    """Return the seconds after which the browser reloads a page of campaigns; 0 if their figures stay."""
    return REFRESH if any(row.figures.will_change for row in rows) else 0


def fail(request: Request, status: int, heading: str, message: str) -> Response:
    """Return an error page."""
    return respond(request, "message.html", status, heading=heading, message=message)


def not_found(request: Request) -> Response:
    """Return the error page for campaigns that do not exist or may not be seen: it is the same for both."""
    return fail(request, 404, "Not found", "Not found, or it belongs to a DAG that you may not read.")


def check_text(*values: str, most: int = 500) -> None:
    """Check that parameters are text that any database accepts.

    :param most: the longest allowed text, in characters
    :raises BadQuestionError: when a parameter is too long or has a character that is not printable
    """
    for value in values:
        if len(value) > most or (value and not value.isprintable()):
            raise BadQuestionError("A parameter is too long, or has a character that cannot be shown.")


def _task_url(airflow: str, row: CampaignRecord) -> str:
    dag_id, run_id, task_id = (quote(name, safe="") for name in (row.dag_id, row.run_id, row.task_id))
    mapped = f"/mapped/{row.map_index}" if row.map_index >= 0 else ""
    return f"{airflow}/dags/{dag_id}/runs/{run_id}/tasks/{task_id}{mapped}"
