"""The receiver with all it needs behind it: the store that Airflow's configuration names, and its report store."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterable
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from cpaas_provider.delivery.receiver.endpoints import Observe
from cpaas_provider.delivery.receiver.log_throttle import ThrottledLogger

if TYPE_CHECKING:
    from fastapi import FastAPI

    from cpaas_provider.database.database import Database
    from cpaas_provider.delivery.receiver.writer import ReportWriter


throttled_log = ThrottledLogger(logging.getLogger(__name__))

WRITE_TIMEOUT = 5.0
"""What a transaction of the receiver's may take, the connection to the database included."""


class SigningSecrets(Protocol):
    """A connection, as far as reports are proved with it."""

    @property
    def hash_secrets(self) -> tuple[str, ...]:
        """What signs and verifies callback URLs."""

    @property
    def webhook_secret(self) -> str | None:
        """What account webhooks are signed with."""

    @property
    def signature_header(self) -> str | None:
        """The header their signature is in."""


def create_app(
    connections: Callable[[str], SigningSecrets | None],
    *,
    guard: Callable[..., Any] | None,
    emit_metric: Observe | None,
    expected: Callable[[], Iterable[str]] = tuple,
    prefix: str = "",
    described: bool = False,
) -> FastAPI:
    """Return the receiver. Its store is opened by the first report.

    :param connections: reads a connection, which may block; ``None`` where there is no such connection
    :param expected: names connections there are, as far as they can be listed, which may block
    :param guard: as ``build_app``, like the rest
    """
    from cpaas_provider.delivery.receiver.app import build_app
    from cpaas_provider.delivery.receiver.secrets_cache import ConnectionSecrets
    from cpaas_provider.delivery.receiver.status_page import add_status_page

    opened = _LazyDatabase()

    def secrets(conn_id: str) -> ConnectionSecrets | None:
        found = connections(conn_id)
        if found is None:
            return None
        return ConnectionSecrets(
            found.hash_secrets, found.webhook_secret, found.signature_header, callback_lifetime=callback_lifetime()
        )

    app = build_app(
        secrets,
        opened.writer,
        guard=guard,
        database_id=lambda: opened.database().identity,
        check_database=lambda: opened.database().check(),
        emit_metric=emit_metric,
        expected=partial(_expected, expected, opened.database),
        prefix=prefix,
        described=described,
    )
    if guard is not None:
        add_status_page(app, opened.database, guard, prefix)
    return app


def callback_lifetime() -> timedelta:
    """Return how long callback URLs take reports, by ``[cpaas] callback_days``."""
    from airflow.sdk.configuration import conf

    from cpaas_provider.delivery.callbacks.tokens import LIFETIME

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


def _expected(listed: Callable[[], Iterable[str]], database: Callable[[], Database]) -> set[str]:
    """Return the connections there are: those that can be listed, and those that something was sent with."""
    from cpaas_provider.database.errors import DatabaseError
    from cpaas_provider.delivery.tracking.sent_requests import sending_connections

    found: set[str] = set()
    with contextlib.suppress(DatabaseError), database().connect() as connection:
        found |= sending_connections(connection)
    return found.union(listed())


class _LazyDatabase:
    """The store, opened by whoever needs it first, in a process that was forked before."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._database: Database | None = None

    def database(self) -> Database:
        """Return it.

        :raises DatabaseError: when it cannot be opened; the next who asks tries again
        """
        from cpaas_provider.database.database import open_database

        with self._lock:
            if self._database is None:
                self._database = open_database(write_timeout=WRITE_TIMEOUT)
            return self._database

    def writer(self) -> ReportWriter:
        """Return a desk that stores there.

        :raises DatabaseError: when it cannot be opened
        """
        from cpaas_provider.delivery.receiver.writer import ReportWriter
        from cpaas_provider.delivery.tracking.report_store import ReportStore

        return ReportWriter(ReportStore(self.database()).save)
