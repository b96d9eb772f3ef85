"""The background sender: sends, from the API server, the notifications that callers leave to it.

A caller is the process of a task that ended. It cannot wait until a window closes, and it may be killed. The API server
runs longer. Its background sender sends the notifications that are due and have no caller.

It takes a lease, which shows callers that it runs. It decrypts their alerts and records whether it can, which shows
callers that it can send with their connection. Then a caller adds its alert and ends. Of several API servers, one has
the lease.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

from cpaas_provider.api.amounts import counted
from cpaas_provider.api.errors import CpaasConfigurationError
from cpaas_provider.database.database import Database, open_database
from cpaas_provider.database.errors import DatabaseError
from cpaas_provider.delivery.background_job import BackgroundJob, run_while_serving
from cpaas_provider.notifications._runtime.alerts import AlertGroups, Waiting
from cpaas_provider.notifications._runtime.message import Alert, unseal
from cpaas_provider.notifications._runtime.request import NotificationOutcome
from cpaas_provider.notifications._runtime.run import TIMING, deliver, log_unrecorded

if TYPE_CHECKING:
    from fastapi import FastAPI

    from cpaas_provider.hooks.connection import CpaasConnection

log = logging.getLogger(__name__)

PAUSE = 2.0
"""Seconds between two reads of the database."""

STANDBY_PAUSE = 15.0
"""Seconds between two attempts to get the lease, while another API server has it."""

LEASE_SECONDS = 60.0
MAX_AGE = timedelta(days=1)
"""A group whose last alert is older is not sent, because it is too late to help."""


def send_while_serving(app: FastAPI, read_connection: Callable[[str], CpaasConnection | None]) -> FastAPI:
    """Run the background sender for as long as an application is served, and return the application."""
    return run_while_serving(app, partial(BackgroundSender, read_connection))


class BackgroundSender(BackgroundJob):
    """Sends notifications that are due, in a thread of its own.

    :param read_connection: returns a connection by its id; ``None`` if it does not exist
    """

    def __init__(self, read_connection: Callable[[str], CpaasConnection | None]) -> None:
        super().__init__("cpaas-notifications", PAUSE)
        self._read_connection = read_connection
        self._owner = secrets.token_hex(8)
        self._renew_at = 0.0

    def run_once(self) -> bool:
        """Send the notifications that are due. Return whether this API server has the lease.

        :raises DatabaseError: when the database cannot be used
        """
        if self._database is None:
            self._database = open_database()
        groups = AlertGroups(self._database, TIMING)
        if time.monotonic() >= self._renew_at:
            if not groups.acquire_background(self._owner, LEASE_SECONDS):
                return False
            self._renew_at = time.monotonic() + LEASE_SECONDS / 3
        for conn_id, alerts in groups.unrecorded():
            log_unrecorded(conn_id, alerts)
        for waiting in groups.waiting():
            if self._stopping.is_set():
                break
            self._handle(groups, waiting)
        return True

    def _handle(self, groups: AlertGroups, waiting: Waiting) -> None:
        """Record whether a waiting notification can be sent from here, and send it if it is due."""
        opened = self._open(waiting)
        if not waiting.is_checked:
            obstacle = _find_obstacle(opened)
            groups.check(waiting.name, can_send=obstacle is None)
            if obstacle is not None:
                log.error(
                    "The API server cannot send notifications of connection %r: %s Their callers send them, or the "
                    "next caller does.",
                    waiting.conn_id,
                    obstacle,
                )
                return
        if opened is None:
            return
        pending = groups.take_due(waiting.name)
        if pending is None:
            return
        if datetime.now(UTC) - pending.last_at > MAX_AGE:
            groups.finish(pending)
            log.error("Not sent, because the last is over a day old: %s.", counted(pending.count, "alert"))
            return
        # The newest alert may be newer than the one that was read before.
        connection, alert = opened
        alert = unseal(pending.message, connection.hash_secrets) or alert
        if deliver(pending, alert, connection, groups) is NotificationOutcome.NOT_SENT:
            # Perhaps only this host cannot reach the service, so leave the next notification to callers.
            groups.check(waiting.name, can_send=False)

    def _open(self, waiting: Waiting) -> tuple[CpaasConnection, Alert] | None:
        """Return the connection and the decrypted alert of a notification; ``None`` if one of them cannot be read."""
        try:
            connection = self._read_connection(waiting.conn_id)
        except Exception as error:  # noqa: BLE001 - a secrets backend may raise anything
            log.debug("A connection for notifications could not be read: %s.", type(error).__name__)
            return None
        if connection is None:
            return None
        alert = unseal(waiting.message, connection.hash_secrets)
        return None if alert is None else (connection, alert)

    def _step(self) -> float:
        return PAUSE if self.run_once() else STANDBY_PAUSE

    def _leave(self, database: Database) -> None:
        """Show callers that it has stopped."""
        with contextlib.suppress(DatabaseError):
            AlertGroups(database, TIMING).release_background(self._owner)

    def _on_failure(self, reason: str) -> None:
        log.warning("Waiting notifications were not sent: %s None is lost. Sending is retried.", reason)


def _find_obstacle(opened: tuple[CpaasConnection, Alert] | None) -> str | None:
    """Return why a notification cannot be sent from here; ``None`` if nothing is known to prevent it."""
    if opened is None:
        return "it has no such connection, or another key."
    try:
        # Files that the connection names may be on the machines of workers only.
        opened[0].make_client(needs_database=False).close()
    except CpaasConfigurationError as error:
        return str(error)
    return None
