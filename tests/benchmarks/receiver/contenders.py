"""What the receiver is measured against: a route that only parses JSON, and one that commits each report singly."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import Body, FastAPI
from starlette.requests import Request

CALLBACK = "/callback/{conn_id}/{token}"
WEBHOOK = "/webhook/{conn_id}"


def bare() -> FastAPI:
    """Parses JSON, and nothing else."""
    app = FastAPI()

    @app.post(f"/bare{CALLBACK}")
    @app.post(CALLBACK)
    async def take_callback(conn_id: str, token: str, body: Annotated[Any, Body()]) -> dict[str, str]:
        return {"status": "stored"}

    @app.post(f"/bare{WEBHOOK}")
    @app.post(WEBHOOK)
    async def take_webhook(conn_id: str, body: Annotated[Any, Body()]) -> dict[str, str]:
        return {"status": "stored"}

    return app


def singly() -> FastAPI:
    """Does what ours does, but for the group commit: each report is stored by itself, on the loop."""

    from cpaas_provider.database.database import open_database
    from cpaas_provider.delivery.callbacks.signatures import verify
    from cpaas_provider.delivery.callbacks.tokens import verify_token
    from cpaas_provider.delivery.receiver.writer import ReceivedReport, ReportSource
    from cpaas_provider.delivery.reports import read_report
    from cpaas_provider.delivery.tracking.report_store import ReportStore
    from cpaas_provider.hooks._receiver import get_receiver_connection

    app, report_store = FastAPI(), ReportStore(open_database())
    connections: dict[str, Any] = {}

    def connection_of(conn_id: str) -> Any:
        if conn_id not in connections:
            connections[conn_id] = get_receiver_connection(conn_id)
        return connections[conn_id]

    async def keep(conn_id: str, source: ReportSource, token: Any, request: Request) -> dict[str, str]:
        raw = await request.body()
        report_store.save(
            [ReceivedReport(conn_id, source, token, read_report(await request.json()), raw.decode(), datetime.now(UTC))]
        )
        return {"status": "stored"}

    @app.post(f"/singly{CALLBACK}")
    @app.post(CALLBACK)
    async def take_callback(conn_id: str, token: str, request: Request) -> dict[str, str]:
        read = verify_token(conn_id, token, connection_of(conn_id).hash_secrets)
        return await keep(conn_id, "callback", read, request)

    @app.post(f"/singly{WEBHOOK}")
    @app.post(WEBHOOK)
    async def take_webhook(conn_id: str, request: Request) -> dict[str, str]:
        connection = connection_of(conn_id)
        signature = request.headers.get(connection.signature_header)
        assert verify(await request.body(), signature, connection.webhook_secret)
        return await keep(conn_id, "webhook", None, request)

    return app
