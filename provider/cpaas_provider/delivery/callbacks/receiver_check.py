"""Checks before the first send that the receiver at ``callback_url`` stores reports in the database that tasks read."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import cast

from msgspec import Struct

from cpaas_provider.api.errors import CpaasConfigurationError
from cpaas_provider.api.http.transport import SyncTransport
from cpaas_provider.api.http.wire import HttpResponse, OutgoingRequest
from cpaas_provider.api.settings import ClientOptions, ClientSettings
from cpaas_provider.delivery.callbacks.tokens import HANDSHAKE, CallbackToken, callback_url

TIMEOUT_SECONDS = 5.0
"""Seconds that the receiver has to respond. The send waits for the response."""

_NETWORK_OPTIONS = ("verify", "proxy", "proxy_password", "allow_http")
_MAX_RESPONSE_BYTES = 10_000


class HandshakeRefusedError(Exception):
    """Delivery reports would be lost: the receiver rejects them, uses another database, or is not a receiver."""


class ReceiverUnreachableError(Exception):
    """The check is inconclusive: the receiver did not respond, or cannot be reached from this machine."""


class ReceiverClient(Struct, frozen=True):
    """The receiver of one connection, as the sender sees it.

    :param base: ``callback_url`` of the connection
    :param secret: the secret that signs callback URLs
    :param options: the options of the connection; those on proxies and certificates apply to the receiver too
    """

    base: str
    conn_id: str
    secret: str
    options: ClientOptions

    def url(self, campaign: str, reference: str, recipients: int) -> str:
        """Return the callback URL of one request."""
        return callback_url(self.base, self.conn_id, self.secret, CallbackToken(campaign, reference, recipients))

    def check(self, database_id: str, redacted_url: str) -> None:
        """Check that the receiver uses the database that tasks read.

        :param database_id: ``Database.identity`` of the database that tasks read
        :param redacted_url: the URL of that database, without a password
        :raises HandshakeRefusedError: when the receiver uses another database or rejects the callback URL, or when
            something else than a receiver responds
        :raises ReceiverUnreachableError: when the receiver does not respond
        """
        response = self._ask()
        if response.status != HTTPStatus.OK:
            raise HandshakeRefusedError(
                f"The receiver at callback_url rejected this connection's callback URLs (HTTP {response.status}). "
                "Every delivery report would be lost. Set callback_url to where the receiver is mounted, e.g. "
                "https://airflow.example.com/cpaas. Check that the receiver has the same connection with the same "
                "callback_secret."
            )
        if (receiver_database := _database_id(response)) is None:
            raise HandshakeRefusedError(
                "callback_url does not lead to the receiver of this provider. Every delivery report would be lost. Set "
                "callback_url to where the receiver is mounted, e.g. https://airflow.example.com/cpaas."
            )
        if receiver_database != database_id:
            raise HandshakeRefusedError(
                "The receiver at callback_url stores reports in another database than tasks read "
                f"({redacted_url}). Set [cpaas] database (AIRFLOW__CPAAS__DATABASE) to the same database for "
                "workers, triggerer and API server. Where they share no disk, it must be PostgreSQL."
            )

    def _ask(self) -> HttpResponse:
        options = {name: value for name, value in self.options.items() if name in _NETWORK_OPTIONS}
        options |= {
            "timeout": TIMEOUT_SECONDS,
            "connect_timeout": TIMEOUT_SECONDS,
            "max_response_bytes": _MAX_RESPONSE_BYTES,
        }
        try:
            transport = SyncTransport(ClientSettings(self.base, "none", **cast("ClientOptions", options)))
        except CpaasConfigurationError as error:
            raise HandshakeRefusedError(f"callback_url cannot be used: {error}") from None
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        try:
            reply = transport.send(OutgoingRequest("POST", self.url(HANDSHAKE, HANDSHAKE, 1), headers, b"{}"))
        finally:
            transport.close()
        if not isinstance(reply, HttpResponse):
            raise ReceiverUnreachableError(f"The receiver at callback_url did not respond ({reply.reason}).")
        if reply.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            raise ReceiverUnreachableError(f"The receiver at callback_url failed (HTTP {reply.status}).")
        return reply


def _database_id(response: HttpResponse) -> str | None:
    try:
        document = json.loads(response.body)
    except ValueError:
        return None
    database_id = document.get("database") if isinstance(document, dict) else None
    return database_id if isinstance(database_id, str) and database_id else None
