"""The receiver of delivery reports: a web application with two public endpoints, in Airflow's API server or alone."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any, Protocol

from fastapi import Depends, FastAPI
from fastapi.openapi.utils import get_openapi
from starlette.responses import JSONResponse
from starlette.routing import Match, Route
from starlette.types import Receive, Scope, Send

from cpaas_provider import __version__
from cpaas_provider.database.database import Database, open_database
from cpaas_provider.database.errors import DatabaseError
from cpaas_provider.delivery.callbacks.tokens import LIFETIME
from cpaas_provider.delivery.receiver.endpoints import CallbackEndpoint, Observe, WebhookEndpoint
from cpaas_provider.delivery.receiver.http.responses import RESPONSE_TIMEOUT, with_private_headers
from cpaas_provider.delivery.receiver.log_throttle import ThrottledLogger
from cpaas_provider.delivery.receiver.openapi import endpoint_paths
from cpaas_provider.delivery.receiver.secrets_cache import ConnectionSecrets, SecretsCache
from cpaas_provider.delivery.receiver.single_flight import SingleFlight
from cpaas_provider.delivery.receiver.writer import ReceivedReport, ReportWriter, StoreResult
from cpaas_provider.delivery.tracking.report_store import ReportStore
from cpaas_provider.delivery.tracking.sent_requests import sending_connections

throttled_log = ThrottledLogger(logging.getLogger(__name__))

HEALTH_SECONDS = 2.0
"""How long the result of a database check is cached, so that frequent health requests cause few writes."""

WRITE_TIMEOUT = 5.0
"""Time limit of a transaction of the receiver, in seconds, including the connection to the database."""


class SigningSecrets(Protocol):
    """The part of a connection that verifies and reads reports."""

    @property
    def hash_secrets(self) -> tuple[str, ...]:
        """The secrets that sign and verify callback URLs."""

    @property
    def webhook_secret(self) -> str | None:
        """The secret that signs account webhooks."""

    @property
    def signature_header(self) -> str | None:
        """The header of their signature."""

    @property
    def default_region(self) -> str | None:
        """The two-letter region of national numbers."""


def create_app(
    connections: Callable[[str], SigningSecrets | None],
    *,
    guard: Callable[..., Any] | None,
    emit_metric: Observe | None,
    expected: Callable[[], Iterable[str]] = tuple,
    prefix: str = "",
    described: bool = False,
) -> FastAPI:
    """Return the receiver. The first report opens its database.

    :param connections: reads a connection, and may block; ``None`` for an unknown id
    :param expected: lists existing connections as far as possible, and may block; those of earlier sends are added
    :param guard: as for ``build_app``, like the rest
    """
    opened = _LazyDatabase()

    def secrets(conn_id: str) -> ConnectionSecrets | None:
        found = connections(conn_id)
        if found is None:
            return None
        return ConnectionSecrets(
            found.hash_secrets,
            found.webhook_secret,
            found.signature_header,
            callback_lifetime(),
            found.default_region,
        )

    def existing() -> set[str]:
        found: set[str] = set()
        with contextlib.suppress(DatabaseError), opened.database().connect() as connection:
            found |= sending_connections(connection)
        return found.union(expected())

    return build_app(
        secrets,
        ReportWriter(opened.save),
        guard=guard,
        database_id=lambda: opened.database().identity,
        check_database=lambda: opened.database().check(),
        emit_metric=emit_metric,
        expected=existing,
        prefix=prefix,
        described=described,
    )


def callback_lifetime() -> timedelta:
    """Return how long callback URLs take reports, by ``[cpaas] callback_days``."""
    from airflow.sdk.configuration import conf

    said = conf.get("cpaas", "callback_days", fallback=None)
    try:
        lifetime = LIFETIME if said is None else timedelta(days=int(said))
    except (ValueError, OverflowError):
        lifetime = timedelta()
    if lifetime > timedelta():
        return lifetime
    throttled_log.warning(
        "days", f"[cpaas] callback_days is not a whole number above 0. Using {LIFETIME.days} days instead."
    )
    return LIFETIME


class _LazyDatabase:
    """The database, opened at first use: the process may have been forked before."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._database: Database | None = None
        self._store: ReportStore | None = None

    def database(self) -> Database:
        """Return the open database.

        :raises DatabaseError: when it cannot be opened; the next call tries again
        """
        with self._lock:
            if self._database is None:
                self._database = open_database(write_timeout=WRITE_TIMEOUT, background_checkpoints=True)
            return self._database

    def save(self, incoming: Sequence[ReceivedReport]) -> list[StoreResult]:
        """Store reports in it, as ``ReportStore.save`` does."""
        if self._store is None:
            self._store = ReportStore(self.database())
        return self._store.save(incoming)


class ReceiverApp(FastAPI):
    """Calls the endpoints directly: FastAPI's own steps before a route cost as much as they do.

    Every other response, errors of FastAPI included, gets ``PRIVATE_HEADERS`` here. Those of the endpoints have them.
    """

    endpoints: tuple[tuple[str, Route], ...] = ()
    """Each with a part of its paths, which is found faster than the path is matched."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request, or another event of the server."""
        if scope["type"] == "http":
            path = scope["path"]
            for part, endpoint in self.endpoints:
                match, found = endpoint.matches(scope) if part in path else (Match.NONE, {})
                if match is not Match.NONE:
                    scope.update(found)
                    await endpoint.app(scope, receive, send)
                    return
            send = with_private_headers(send)
        await super().__call__(scope, receive, send)


def build_app(
    secrets: Callable[[str], ConnectionSecrets | None],
    writer: ReportWriter,
    *,
    guard: Callable[..., Any] | None,
    database_id: Callable[[], str],
    check_database: Callable[[], None] = lambda: None,
    expected: Callable[[], Iterable[str]] = tuple,
    emit_metric: Observe | None,
    prefix: str = "",
    described: bool = False,
) -> FastAPI:
    """Return the application. The guard protects every route but the two endpoints.

    :param secrets: reads the secrets of a connection; called in a thread; ``None`` for an unknown id
    :param writer: stores reports; closed after the application was served
    :param guard: dependency that admits users who are logged in; ``None`` if only the endpoints are published
    :param database_id: returns the id of the database that stores reports; called in a thread
    :param check_database: raises ``DatabaseError`` if no report can be stored; called in a thread
    :param expected: lists existing connections as far as possible, so that they are read before unknown ids; called in
        a thread
    :param emit_metric: takes measurements: an ``int`` is a count, a ``float`` is seconds; ``None`` for none
    :param prefix: path before all others, if the application is not mounted under one
    :param described: publish the OpenAPI description of the endpoints also without a guard
    """

    @contextlib.asynccontextmanager
    async def running(_: FastAPI) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await writer.close()

    app = ReceiverApp(
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
    callback = CallbackEndpoint(secrets_cache, writer, emit_metric, lambda: name.result(RESPONSE_TIMEOUT))
    # A connection id may contain slashes.
    app.endpoints = (
        ("/callback/", Route(prefix + "/callback/{conn_id:path}/{token}", callback)),
        ("/webhook/", Route(prefix + "/webhook/{conn_id:path}", WebhookEndpoint(secrets_cache, writer, emit_metric))),
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
        return JSONResponse(said, 200 if available else 503)

    if guard or described:
        _add_description(app, prefix, closed)
    return app


def _add_description(app: FastAPI, prefix: str, closed: list[Any]) -> None:
    document = get_openapi(title=app.title, version=app.version, routes=app.routes)
    document["paths"] |= endpoint_paths(prefix)

    @app.get(prefix + "/openapi.json", dependencies=closed, include_in_schema=False)
    async def description() -> dict[str, Any]:
        return document


class Health:
    """Checks the database with a write that changes nothing, so that it fails as storing a report would.

    :param check: makes the write, and may block; raises ``DatabaseError`` if it fails
    """

    def __init__(self, check: Callable[[], None]) -> None:
        self._check = SingleFlight(check)
        self._found = False
        self._until = float("-inf")

    async def database_available(self) -> bool:
        """Return whether the database can store reports in time."""
        if time.monotonic() >= self._until:
            try:
                await self._check.result(RESPONSE_TIMEOUT)
                self._found = True
            except (TimeoutError, DatabaseError) as error:
                self._found = False
                throttled_log.warning(
                    "health", f"The receiver's database is not available. {error or 'It did not respond in time.'}"
                )
            self._until = time.monotonic() + HEALTH_SECONDS
        return self._found
