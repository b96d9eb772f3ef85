"""Delivery reports of a command: their callback URL, and the record of the request in the provider's database."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Literal

from sqlalchemy import Connection

from cpaas_provider.cli.terminal import warn
from cpaas_provider.database.database import Database
from cpaas_provider.database.errors import DatabaseError
from cpaas_provider.delivery.callbacks.receiver_check import (
    HandshakeRefusedError,
    ReceiverClient,
    ReceiverUnreachableError,
)
from cpaas_provider.delivery.reports import normalise_recipient
from cpaas_provider.delivery.tracking.sent_requests import (
    SentRequest,
    TrackedSend,
    record_requests,
    record_send_finished,
    record_send_started,
)
from cpaas_provider.hooks._receiver import receiver_conn_id
from cpaas_provider.hooks.connection import CpaasConnection
from cpaas_provider.sending.errors import SendingError
from cpaas_provider.sending.journal.model import RequestRecord
from cpaas_provider.sending.spec import SendOutcome

DAG_ID = "airflow cpaas"
"""Recorded in place of a DAG. No DAG can have this name."""


class ReportsLostError(SendingError):
    """Delivery reports of the request would be lost, so it was not sent."""


class Tracking:
    """The delivery reports of one request.

    :param args: the arguments of the command. With a reference of the user's own, account webhooks name the message by
        it, so they are not tracked
    :param command: the command's name, recorded in place of a task
    """

    def __init__(
        self, connection: CpaasConnection, args: Namespace, operation: str, command: str, database: Database
    ) -> None:
        self._conn_id = receiver_conn_id(args.conn_id)
        self._operation = operation
        self._command = command
        self._database = database
        self._run_id = datetime.now(UTC).isoformat(timespec="seconds")
        self._receiver: ReceiverClient | None = None
        self.endpoint: Literal["callback", "webhook"] | None = None
        if connection.callback_url is not None:
            secret = connection.hash_secrets[0]
            self._receiver = ReceiverClient(connection.callback_url, self._conn_id, secret, connection.options)
            self.endpoint = "callback"
        elif connection.webhook_secret and connection.signature_header and args.external_ref is None:
            self.endpoint = "webhook"
        self._weak_secrets = connection.weak_secrets() if self.endpoint else []

    def check(self) -> None:
        """Check that the receiver stores reports in our database, before anything is sent.

        :raises ReportsLostError: when reports would be lost
        """
        for fault, advice in self._weak_secrets:
            warn(f"Connection {self._conn_id!r}: {fault} {advice}")
        if self._receiver is None:
            return
        try:
            self._receiver.check(self._database.identity, self._database.redacted_url)
        except (HandshakeRefusedError, DatabaseError) as error:
            raise ReportsLostError(f"{error} Nothing was sent. --no-callback sends without delivery reports.") from None
        except ReceiverUnreachableError as error:
            warn(f"{error} Sending continues, because the service may reach it.")

    def callback_url(self, reference: str, recipients: int) -> str | None:
        """Return where the service sends the delivery reports of a request."""
        return None if self._receiver is None else self._receiver.url(reference, reference, recipients)

    def record_outcome(self, outcome: SendOutcome, members: Mapping[bytes, str]) -> None:
        """Record the accepted requests, each of which is a campaign by itself.

        :param members: the recipients of this run, by their hashes in the journal
        """
        if self.endpoint is None or outcome.earlier:
            return

        def work(connection: Connection, entry: RequestRecord) -> None:
            number = len(entry.members)
            send = TrackedSend(entry.reference, self._operation, self._conn_id, DAG_ID, self._run_id, self._command, -1)
            record_send_started(connection, send)
            rejected = [members[member] for member in entry.left_out if member in members]
            keys = tuple(normalise_recipient(recipient) or recipient for recipient in rejected)
            request = SentRequest(entry.reference, number, (entry.result or {}).get("id"), keys)
            record_requests(connection, entry.reference, self._conn_id, [request])
            record_send_finished(connection, entry.reference, number)

        try:
            for entry in outcome.accepted:
                self._database.write(partial(work, entry=entry))
        except DatabaseError as error:
            warn(f"The request was sent, but could not be recorded for delivery tracking. {error}")
