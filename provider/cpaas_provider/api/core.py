"""One call from its arguments to its result, without a socket. The sync and the async client share this code.

``run_call`` is a generator. It yields steps: send a request, or wait. The client carries out each step and sends the
reply back into the generator. The generator returns the resource or raises the error.
"""

from __future__ import annotations

import itertools
import json
import logging
import re
from collections.abc import Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar
from urllib.parse import quote, urlencode

from pydantic import ValidationError

from cpaas_provider import __version__
from cpaas_provider._common.records import PrivateRecord
from cpaas_provider.api import errors
from cpaas_provider.api.backoff import backoff
from cpaas_provider.api.endpoints import REVOKE_OTP, Endpoint, RetrySafety
from cpaas_provider.api.http.wire import Delay, HttpResponse, OutgoingRequest, TransportFailure
from cpaas_provider.api.models.base import NUMBERS
from cpaas_provider.api.rate_limit import Pace
from cpaas_provider.api.redact import RequestSecrets
from cpaas_provider.api.responses.parsing import parse_response
from cpaas_provider.api.settings import ClientSettings

if TYPE_CHECKING:
    from cpaas_provider.api.models.base import WireRequest

T_co = TypeVar("T_co", covariant=True)

Step = OutgoingRequest | Delay
Reply = HttpResponse | TransportFailure | None

log = logging.getLogger(__name__)

_FIRST_BACKOFF = 0.5
_MAX_BACKOFF = 30.0
# json.dumps would make an encoder for each request.
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)
_PLACEHOLDER = re.compile(r"\{(\w+)\}")


class Call(PrivateRecord, Generic[T_co], frozen=True):
    """One operation with its arguments, before any check."""

    endpoint: Endpoint[T_co]
    fields: Mapping[str, Any]

    def build(self, settings: ClientSettings) -> tuple[OutgoingRequest, Mapping[str, Any]]:
        """Check the call against the contract. Return the request, and the fields it was made from.

        :raises CpaasInvalidRequestError: when a field breaks the contract; all such fields are named, no value is shown
        """
        endpoint = self.endpoint
        provided = {name: value for name, value in self.fields.items() if value is not None}
        try:
            request = endpoint.request.model_validate(provided, context={NUMBERS: settings.numbers})
        except ValidationError as error:
            raise _invalid(endpoint, error) from None
        if (recipients := getattr(request, "recipients", None)) is None:
            recipient = getattr(request, "recipient", None)
            recipients = [] if recipient is None else [recipient]
        check_allowlist(endpoint, recipients, settings)
        fields, encoded = _wire_fields(endpoint, request)
        path = settings.otp_revoke_path if endpoint is REVOKE_OTP else endpoint.path
        path_fields = _PLACEHOLDER.findall(path) if "{" in path else ()
        if path_fields:
            path = _PLACEHOLDER.sub(lambda match: _segment(endpoint, match[1], fields[match[1]]), path)
        url = settings.base_url + path
        remaining_fields = (
            {name: value for name, value in fields.items() if name not in path_fields} if path_fields else fields
        )
        headers = {
            "Authorization": settings.authorization,
            "Accept": "application/json",
            "Accept-Encoding": "identity",
            # Lookups have one URL for all numbers, so a cache on the way would mix up their answers.
            "Cache-Control": "no-store, no-cache",
            "User-Agent": f"airflow-provider-cpaas/{__version__}",
        }
        if endpoint.query_params:
            return OutgoingRequest(endpoint.method, f"{url}?{urlencode(remaining_fields)}", headers), fields
        if not remaining_fields:
            return OutgoingRequest(endpoint.method, url, headers), fields
        body = encoded if remaining_fields is fields else _ENCODER.encode(remaining_fields).encode()
        return OutgoingRequest(endpoint.method, url, headers | {"Content-Type": "application/json"}, body), fields


class RunnableCall(Protocol[T_co]):
    """What the clients run: a call, or a message of a series."""

    @property
    def endpoint(self) -> Endpoint[T_co]:
        """The endpoint of the request."""

    def build(self, settings: ClientSettings) -> tuple[OutgoingRequest, Mapping[str, Any]]:
        """Return the request, and the fields it was made from; raises as ``Call.build`` does."""


def run_call(call: RunnableCall[T_co], settings: ClientSettings, rate_limiter: Pace) -> Generator[Step, Reply, T_co]:
    """Run one call, with retries where they are safe (docs: concepts/outcomes-and-errors).

    :param rate_limiter: blocked for as long as the service asks to wait; the client obeys it
    :raises CpaasError: the outcome, if the call did not succeed
    """
    request, fields = call.build(settings)
    maybe_done = False
    for attempt in itertools.count(1):
        try:
            return _outcome(call, settings, fields, (yield request))
        except errors.CpaasRejectedError as error:
            if maybe_done and call.endpoint.allows_empty_response and isinstance(error, errors.CpaasNotFoundError):
                # An earlier attempt of this deletion may have succeeded without a readable response.
                return None  # type: ignore[return-value]  # such endpoints return None
            error.maybe_done = maybe_done
            raise
        except errors.CpaasError as error:
            pause = _retry_delay(error, attempt, settings)
            if pause is not None and (error.retry_after or isinstance(error, errors.CpaasRateLimitedError)):
                rate_limiter.block_for(pause)
            if pause is None or attempt > settings.max_retries:
                raise
            maybe_done = maybe_done or error.maybe_sent
            may_be_charged = isinstance(error, errors.CpaasUnknownOutcomeError)
            log.warning("%s Attempt %d of %d follows in %.1f s.", error, attempt + 1, settings.max_retries + 1, pause)
        yield Delay(pause, may_be_charged)
    raise AssertionError("unreachable")


def _outcome(call: RunnableCall[T_co], settings: ClientSettings, fields: Mapping[str, Any], reply: Reply) -> T_co:
    if isinstance(reply, HttpResponse):
        try:
            private = RequestSecrets(settings.api_key, fields)
            result: T_co = parse_response(call.endpoint, reply, private, fields)
        except errors.CpaasRejectedError as error:
            from cpaas_provider.api.responses.error_items import is_message_error, rejected_recipients
            from cpaas_provider.api.responses.failures import check_for_insufficient_balance

            error = check_for_insufficient_balance(error, call.endpoint, settings.insufficient_balance_words)
            error.rejected_recipients = rejected_recipients(error.items, fields)
            error.is_message_error = is_message_error(error.items, fields)
            raise error from None
        return result
    if isinstance(reply, TransportFailure):
        from cpaas_provider.api.responses.failures import failure

        raise failure(call.endpoint, reply, settings.origin)
    raise TypeError("a reply must be an HttpResponse or a TransportFailure")


def _retry_delay(error: errors.CpaasError, attempt: int, settings: ClientSettings) -> float | None:
    """Return the seconds to wait before the next attempt, ``None`` if this call must not be retried."""
    if not error.retryable:
        return None
    if error.retry_after is not None and error.retry_after > settings.max_retry_after:
        return None
    # Never less than the backoff: a Retry-After of 0 or in the past does not mean that the service has recovered.
    return max(backoff(attempt, _FIRST_BACKOFF, _MAX_BACKOFF), error.retry_after or 0.0)


def check_allowlist(endpoint: Endpoint[Any], recipients: Sequence[str], settings: ClientSettings) -> None:
    """Refuse a send or purchase to recipients that are not in the connection's ``allowed_recipients``.

    :param recipients: normalised
    :raises CpaasInvalidRequestError: with the number of recipients that are not allowed
    """
    if settings.allowed is None or endpoint.retry_safety not in {RetrySafety.UNSAFE, RetrySafety.PURCHASE}:
        return
    refused = sum(not settings.allowed.allows(recipient) for recipient in recipients)
    if refused:
        raise errors.CpaasInvalidRequestError(
            f"{endpoint.operation}: {refused} of {len(recipients)} recipients are not in allowed_recipients of this "
            "connection. Nothing was sent.",
            operation=endpoint.operation,
        )


def _wire_fields(endpoint: Endpoint[Any], request: WireRequest) -> tuple[dict[str, Any], bytes]:
    """Return a checked request's fields as values, and encoded as JSON.

    :raises CpaasInvalidRequestError: when a cell or substitution is no JSON value
    """
    try:
        dumped = request.model_dump(mode="json")
        fields = {name: value for name, value in dumped.items() if value is not None}
        encoded = _ENCODER.encode(fields).encode()
    except (ValueError, RecursionError):
        # The error may quote the value, so it must not become the context of ours, which is raised below.
        pass
    else:
        return fields, encoded
    raise errors.CpaasInvalidRequestError(
        f"{endpoint.operation}: the request contains a value that JSON cannot carry, such as NaN, bytes or an object. "
        "Nothing was sent.",
        operation=endpoint.operation,
    )


def _segment(endpoint: Endpoint[Any], name: str, value: str) -> str:
    # "." and ".." would change the path, percent-encoded or not.
    if not value.strip("."):
        raise errors.CpaasInvalidRequestError(
            f"{endpoint.operation}: {name}: is not an id. Nothing was sent.",
            operation=endpoint.operation,
            items=(errors.ErrorItem(name, "is not an id"),),
        )
    return quote(value, safe="")


def _invalid(endpoint: Endpoint[Any], error: ValidationError) -> errors.CpaasInvalidRequestError:
    items = tuple(
        errors.ErrorItem(
            ".".join(str(part) for part in entry["loc"]) or None,
            entry["msg"].removeprefix("Value error, "),
            entry["type"],
        )
        for entry in error.errors(include_url=False, include_input=False, include_context=False)
    )
    named = "; ".join(": ".join(part for part in (item.field, item.message) if part) for item in items[:10])
    more = f"; and {len(items) - 10} more" if len(items) > 10 else ""
    return errors.CpaasInvalidRequestError(
        f"{endpoint.operation}: the request breaks the service's contract: {named}{more}. Nothing was sent.",
        operation=endpoint.operation,
        items=items,
    )
