"""From an answer to a resource or an error: the outcomes README promises, decided without a socket."""

from __future__ import annotations

import email.utils
import json
import re
import time
from collections.abc import Iterable, Mapping
from datetime import UTC
from http import HTTPStatus
from typing import Any

from pydantic import ValidationError

from cpaas_provider.api import errors
from cpaas_provider.api.endpoints import Effect, Endpoint
from cpaas_provider.api.errors import ErrorItem
from cpaas_provider.api.exchange import Answer, Failure
from cpaas_provider.api.scrub import scrub

_MOST_ITEMS = 20
_DELAY = re.compile(r"[0-9]+(\.[0-9]+)?")
_LONGEST_WAIT = 366 * 24 * 3600.0
"""Longer waits are told as this one, so that a caller can add them to a date."""
_BODY_SUCCESS_TYPE = "success"

_REJECTIONS: dict[int, type[errors.CpaasRejectedError]] = {
    401: errors.CpaasAuthenticationError,
    402: errors.CpaasInsufficientBalanceError,
    403: errors.CpaasAuthenticationError,
    404: errors.CpaasNotFoundError,
}
_UNION_TAGS = frozenset({"int", "float"})
"""What pydantic appends to the place of a number that is neither."""
_OF_THE_ACCOUNT = frozenset({401, 402, 403})

_NEXT_STEP: dict[type[errors.CpaasError], str] = {
    errors.CpaasAuthenticationError: "Check the API key (the connection's password) and auth_scheme.",
    errors.CpaasInsufficientBalanceError: "Top up the account, then run this again.",
    errors.CpaasNotFoundError: "What the request names is not there, or the path of the base URL is wrong.",
    errors.CpaasNotVerifiedError: "The code is wrong, used, expired or revoked; request a new one.",
    errors.CpaasOperationRemovedError: (
        "This operation is deprecated and the service at this base URL no longer offers it; buy airtime elsewhere."
    ),
    errors.CpaasRejectedError: "Correct the request; repeating it unchanged will fail again.",
    errors.CpaasRateLimitedError: "Wait as long as the service asks, or lower requests_per_second.",
    errors.CpaasUnavailableError: "Wait as long as the service asks.",
}


def read_answer(endpoint: Endpoint[Any], answer: Answer, private: Iterable[str] = ()) -> Any:
    """Return the resource an answer carries.

    :param private: values that must not appear in an error's words
    :raises CpaasError: the outcome, where it is not a success: not sent, rejected or unknown
    """
    retry_after = _seconds(answer.retry_after)
    if answer.status == HTTPStatus.TOO_MANY_REQUESTS:
        raise _not_sent(errors.CpaasRateLimitedError, "asked for fewer requests", endpoint, answer, retry_after)
    body = _json(answer)
    if answer.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        if (
            answer.status == HTTPStatus.SERVICE_UNAVAILABLE
            and retry_after is not None
            and endpoint.effect is not Effect.PURCHASE
        ):
            raise _not_sent(errors.CpaasUnavailableError, "is unavailable for a while", endpoint, answer, retry_after)
        # A server error proves nothing, unless its body says that the request itself was at fault.
        if _is_error(body) and _says_client_error(body):
            raise _rejection(endpoint, answer, body, private)
        raise unknown_outcome(endpoint, "the service answered with a server error", status=answer.status)
    if answer.status == HTTPStatus.SEE_OTHER and endpoint.effect in {Effect.SEND, Effect.PURCHASE}:
        # What a web application says after it has done the work.
        raise unknown_outcome(endpoint, "the service pointed elsewhere instead of answering", status=answer.status)
    if HTTPStatus.MULTIPLE_CHOICES <= answer.status < HTTPStatus.BAD_REQUEST:
        raise errors.CpaasRejectedError(
            f"{endpoint.operation}: the service redirected the request (HTTP {answer.status}). It was not followed, "
            "because the API key must not travel elsewhere. Nothing was done. Set the base URL to the final address.",
            operation=endpoint.operation,
            status=answer.status,
        )
    if answer.status >= HTTPStatus.BAD_REQUEST or _is_error(body):
        raise _rejection(endpoint, answer, body, private)
    return _resource(endpoint, answer, body)


def failure(endpoint: Endpoint[Any], reason: Failure, origin: str) -> errors.CpaasError:
    """Return the error for a request to which no answer came.

    :param origin: scheme, host and port that were tried
    """
    if reason.left:
        return unknown_outcome(endpoint, reason.reason)
    return errors.CpaasNotSentError(
        f"{endpoint.operation}: {reason.reason} ({origin}). Nothing was sent. Check the base URL and the network, or "
        "try again.",
        operation=endpoint.operation,
    )


def unknown_outcome(endpoint: Endpoint[Any], what: str, *, status: int | None = None) -> errors.CpaasError:
    """Return the error for a request that left and came back with nothing readable."""
    answered = status is not None and status < HTTPStatus.MULTIPLE_CHOICES
    harmless = endpoint.effect in {Effect.READ, Effect.SET} or (endpoint.effect is Effect.PAID_READ and not answered)
    changes = endpoint.effect not in {Effect.READ, Effect.PAID_READ}
    advice = (
        "Trying again is safe."
        if harmless
        else "The outcome is unknown: it may have been sent or done. Look into the service's own records before it is "
        "made again."
        if changes
        else "It may have been charged; trying again may be charged again."
    )
    where = f" (HTTP {status})" if status is not None else ""
    return errors.CpaasUnknownOutcomeError(
        f"{endpoint.operation}: {what}{where}. {advice}",
        operation=endpoint.operation,
        status=status,
        maybe_sent=changes,
        retryable=harmless,
    )


def _not_sent(
    kind: type[errors.CpaasNotSentError], what: str, endpoint: Endpoint[Any], answer: Answer, retry_after: float | None
) -> errors.CpaasNotSentError:
    wait = f" for {retry_after:.0f} s" if retry_after is not None else ""
    return kind(
        f"{endpoint.operation}: the service {what}{wait} (HTTP {answer.status}). Nothing was done. {_NEXT_STEP[kind]}",
        operation=endpoint.operation,
        status=answer.status,
        retry_after=retry_after,
    )


def _rejection(endpoint: Endpoint[Any], answer: Answer, body: Any, private: Iterable[str]) -> errors.CpaasRejectedError:
    # An error body that came as a success is judged by the status it names.
    named = body["status"] if _is_error(body) and _is_whole(body.get("status")) else answer.status
    status = int(named) if answer.status < HTTPStatus.BAD_REQUEST else answer.status
    kind = endpoint.rejections.get(status)
    if kind is None and status not in _OF_THE_ACCOUNT:
        kind = endpoint.rejections.get(None)
    kind = kind or _REJECTIONS.get(status, errors.CpaasRejectedError)
    items = _items(body)
    told = scrub(_told(body, items), private)
    # A refused code has used up an attempt.
    undone = "" if kind is errors.CpaasNotVerifiedError else " Nothing was done."
    return kind(
        f"{endpoint.operation}: the service rejected the request (HTTP {answer.status})"
        f"{': ' + told.rstrip('.') if told else ''}.{undone} {_NEXT_STEP[kind]}",
        operation=endpoint.operation,
        status=answer.status,
        items=items,
    )


def _resource(endpoint: Endpoint[Any], answer: Answer, body: Any) -> Any:
    if endpoint.empty_answer and answer.flaw is None and (body is not _NOT_JSON or not answer.body.strip()):
        return None
    if answer.flaw is not None:
        raise unknown_outcome(endpoint, f"the answer broke off ({answer.flaw})", status=answer.status)
    if body is _NOT_JSON:
        raise unknown_outcome(endpoint, "the answer is not readable JSON", status=answer.status)
    # Some deployments wrap the resource in {"status", "type", "message", "data"}.
    readings = [body, body["data"]] if isinstance(body, dict) and "data" in body else [body]
    lacking = ""
    for reading in readings:
        try:
            return endpoint.answer.validate_python(reading)
        except ValidationError as error:
            lacking = ", ".join(sorted({_location(part["loc"]) for part in error.errors(include_input=False)}))
    raise unknown_outcome(endpoint, f"the answer lacks or garbles {lacking[:100]}", status=answer.status) from None


_NOT_JSON = object()


def _json(answer: Answer) -> Any:
    try:
        return json.loads(answer.body)
    except (ValueError, RecursionError):
        return _NOT_JSON


def _is_whole(value: Any) -> bool:
    if isinstance(value, float):
        return value.is_integer()
    return isinstance(value, int) and not isinstance(value, bool)


def _is_error(body: Any) -> bool:
    """Tell the error shape of INTERFACE.md section 7 from a resource, whatever the HTTP status (docs/contract.md)."""
    if not isinstance(body, Mapping) or "message" not in body:
        return False
    if not _is_whole(body.get("status")) or body["status"] < HTTPStatus.CONTINUE:
        # No code of HTTP: a passcode's own status, say. What bears an id was accepted, whatever else it has to say.
        return bool(body.get("errors")) and "id" not in body
    if body.get("errors"):
        return True
    if body["status"] >= HTTPStatus.BAD_REQUEST:
        return True
    if kind := body.get("type"):
        return str(kind).lower() != _BODY_SUCCESS_TYPE
    return "errors" in body and "data" not in body


def _says_client_error(body: Mapping[str, Any]) -> bool:
    status = body.get("status")
    return _is_whole(status) and HTTPStatus.BAD_REQUEST <= int(status or 0) < HTTPStatus.INTERNAL_SERVER_ERROR


def _items(body: Any) -> tuple[ErrorItem, ...]:
    entries = body.get("errors") if isinstance(body, Mapping) else None
    if not isinstance(entries, list):
        return ()
    return tuple(
        ErrorItem(*(None if entry.get(key) is None else str(entry[key]) for key in ("field", "message", "type")))
        for entry in entries
        if isinstance(entry, Mapping)
    )


def _told(body: Any, items: tuple[ErrorItem, ...]) -> str:
    message = str(body.get("message") or "") if isinstance(body, Mapping) else ""
    return "; ".join(filter(None, [message.rstrip("."), *map(describe, items[:_MOST_ITEMS])]))


def describe(item: ErrorItem) -> str:
    """Return an error item as ``field: message (type)``, leaving out what is absent."""
    text = ": ".join(part for part in (item.field, item.message) if part)
    return f"{text} ({item.type})".strip() if item.type else text


def _location(location: tuple[int | str, ...]) -> str:
    return (
        ".".join(str(part) for part in location if part not in _UNION_TAGS and isinstance(part, str)) or "the resource"
    )


def _seconds(retry_after: str | None) -> float | None:
    """Read ``Retry-After``: seconds, or a date."""
    if retry_after is None:
        return None
    if _DELAY.fullmatch(retry_after.strip()):
        return min(float(retry_after), _LONGEST_WAIT)
    try:
        moment = email.utils.parsedate_to_datetime(retry_after)
    except (TypeError, ValueError, IndexError, OverflowError):
        return None
    if moment.tzinfo is None:
        # A date without a zone is in UTC, as all dates of HTTP are.
        moment = moment.replace(tzinfo=UTC)
    return min(max(0.0, moment.timestamp() - time.time()), _LONGEST_WAIT)
