"""What the receiver is measured against: a route that only parses JSON, and one that commits each report singly."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import Body, FastAPI
from starlette.requests import Request

PATH = "/callback/{conn_id}/{ticket}"


def bare() -> FastAPI:
    """Parses JSON, and nothing else."""
    app = FastAPI()

    @app.post(f"/bare{PATH}")
    @app.post(PATH)
    async def take(conn_id: str, ticket: str, body: Annotated[Any, Body()]) -> dict[str, str]:
        return {"status": "kept"}

    return app


def singly() -> FastAPI:
    """Does what ours does, but for the group commit: each report is stored by itself, on the loop."""

    from cpaas_provider.delivery.arrivals import Arrival
    from cpaas_provider.delivery.inbox import Inbox
    from cpaas_provider.delivery.reports import read_report
    from cpaas_provider.delivery.tickets import read_ticket
    from cpaas_provider.hooks.receiving import connection_of_reports
    from cpaas_provider.store.database import open_store

    app, inbox = FastAPI(), Inbox(open_store())
    secrets: dict[str, tuple[str, ...]] = {}

    @app.post(f"/singly{PATH}")
    @app.post(PATH)
    async def take(conn_id: str, ticket: str, request: Request) -> dict[str, str]:
        if conn_id not in secrets:
            connection = connection_of_reports(conn_id)
            assert connection
            secrets[conn_id] = connection.journal_secrets
        read = read_ticket(conn_id, ticket, secrets[conn_id])
        raw = await request.body()
        inbox.keep(
            [Arrival(conn_id, "callback", read, read_report(await request.json()), raw.decode(), datetime.now(UTC))]
        )
        return {"status": "kept"}

    return app
