"""The two endpoints for delivery reports, as plain ASGI applications: a framework would double their cost.

No request is logged: a callback URL is a credential.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from cpaas_provider.database.errors import DatabaseError, RejectedDataError
from cpaas_provider.delivery.callbacks.signatures import has_form, verify
from cpaas_provider.delivery.callbacks.tokens import HANDSHAKE, CallbackToken, InvalidTokenError, verify_token
from cpaas_provider.delivery.receiver.http import responses
from cpaas_provider.delivery.receiver.http.load_limits import LoadLimiter, WaitTimer
from cpaas_provider.delivery.receiver.http.request import (
    BoundedRequest,
    ClientDisconnectError,
    part_of_grace,
    read_json,
)
from cpaas_provider.delivery.receiver.http.responses import RefusalError, json_response, send_response
from cpaas_provider.delivery.receiver.log_throttle import ThrottledLogger
from cpaas_provider.delivery.receiver.secrets_cache import ConnectionSecrets, SecretsCache, SecretsUnavailableError
from cpaas_provider.delivery.receiver.writer import (
    BackpressureError,
    ReceivedReport,
    ReportSource,
    ReportWriter,
    StoreResult,
)
from cpaas_provider.delivery.reports import read_report

MAX_IN_FLIGHT = 1000
MAX_BYTES = 64 * 1024 * 1024
"""Limits of each endpoint, per connection."""

throttled_log = ThrottledLogger(logging.getLogger(__name__))

_NOT_STORED = {
    StoreResult.EXPIRED: (responses.NOT_FOUND, "the callback URL has expired, or its request was pruned."),
    StoreResult.TOO_MANY: (
        responses.TOO_MANY,
        "a callback URL exceeded the report limit of its request. The URL may have leaked.",
    ),
}
"""The response when a report was not stored, and the reason for the log."""

Observe = Callable[[str, "int | float"], None]


class _ReportEndpoint:
    """The common part of both endpoints. Each has its own limits, so that a flood at one does not block the other."""

    source: ReportSource

    def __init__(self, secrets_cache: SecretsCache, writer: ReportWriter, emit_metric: Observe | None) -> None:
        self._secrets_cache = secrets_cache
        self._writer = writer
        self._emit_metric = emit_metric
        self._limiter = LoadLimiter(MAX_IN_FLIGHT, MAX_BYTES)
        self._wait_timer = WaitTimer(part_of_grace)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        request = BoundedRequest(scope, receive, self._wait_timer, self._limiter)
        try:
            try:
                if scope["method"] != "POST":
                    raise RefusalError(responses.METHOD_NOT_ALLOWED)
                response = await self._respond(scope["path_params"], request)
            except ClientDisconnectError:
                # No sender gets it, but a server that mounts this application logs an error if there is no response.
                response = self._refuse(RefusalError(responses.CLIENT_DISCONNECTED))
            except Exception as error:  # noqa: BLE001 - the response discloses no internals
                response = self._refuse(error)
            await send_response(response, send, take_rest=None if request.read_whole else request.take_rest)
        finally:
            request.done()

    async def _respond(self, path: dict[str, str], request: BoundedRequest) -> Response:
        raise NotImplementedError

    async def _store(
        self, conn_id: str, region: str | None, request: BoundedRequest, raw: bytes, token: CallbackToken | None
    ) -> Response:
        """Store an authentic report, and return the response that acknowledges it."""
        request.check_type()
        text, body = read_json(raw)
        received = ReceivedReport(conn_id, self.source, token, read_report(body, region), text, datetime.now(UTC))
        result = await request.within(lambda: responses.RESPONSE_TIMEOUT, self._writer.submit(received))
        self._refuse_where_not_stored(result, conn_id)
        if self._emit_metric is not None:
            self._count("received")
            if result is not StoreResult.NEW:
                self._count(result.value)
            if reported := received.report.reported_at:
                self._emit_metric("lag", max(0.0, (datetime.now(UTC) - reported).total_seconds()))
        return responses.STORED

    def _refuse_where_not_stored(self, result: StoreResult, conn_id: str) -> None:
        if result not in _NOT_STORED:
            return
        response, why = _NOT_STORED[result]
        self._count(result.value)
        throttled_log.warning(result.value, f"Refused delivery reports on connection {conn_id!r}: {why}")
        raise RefusalError(response)

    def _refuse(self, error: Exception) -> Response:
        response = _error_response(error)
        self._count(f"refused.{response.status_code}")
        return response

    def _count(self, name: str) -> None:
        if self._emit_metric is not None:
            self._emit_metric(name, 1)


class CallbackEndpoint(_ReportEndpoint):
    """Takes reports at the callback URL of a request. The token in the URL proves them."""

    source = "callback"

    def __init__(
        self,
        secrets_cache: SecretsCache,
        writer: ReportWriter,
        emit_metric: Observe | None,
        database_id: Callable[[], Awaitable[str]],
    ) -> None:
        super().__init__(secrets_cache, writer, emit_metric)
        self._database_id = database_id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, with its token removed from what the server may log."""
        scope["path"] = scope["path"].rpartition("/")[0] + "/..."
        scope["raw_path"] = scope["path"].encode()
        await super().__call__(scope, receive, send)

    async def _respond(self, path: dict[str, str], request: BoundedRequest) -> Response:
        conn_id = path["conn_id"]
        token, region = await self._verified_token(conn_id, path["token"])
        request.enter(conn_id)
        raw = await request.body()
        if token.campaign == HANDSHAKE:
            return json_response(200, {"database": await self._database_id()})
        return await self._store(conn_id, region, request, raw, token)

    async def _verified_token(self, conn_id: str, text: str) -> tuple[CallbackToken, str | None]:
        """Return the verified token of a URL that has not expired, and the region of the connection's numbers."""
        secrets = await self._secrets_cache.get(conn_id)
        if secrets is None:
            raise RefusalError(responses.NOT_FOUND)
        try:
            token = verify_token(conn_id, text, secrets.callback_secrets)
        except InvalidTokenError:
            newer = await self._secrets_cache.refresh_after_mismatch(conn_id, secrets)
            token = verify_token(conn_id, text, newer.callback_secrets if newer else ())
        if token.expired(secrets.callback_lifetime):
            self._refuse_where_not_stored(StoreResult.EXPIRED, conn_id)
        return token, secrets.default_region


class WebhookEndpoint(_ReportEndpoint):
    """Takes reports at the webhook URL of the account. The signature over the body proves them."""

    source = "webhook"

    async def _respond(self, path: dict[str, str], request: BoundedRequest) -> Response:
        conn_id = path["conn_id"]
        secrets = await self._webhook_secrets(conn_id, request)
        request.enter(conn_id)
        raw = await request.body()
        if not _signed(secrets, request, raw):
            newer = await self._secrets_cache.refresh_after_mismatch(conn_id, secrets)
            if newer is None or not _signed(newer, request, raw):
                raise RefusalError(responses.BAD_SIGNATURE)
        return await self._store(conn_id, secrets.default_region, request, raw, None)

    async def _webhook_secrets(self, conn_id: str, request: BoundedRequest) -> ConnectionSecrets:
        """Return the secrets for a request whose headers may carry a valid signature."""
        secrets = await self._secrets_cache.get(conn_id)
        if secrets:
            if _is_open(secrets) and _may_be_signed(secrets, request):
                return secrets
            secrets = await self._secrets_cache.refresh_after_mismatch(conn_id, secrets) or secrets
        if not secrets or not _is_open(secrets):
            raise RefusalError(responses.NOT_FOUND)
        if not _may_be_signed(secrets, request):
            raise RefusalError(responses.BAD_SIGNATURE)
        return secrets


def _is_open(secrets: ConnectionSecrets) -> bool:
    return bool(secrets.webhook_secret and secrets.signature_header)


def _may_be_signed(secrets: ConnectionSecrets, request: BoundedRequest) -> bool:
    return has_form(_signature(secrets, request))


def _signed(secrets: ConnectionSecrets, request: BoundedRequest, raw: bytes) -> bool:
    return verify(raw, _signature(secrets, request), secrets.webhook_secret or "")


def _signature(secrets: ConnectionSecrets, request: BoundedRequest) -> str | None:
    return request.header((secrets.signature_header or "").lower().encode())


def _error_response(error: Exception) -> Response:
    match error:
        case RefusalError():
            return error.response
        case InvalidTokenError():
            return responses.NOT_FOUND
        case BackpressureError():
            return responses.OVERLOADED
        case TimeoutError():
            throttled_log.warning(
                "late", "Delivery reports were not stored in time. Their senders were asked to retry."
            )
            return responses.DATABASE_UNAVAILABLE
        case SecretsUnavailableError():
            return responses.SECRETS_UNAVAILABLE
        case RejectedDataError():
            throttled_log.warning(
                "rejected", f"A delivery report was not stored. Its sender was asked to retry. {error}"
            )
            return responses.DATABASE_UNAVAILABLE
        case DatabaseError():
            throttled_log.warning(
                "store", f"Delivery reports were not stored. Their senders were asked to retry. {error}"
            )
            return responses.DATABASE_UNAVAILABLE
    # Its message may contain parts of the report.
    place = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{type(error).__name__} at {place.name}:{place.lineno}"
    throttled_log.warning("broken", f"A delivery report was not stored because of an unexpected error: {where}.")
    return responses.INTERNAL_ERROR
