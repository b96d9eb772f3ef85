"""Makes the errors of requests that did not succeed: what happened, what was and was not done, what to do next."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from http import HTTPStatus
from typing import Any

from cpaas_provider.api import errors
from cpaas_provider.api.endpoints import Endpoint, RetrySafety
from cpaas_provider.api.errors import ErrorItem
from cpaas_provider.api.http.wire import TransportFailure
from cpaas_provider.api.redact import redact

_MOST_ITEMS = 20

_REJECTIONS: dict[int, type[errors.CpaasRejectedError]] = {
    401: errors.CpaasAuthenticationError,
    402: errors.CpaasInsufficientBalanceError,
    403: errors.CpaasAuthenticationError,
    404: errors.CpaasNotFoundError,
}
_ACCOUNT_STATUSES = frozenset({401, 402, 403})
_ABSENT = (404, 410)

_NOT_SENT: dict[int, tuple[type[errors.CpaasNotSentError], str]] = {
    425: (errors.CpaasNotSentError, "was not ready to process the request"),
    429: (errors.CpaasRateLimitedError, "asked for fewer requests"),
    503: (errors.CpaasUnavailableError, "is unavailable"),
}

NOT_SENT_STATUSES = _NOT_SENT.keys()

_NEXT_STEP: dict[type[errors.CpaasError], str] = {
    errors.CpaasAuthenticationError: "Check the API key (the connection's password) and auth_scheme.",
    errors.CpaasInsufficientBalanceError: "Top up the account, then run this again.",
    errors.CpaasNotFoundError: "What the request names does not exist. Check its id.",
    errors.CpaasNotVerifiedError: "The code is wrong, used, expired or revoked. Request a new one.",
    errors.CpaasOperationRemovedError: (
        "This operation is deprecated, and the service at this base URL no longer offers it. Buy airtime elsewhere."
    ),
    errors.CpaasRejectedError: "Correct the request. An unchanged retry will fail again.",
    errors.CpaasNotSentError: "Try again.",
    errors.CpaasRateLimitedError: "Wait as long as the service asks, or lower requests_per_second.",
    errors.CpaasUnavailableError: "Wait as long as the service asks.",
}
_CHECK_BASE_URL = (
    "The response names nothing of the request, so it may be that of a gateway, or of another path than the service's. "
    "Check the base URL, or try again. A retry is safe."
)

_BILLED = frozenset({RetrySafety.UNSAFE, RetrySafety.PURCHASE, RetrySafety.BILLED_READ})
_UNDONE = " Nothing was done."


def failure(endpoint: Endpoint[Any], reason: TransportFailure, origin: str) -> errors.CpaasError:
    """Return the error for a request without a response.

    :param origin: scheme, host and port of the request
    """
    if reason.may_have_left:
        return unknown_outcome(endpoint, reason.reason)
    if reason.unread_by_standard and endpoint.retry_safety is RetrySafety.PURCHASE:
        return unknown_outcome(
            endpoint, f"{reason.reason}. The purchase had left. A server that follows the TLS standard has not read it"
        )
    return errors.CpaasNotSentError(
        f"{endpoint.operation}: {reason.reason} ({origin}). Nothing was sent. Check the base URL and the network, or "
        "try again.",
        operation=endpoint.operation,
    )


def _is_harmless(endpoint: Endpoint[Any], *, answered: bool) -> bool:
    """Tell whether a repeated request does no harm.

    :param answered: whether the service responded with a success, which it may charge for
    """
    return endpoint.retry_safety in {RetrySafety.SAFE, RetrySafety.IDEMPOTENT} or (
        endpoint.retry_safety is RetrySafety.BILLED_READ and not answered
    )


def unknown_outcome(endpoint: Endpoint[Any], what: str, *, status: int | None = None) -> errors.CpaasError:
    """Return the error for a request that left, if the response does not show its outcome.

    :param what: why the outcome is unknown
    """
    harmless = _is_harmless(endpoint, answered=status is not None and status < HTTPStatus.MULTIPLE_CHOICES)
    changes = endpoint.retry_safety not in {RetrySafety.SAFE, RetrySafety.BILLED_READ}
    advice = (
        "A retry is safe."
        if harmless
        else "The outcome is unknown: the service may have carried out the request. Check the service's own records "
        "before you retry it."
        if changes
        else "The request may have been charged. A retry may be charged again."
    )
    # The status belongs to the first sentence, which the journal's errors quote alone.
    cause, stop, rest = what.partition(". ")
    where = f" (HTTP {status})" if status is not None else ""
    return errors.CpaasUnknownOutcomeError(
        f"{endpoint.operation}: {cause}{where}{stop}{rest}. {advice}",
        operation=endpoint.operation,
        status=status,
        maybe_sent=changes,
        retryable=harmless,
    )


def not_sent(endpoint: Endpoint[Any], status: int, named: int, retry_after: float | None) -> errors.CpaasNotSentError:
    """Return the error for a request that the service did not carry out, as its response says, so it may be retried.

    :param status: the status of the status line
    :param named: the status that decided: that of the status line, or the one that the body names
    """
    kind, what = _NOT_SENT[named]
    wait = f" for {retry_after:.0f} s" if retry_after is not None else ""
    also = "" if named == status else f", {named} in the body"
    return kind(
        f"{endpoint.operation}: the service {what}{wait} (HTTP {status}{also}). Nothing was done. {_NEXT_STEP[kind]}",
        operation=endpoint.operation,
        status=status,
        retry_after=retry_after,
    )


def redirected(endpoint: Endpoint[Any], status: int) -> errors.CpaasRejectedError:
    """Return the error for a redirect of a request that must not change or buy anything."""
    error = errors.CpaasRejectedError(
        f"{endpoint.operation}: the service redirected the request (HTTP {status}). The redirect was not followed, "
        "because the API key must not go to another address. Nothing was done. Set the base URL to the final address.",
        operation=endpoint.operation,
        status=status,
    )
    error.may_be_gateway = True
    return error


class Proof(Enum):
    """What a rejection proves about what the request names."""

    DOCUMENTED = "documented"
    """The body is the error of contract.md 7, and names a field of the request. It is about that."""
    ERROR = "error"
    """The body looks like an error of the service."""
    NONE = "none"
    """The body may be that of the service."""
    FOREIGN = "foreign"
    """The body is no JSON, so the response is not the service's, but that of a gateway."""


def rejection(
    endpoint: Endpoint[Any], status: int, named: int, body: Any, private: Iterable[str], proof: Proof
) -> errors.CpaasRejectedError:
    """Return the error for a request that was rejected. Only a documented error is about what the request names.

    :param status: the status of the status line
    :param named: the status that decided: that of the status line, or the one that the body names
    :param private: values that must not appear in the error's message
    """
    kind = _kind_of_rejection(endpoint, named, proof)
    is_account = issubclass(kind, (errors.CpaasAuthenticationError, errors.CpaasInsufficientBalanceError))
    answered = status < HTTPStatus.MULTIPLE_CHOICES
    may_be_gateway = proof is not Proof.DOCUMENTED and not is_account and _is_harmless(endpoint, answered=answered)
    items = error_items(body)
    detail = redact(error_text(body), private)
    # A refused code has used up an attempt.
    undone = "" if kind is errors.CpaasNotVerifiedError else " Nothing was done."
    advice = _CHECK_BASE_URL if may_be_gateway else _NEXT_STEP[kind]
    error = kind(
        f"{endpoint.operation}: the service rejected the request (HTTP {status})"
        f"{': ' + detail.rstrip('.') if detail else ''}.{undone} {advice}",
        operation=endpoint.operation,
        status=status,
        items=items,
    )
    error.may_be_gateway = may_be_gateway
    error.is_foreign = proof is Proof.FOREIGN
    error.names_absence = named in _ABSENT and proof in (Proof.DOCUMENTED, Proof.ERROR)
    return error


def _kind_of_rejection(endpoint: Endpoint[Any], named: int, proof: Proof) -> type[errors.CpaasRejectedError]:
    kind = None if proof is Proof.FOREIGN else endpoint.rejections.get(named)
    if kind is None and proof in (Proof.DOCUMENTED, Proof.ERROR) and named not in _ACCOUNT_STATUSES:
        kind = endpoint.rejections.get(None)
    kind = kind or _REJECTIONS.get(named, errors.CpaasRejectedError)
    is_unproved = kind is errors.CpaasNotFoundError and proof is not Proof.DOCUMENTED
    return errors.CpaasRejectedError if is_unproved else kind


def check_for_insufficient_balance(
    error: errors.CpaasRejectedError, endpoint: Endpoint[object], words: Iterable[str]
) -> errors.CpaasRejectedError:
    """Return the rejection as an insufficient balance if the service's message says so, else unchanged.

    The contract shows only status 400 for it, which stands for every kind of rejection.

    :param words: phrases, one of which such a message contains, in upper or lower case
    """
    # The status already decided on every other class.
    if type(error) is not errors.CpaasRejectedError or endpoint.retry_safety not in _BILLED:
        return error
    message = " ".join(str(error).lower().split())
    if not any(" ".join(phrase.lower().split()) in message for phrase in words):
        return error
    return errors.CpaasInsufficientBalanceError(
        f"{str(error).partition(_UNDONE)[0]}{_UNDONE} Top up the account, then run this again.",
        operation=error.operation,
        status=error.status,
        items=error.items,
    )


def error_items(body: Any) -> tuple[ErrorItem, ...]:
    """Return the error items of a body. A text in place of an item is the message of one."""
    entries = body.get("errors") if isinstance(body, Mapping) else None
    if isinstance(entries, Mapping):
        # Some services send an object of messages by field.
        entries = [{"field": field, "message": _joined(messages)} for field, messages in entries.items()]
    if not isinstance(entries, list):
        return ()
    entries = [{"message": entry} if isinstance(entry, str) else entry for entry in entries]
    return tuple(
        ErrorItem(*(None if entry.get(key) is None else str(entry[key]) for key in ("field", "message", "type")))
        for entry in entries
        if isinstance(entry, Mapping)
    )


def error_text(body: Any) -> str:
    """Return a body's message and error items as a sentence. It may contain private values."""
    message = str(body.get("message") or "") if isinstance(body, Mapping) else ""
    items = error_items(body)[:_MOST_ITEMS]
    return "; ".join(filter(None, [message.rstrip("."), *map(describe, items)]))


def describe(item: ErrorItem) -> str:
    """Return an error item as ``field: message (type)``, leaving out what is absent."""
    text = ": ".join(part for part in (item.field, item.message) if part)
    return f"{text} ({item.type})".strip() if item.type else text


def _joined(messages: Any) -> str:
    return ", ".join(map(str, messages)) if isinstance(messages, list) else str(messages)
