"""One call from its arguments to its result, without a socket: sync and async clients share all of it.

``run_call`` is a generator. It yields what is to be done (let time pass, send a request), is given what came of it,
and returns the resource or raises the error. A client only carries out.
"""

from __future__ import annotations

import itertools
import json
import logging
import re
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar
from urllib.parse import quote, urlencode

from pydantic import ValidationError

from cpaas_provider import __version__
from cpaas_provider.api import errors
from cpaas_provider.api.backoff import backoff
from cpaas_provider.api.endpoints import REVOKE_OTP, Endpoint, RetrySafety
from cpaas_provider.api.http.wire import Delay, HttpResponse, OutgoingRequest, TransportFailure
from cpaas_provider.api.models.base import WireRequest
from cpaas_provider.api.rate_limit import Pace
from cpaas_provider.api.redact import sensitive_values
from cpaas_provider.api.responses.error_items import is_message_error, rejected_recipients
from cpaas_provider.api.responses.failures import check_for_insufficient_balance, describe, failure
from cpaas_provider.api.responses.parsing import parse_response
from cpaas_provider.api.settings import ClientSettings

T_co = TypeVar("T_co", covariant=True)

Step = OutgoingRequest | Delay
Reply = HttpResponse | TransportFailure | None

log = logging.getLogger(__name__)

_FIRST_BACKOFF = 0.5
_MAX_BACKOFF = 30.0
_PLACEHOLDER = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True)
class Call(Generic[T_co]):
    """One operation with its arguments, not yet checked."""

    endpoint: Endpoint[T_co]
    fields: Mapping[str, Any] = field(repr=False)


def build(call: Call[Any], settings: ClientSettings) -> tuple[OutgoingRequest, Mapping[str, Any]]:
    """Check a call against the contract and return the request beside the fields it was made from.

    :raises CpaasInvalidRequestError: when a field breaks the contract; all such fields are named, no value is shown
    """
    endpoint = call.endpoint
    given = {name: value for name, value in call.fields.items() if value is not None}
    try:
        request = endpoint.request.model_validate(given, context={"default_region": settings.default_region})
    except ValidationError as error:
        raise _invalid(endpoint, error) from None
    _check_allowlist(endpoint, request, settings)
    fields, encoded = _wire_fields(endpoint, request)
    path = settings.otp_revoke_path if endpoint is REVOKE_OTP else endpoint.path
    in_path = _PLACEHOLDER.findall(path)
    url = settings.base_url + _PLACEHOLDER.sub(lambda match: _segment(endpoint, match[1], fields[match[1]]), path)
    rest = {name: value for name, value in fields.items() if name not in in_path} if in_path else fields
    headers = {
        "Authorization": settings.authorization,
        "Accept": "application/json",
        "Accept-Encoding": "identity",
        "User-Agent": f"airflow-provider-cpaas/{__version__}",
    }
    if endpoint.query_params:
        return OutgoingRequest(endpoint.method, f"{url}?{urlencode(rest)}", headers), fields
    if not rest:
        return OutgoingRequest(endpoint.method, url, headers), fields
    body = encoded if rest is fields else _json(rest)
    return OutgoingRequest(endpoint.method, url, headers | {"Content-Type": "application/json"}, body), fields


def run_call(call: Call[T_co], settings: ClientSettings, rate_limiter: Pace) -> Generator[Step, Reply, T_co]:
    """Carry one call through, repeated where that is safe (docs: concepts/outcomes-and-errors).

    :param rate_limiter: the client's rate limit, which is told when the service asks to wait; the client keeps to it
    :raises CpaasError: what became of the call when it did not succeed
    """
    request, fields = build(call, settings)
    may_be_done = False
    for attempt in itertools.count(1):
        try:
            return _outcome(call, settings, fields, (yield request))
        except errors.CpaasNotFoundError:
            if may_be_done and call.endpoint.allows_empty_response:
                # An earlier attempt may have been carried out, and what was to go is gone.
                return None  # type: ignore[return-value]  # such endpoints return None
            raise
        except errors.CpaasError as error:
            pause = _retry_delay(error, attempt, settings)
            if pause is not None and (error.retry_after or isinstance(error, errors.CpaasRateLimitedError)):
                rate_limiter.block_for(pause)
            if pause is None or attempt > settings.max_retries:
                raise
            may_be_done = may_be_done or error.maybe_sent
            log.warning("%s Attempt %d of %d follows in %.1f s.", error, attempt + 1, settings.max_retries + 1, pause)
        yield Delay(pause)
    raise AssertionError("unreachable")


def _outcome(call: Call[T_co], settings: ClientSettings, fields: Mapping[str, Any], reply: Reply) -> T_co:
    if isinstance(reply, HttpResponse):
        try:
            # Not gathered before they are needed: there are thousands in a large request, and few are refused.
            private = itertools.chain([settings.api_key], sensitive_values(fields))
            result: T_co = parse_response(call.endpoint, reply, private, fields)
        except errors.CpaasRejectedError as error:
            error = check_for_insufficient_balance(error, call.endpoint, settings.insufficient_balance_words)
            error.rejected_recipients = rejected_recipients(error.items, fields)
            error.is_message_error = is_message_error(error.items, fields)
            raise error from None
        return result
    if isinstance(reply, TransportFailure):
        raise failure(call.endpoint, reply, settings.origin)
    raise TypeError("a reply must be of type Answer or Failure")


def _retry_delay(error: errors.CpaasError, attempt: int, settings: ClientSettings) -> float | None:
    """Return the seconds to wait before a further attempt, or ``None`` where there must not be one in this call."""
    if not error.retryable:
        return None
    if error.retry_after is not None and error.retry_after > settings.max_retry_after:
        return None
    # A service that asks for no pause, or for one that has passed, is in trouble all the same.
    return max(backoff(attempt, _FIRST_BACKOFF, _MAX_BACKOFF), error.retry_after or 0.0)


def _check_allowlist(endpoint: Endpoint[Any], request: WireRequest, settings: ClientSettings) -> None:
    """Keep a staging connection from reaching recipients that are not on its list."""
    if settings.allowed is None or endpoint.retry_safety not in {RetrySafety.UNSAFE, RetrySafety.PURCHASE}:
        return
    recipients = getattr(request, "recipients", None) or [getattr(request, "recipient", None)]
    outsiders = sum(1 for one in recipients if one is not None and not settings.allowed.allows(one))
    if outsiders:
        raise errors.CpaasInvalidRequestError(
            f"{endpoint.operation}: {outsiders} of {len(recipients)} recipients are not in allowed_recipients of this "
            "connection. Nothing was sent.",
            operation=endpoint.operation,
        )


def _wire_fields(endpoint: Endpoint[Any], request: WireRequest) -> tuple[dict[str, Any], bytes]:
    """Return a checked request's fields as values and encoded, its free-form cells and substitutions being JSON too."""
    try:
        fields = request.wire_fields()
        encoded = _json(fields)
    except (ValueError, RecursionError):
        # What was raised may quote the value.
        pass
    else:
        return fields, encoded
    raise errors.CpaasInvalidRequestError(
        f"{endpoint.operation}: the request contains a value that JSON cannot carry, such as NaN, bytes or an object. "
        "Nothing was sent.",
        operation=endpoint.operation,
    )


def _json(fields: Mapping[str, Any]) -> bytes:
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def _segment(endpoint: Endpoint[Any], name: str, value: str) -> str:
    # Dots alone would climb the path, quoted or not.
    if not value.strip("."):
        item = errors.ErrorItem(name, "is not an id")
        raise errors.CpaasInvalidRequestError(
            f"{endpoint.operation}: {describe(item)}. Nothing was sent.", operation=endpoint.operation, items=(item,)
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
