"""The receiver of delivery reports: a web application with two public doors, mounted by Airflow or run by itself."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

from fastapi import Depends, FastAPI
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.openapi.utils import get_openapi
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse
from starlette.routing import Match, Route
from starlette.types import Receive, Scope, Send

from cpaas_provider import __version__
from cpaas_provider.delivery.receiver.endpoints import CallbackEndpoint, Observe, WebhookEndpoint
from cpaas_provider.delivery.receiver.health import Health
from cpaas_provider.delivery.receiver.http.responses import RESPONSE_TIMEOUT
from cpaas_provider.delivery.receiver.openapi import endpoint_paths
from cpaas_provider.delivery.receiver.secrets_cache import ConnectionSecrets, SecretsCache
from cpaas_provider.delivery.receiver.single_flight import SingleFlight
from cpaas_provider.delivery.receiver.writer import LazyReportWriter, ReportSink


class _Receiver(FastAPI):
    """Goes to the doors straight away: what FastAPI puts before a route costs as much as they do."""

    endpoints: tuple[Route, ...] = ()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or what else a server says."""
        if scope["type"] == "http":
            for source in self.endpoints:
                match, found = source.matches(scope)
                if match is not Match.NONE:
                    scope.update(found)
                    await source.app(scope, receive, send)
                    return
        await super().__call__(scope, receive, send)


def build_app(
    secrets: Callable[[str], ConnectionSecrets | None],
    writer: Callable[[], ReportSink],
    *,
    guard: Callable[..., Any] | None,
    database_id: Callable[[], str],
    check_database: Callable[[], None] = lambda: None,
    expected: Callable[[], Iterable[str]] = tuple,
    emit_metric: Observe | None,
    prefix: str = "",
    described: bool = False,
) -> FastAPI:
    """Return the application. Everything on it but the two doors is behind the guard.

    :param secrets: reads what proves the reports of a connection; called in a thread, ``None`` for no such connection
    :param writer: opens what stores them; called in a thread by the first report
    :param guard: dependency that lets nobody in who is not logged in; ``None`` where only the doors are published
    :param database_id: names the store that reports go to; called in a thread
    :param check_database: raises ``DatabaseError`` where no report could be stored; called in a thread
    :param expected: names connections there are, as far as can be told, so that they are read before unknown names;
        called in a thread
    :param emit_metric: takes measurements: an ``int`` counts, a ``float`` is seconds; ``None`` where nobody wants them
    :param prefix: path before all others, where nobody mounts it under one
    :param described: publish the description of the doors also without a guard
    """
    lazy_writer = LazyReportWriter(writer)

    @contextlib.asynccontextmanager
    async def running(_: FastAPI) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await lazy_writer.close()

    app = _Receiver(
        title="CPaaS delivery reports",
        version=__version__,
        lifespan=running,
        redirect_slashes=False,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
    )
    secrets_cache = SecretsCache(secrets, expected=expected)
    name = SingleFlight(database_id)
    callback = CallbackEndpoint(secrets_cache, lazy_writer, emit_metric, lambda: name.result(RESPONSE_TIMEOUT))
    # A connection's id may hold slashes.
    app.endpoints = (
        Route(prefix + "/callback/{conn_id:path}/{token}", callback),
        Route(prefix + "/webhook/{conn_id:path}", WebhookEndpoint(secrets_cache, lazy_writer, emit_metric)),
    )
    closed = [] if guard is None else [Depends(guard)]

    state = Health(check_database)

    @app.get(
        prefix + "/health",
        dependencies=closed,
        responses={503: {"description": "The database cannot store reports now."}},
    )
    async def health() -> JSONResponse:
        available = await state.database_available()
        said = {"status": "ok" if available else "database unavailable"} | ({"version": __version__} if guard else {})
        return JSONResponse(said, 200 if available else 503, {"Cache-Control": "no-store"})

    if guard or described:
        _add_description(app, prefix, closed)
    return app


def _add_description(app: FastAPI, prefix: str, closed: list[Any]) -> None:
    document = get_openapi(title=app.title, version=app.version, routes=app.routes)
    document["paths"] |= endpoint_paths(prefix)

    @app.get(prefix + "/openapi.json", dependencies=closed, include_in_schema=False)
    async def description() -> dict[str, Any]:
        return document

    @app.get(prefix + "/docs", dependencies=closed, include_in_schema=False)
    async def pages(request: Request) -> HTMLResponse:
        root: str = request.scope.get("root_path", "")
        return get_swagger_ui_html(openapi_url=f"{root}{prefix}/openapi.json", title=app.title)
