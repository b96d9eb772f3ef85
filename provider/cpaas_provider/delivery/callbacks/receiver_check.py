"""Asking the receiver at ``callback_url``, before the first send, whether it keeps reports where we look for them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from http import HTTPStatus
from typing import cast

from cpaas_provider.api.errors import CpaasConfigurationError
from cpaas_provider.api.http.transport import SyncTransport
from cpaas_provider.api.http.wire import HttpResponse, OutgoingRequest
from cpaas_provider.api.settings import ClientOptions, ClientSettings
from cpaas_provider.delivery.callbacks.tokens import HANDSHAKE, CallbackToken, callback_url

TIMEOUT_SECONDS = 5.0
"""Seconds the receiver has to answer; a send waits for it."""

_NETWORK_OPTIONS = ("verify", "proxy", "proxy_password", "allow_http")
_MAX_RESPONSE_BYTES = 10_000


class HandshakeRefusedError(Exception):
    """Delivery reports would be lost: the receiver rejects them, uses another database, or is not a receiver."""


class ReceiverUnreachableError(Exception):
    """The check is inconclusive: the receiver did not respond, or cannot be reached from this machine."""


@dataclass(frozen=True)
class ReceiverClient:
    """A receiver as a sender knows it.

    :param base: ``callback_url`` of the connection
    :param secret: what signs its callback URLs
    :param options: of the connection; how a proxy and certificates are dealt with is the same
    """

    base: str
    conn_id: str
    secret: str
    options: ClientOptions

    def url(self, campaign: str, reference: str, recipients: int) -> str:
        """Return where the delivery reports of one request go."""
        return callback_url(self.base, self.conn_id, self.secret, CallbackToken(campaign, reference, recipients))

    def check(self, database_id: str, redacted_url: str) -> None:
        """Ask the receiver which database it has.

        :param database_id: of the database that tasks read, see ``Database.identity``
        :param redacted_url: where that is
        :raises HandshakeRefusedError: when it has another one, refuses our callback URLs, or is no receiver of ours
        :raises ReceiverUnreachableError: when it does not answer
        """
        answer = self._ask()
        if answer.status != HTTPStatus.OK:
            raise HandshakeRefusedError(
                f"The receiver at callback_url rejected this connection's callback URLs (HTTP {answer.status}). Every "
                "delivery report would be lost. Set callback_url to where the receiver is mounted, e.g. "
                "https://airflow.example.com/cpaas. Check that the receiver has the same connection with the same "
                "callback_secret."
            )
        if (theirs := _database_id(answer)) is None:
            raise HandshakeRefusedError(
                "callback_url does not lead to the receiver of this provider. Every delivery report would be lost. Set "
                "callback_url to where the receiver is mounted, e.g. https://airflow.example.com/cpaas."
            )
        if theirs != database_id:
            raise HandshakeRefusedError(
                "The receiver at callback_url stores reports in another database than tasks read "
                f"({redacted_url}). Set [cpaas] database (AIRFLOW__CPAAS__DATABASE) to the same database for "
                "workers, triggerer and API server. Where they share no disk, it must be PostgreSQL."
            )

    def _ask(self) -> HttpResponse:
        way = {name: value for name, value in self.options.items() if name in _NETWORK_OPTIONS}
        bounds = {
            "timeout": TIMEOUT_SECONDS,
            "connect_timeout": TIMEOUT_SECONDS,
            "max_response_bytes": _MAX_RESPONSE_BYTES,
        }
        try:
            settings = ClientSettings(self.base, "none", **cast("ClientOptions", {**way, **bounds}))
            transport = SyncTransport(settings)
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


def _database_id(answer: HttpResponse) -> str | None:
    try:
        document = json.loads(answer.body)
    except ValueError:
        return None
    found = document.get("database") if isinstance(document, dict) else None
    return found if isinstance(found, str) and found else None
