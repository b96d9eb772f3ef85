"""Decides on the outcome of a request whose response has no readable resource, and makes its error.

One table decides, by the status line, the status that the body names, and what the body proves. A rejection needs proof
(``statements.py``). In doubt the outcome is unknown: after a wrong "rejected" or "not sent", a recipient would get a
message twice. It is loaded with the first such response, because its patterns take longer to compile than a request.
"""

from __future__ import annotations

import email.utils
import json
import re
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC
from enum import Enum
from http import HTTPStatus
from typing import Any

import msgspec.structs
from msgspec import Struct

from cpaas_provider.api.endpoints import Endpoint, RetrySafety
from cpaas_provider.api.errors import CpaasError
from cpaas_provider.api.http.wire import HttpResponse
from cpaas_provider.api.redact import redact
from cpaas_provider.api.responses import failures
from cpaas_provider.api.responses.error_items import is_documented_item, names_field
from cpaas_provider.api.responses.statements import (
    NO_STATEMENTS,
    TIMEOUT_STATUSES,
    Statements,
    find_statements,
    find_statements_in_text,
)
from cpaas_provider.api.responses.values import NOT_JSON, Pairs, as_error_body, is_empty, is_error, named_status
from cpaas_provider.api.responses.wording import as_words, is_refusing_status

_DELAY = re.compile(r"[0-9]+(\.[0-9]+)?")
_LONGEST_WAIT = 366 * 24 * 3600.0
"""In seconds. A longer wait is shortened to this, so that a caller can add it to a date."""
_ACTS = frozenset({RetrySafety.UNSAFE, RetrySafety.PURCHASE})
"""Requests that must not be carried out twice."""
_ERROR_FIELDS = frozenset(
    {"status", "type", "message", "code", "timestamp", "path", "request_id", "trace_id", "error", "errors"}
)
"""The fields of an error body (contract.md 7), and others that services add to it."""
_DOCUMENTED_FIELDS = frozenset({"status", "type", "message", "errors"})
"""The fields of an error body, and of the envelope that some deployments put around every body."""


class Outcome(Enum):
    """The outcome of a request whose response does not prove that it was accepted."""

    NOT_SENT = "not sent"
    REJECTED = "rejected"
    UNKNOWN = "unknown"


class Facts(Struct, frozen=True):
    """The facts about a response without a readable resource that decide on the outcome.

    :param line: the status of the status line
    :param named: the status that the body names, 0 if it names none
    :param waits: whether there is a readable Retry-After
    :param states: what the body speaks of, at any depth
    :param is_whole: whether all of the body arrived
    :param is_error_alone: whether the body has the fields of an error, and nothing else
    :param is_documented: whether it is the documented error, and nothing else: each item names a field of the request
    :param looks_like_error: whether the body looks like an error; decides only if a repeated request does no harm
    """

    retry_safety: RetrySafety
    line: int
    named: int = 0
    waits: bool = False
    states: Statements = NO_STATEMENTS
    is_whole: bool = True
    is_error_alone: bool = False
    is_documented: bool = False
    looks_like_error: bool = False

    @property
    def acts(self) -> bool:
        """Whether the request must not be carried out twice."""
        return self.retry_safety in _ACTS

    @property
    def is_purchase(self) -> bool:
        """Whether the request spends money at once."""
        return self.retry_safety is RetrySafety.PURCHASE


TABLE: tuple[tuple[Callable[[Facts], bool], Outcome], ...] = (
    # By the status line alone: the service did nothing, or it failed.
    (lambda a: a.line == 429, Outcome.NOT_SENT),
    (lambda a: a.line == 425 and not a.is_purchase, Outcome.NOT_SENT),
    (lambda a: a.line == 503 and a.waits and not a.is_purchase, Outcome.NOT_SENT),
    (lambda a: a.line in TIMEOUT_STATUSES or a.line >= 500 or a.line < 200, Outcome.UNKNOWN),
    (lambda a: 300 <= a.line < 400 and a.acts, Outcome.UNKNOWN),
    # A request that acts: whatever is not an error alone leaves it unknown.
    (lambda a: a.acts and a.states.acceptance, Outcome.UNKNOWN),
    (lambda a: a.acts and a.line < 300 and not (a.line == 200 and a.is_whole and a.is_error_alone), Outcome.UNKNOWN),
    (lambda a: a.named == 429, Outcome.NOT_SENT),
    (lambda a: a.named == 425 and not a.is_purchase, Outcome.NOT_SENT),
    (lambda a: a.acts and (a.states.fault or not a.is_whole), Outcome.UNKNOWN),
    # What is left is an error.
    (lambda a: a.line >= 300, Outcome.REJECTED),
    (lambda a: a.named in TIMEOUT_STATUSES or a.named >= 500, Outcome.UNKNOWN),
    (lambda a: a.named >= 400 or a.is_documented, Outcome.REJECTED),
    (lambda a: a.looks_like_error and not a.acts, Outcome.REJECTED),
)
"""The first row that applies decides. If no row applies, the outcome is unknown."""


def classify(facts: Facts) -> Outcome:
    """Return the outcome of a request whose response has no readable resource."""
    return next((outcome for applies, outcome in TABLE if applies(facts)), Outcome.UNKNOWN)


def error_of(
    endpoint: Endpoint[Any],
    response: HttpResponse,
    body: Any,
    private: Iterable[str],
    fields: Mapping[str, Any],
    defect: str,
) -> CpaasError:
    """Return the error of a response without a readable resource.

    :param defect: why the resource cannot be read
    """
    if _is_absent(endpoint, response, body):
        documented = failures.Proof.DOCUMENTED
        return failures.rejection(endpoint, response.status, HTTPStatus.NOT_FOUND, body, private, documented)
    retry_after = _seconds(response.retry_after)
    facts = _facts(endpoint, response, body, fields, waits=retry_after is not None)
    outcome = classify(facts)
    if outcome is Outcome.UNKNOWN:
        detail = redact(failures.error_text(body), private).rstrip(".")
        what = _why_unknown(facts, defect) + (f". The service wrote: {detail}" if detail else "")
        return failures.unknown_outcome(endpoint, what, status=response.status)
    is_success = response.status < HTTPStatus.MULTIPLE_CHOICES
    if outcome is Outcome.NOT_SENT:
        is_by_line = response.status in failures.NOT_SENT_STATUSES
        return failures.not_sent(endpoint, response.status, response.status if is_by_line else facts.named, retry_after)
    if not is_success and response.status < HTTPStatus.BAD_REQUEST:
        return failures.redirected(endpoint, response.status)
    deciding = facts.named if is_success and facts.named else response.status
    return failures.rejection(endpoint, response.status, deciding, body, private, _proof(response, body, facts))


def _is_absent(endpoint: Endpoint[Any], response: HttpResponse, body: Any) -> bool:
    """Tell whether a complete success has null where the resource would be."""
    if endpoint.absent_field is None or response.status != HTTPStatus.OK or response.body_error is not None:
        return False
    parts = [body, body.get("data")] if isinstance(body, Mapping) else []
    return any(isinstance(part, Mapping) and part.get(endpoint.absent_field, "") is None for part in parts)


def _proof(response: HttpResponse, body: Any, facts: Facts) -> failures.Proof:
    if facts.is_documented:
        return failures.Proof.DOCUMENTED
    if facts.looks_like_error:
        return failures.Proof.ERROR
    return failures.Proof.FOREIGN if body is NOT_JSON and response.body.strip() else failures.Proof.NONE


def _facts(
    endpoint: Endpoint[Any], response: HttpResponse, body: Any, fields: Mapping[str, Any], *, waits: bool
) -> Facts:
    facts = Facts(
        endpoint.retry_safety,
        response.status,
        named_status(body),
        waits,
        is_whole=response.body_error is None,
        is_documented=response.body_error is None and _is_documented(endpoint, body, fields),
        looks_like_error=is_error(as_error_body(body)) or _is_message_alone(endpoint, body),
    )
    if not facts.acts:
        return facts
    return msgspec.structs.replace(
        facts,
        states=_statements(response, fields),
        is_error_alone=_is_error_alone(endpoint, body),
    )


def _statements(response: HttpResponse, fields: Mapping[str, Any]) -> Statements:
    try:
        # As pairs, because an object may have a field twice.
        return find_statements(json.loads(response.body, object_pairs_hook=Pairs), fields)
    except (ValueError, RecursionError):
        return find_statements_in_text(response.body.decode(json.detect_encoding(response.body), errors="replace"))


def _why_unknown(facts: Facts, defect: str) -> str:
    if facts.line in TIMEOUT_STATUSES:
        return "the service timed out while it waited for the request"
    if facts.line >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return "the service responded with a server error"
    if facts.line >= HTTPStatus.BAD_REQUEST:
        return (
            "the service rejected the request, but its response is incomplete"
            if not facts.is_whole
            else "the service rejected the request, but its response also speaks of an acceptance"
            if facts.states.acceptance
            else "the service rejected the request, but its response also speaks of a fault of a server"
        )
    if facts.line >= HTTPStatus.MULTIPLE_CHOICES:
        return (
            "the service redirected the request. The redirect was not followed, because the API key must not go to "
            "another address. Set the base URL to the final address"
        )
    if facts.is_error_alone and facts.named >= HTTPStatus.BAD_REQUEST:
        return f"the service responded with a success whose body names status {min(facts.named, 999)}"
    return defect


def _is_error_alone(endpoint: Endpoint[Any], body: Any) -> bool:
    """Tell whether a body has the fields of an error, and of nothing else that says something."""
    if not isinstance(body, Mapping):
        return False
    for name, value in body.items():
        is_of_error = name in _ERROR_FIELDS and (name in ("errors", "error") or not isinstance(value, (Mapping, list)))
        if not is_of_error and not is_empty(value):
            return False
    status = body.get("status")
    if isinstance(status, str):
        # The status of an error is a number, at most a word such as "failed". That of a purchase is always a word.
        is_word = endpoint.retry_safety is not RetrySafety.PURCHASE and is_refusing_status(as_words(status))
        return is_word or status.strip().isdigit() or is_empty(status)
    return is_empty(status) or status == HTTPStatus.OK or named_status(body) >= HTTPStatus.BAD_REQUEST


def _is_message_alone(endpoint: Endpoint[Any], body: Any) -> bool:
    """Tell whether a body has a message, and nothing of the resource that a success has."""
    if endpoint.allows_empty_response or not isinstance(body, Mapping):
        return False
    message, others = body.get("message"), body.keys() - _ERROR_FIELDS
    # An object without content is a part of a resource, too.
    has_part = any(body[name] is not None for name in others)
    return isinstance(message, str) and bool(message.strip()) and not has_part and _is_error_alone(endpoint, body)


def _is_documented(endpoint: Endpoint[Any], body: Any, fields: Mapping[str, Any]) -> bool:
    """Tell whether a body is the error of contract.md 7 alone, whose items name fields of the request."""
    if not isinstance(body, Mapping) or any(
        name not in _DOCUMENTED_FIELDS and not is_empty(value) for name, value in body.items()
    ):
        return False
    message, items = body.get("message"), body.get("errors")
    if not isinstance(message, str) or not message.strip() or not isinstance(items, list) or not items:
        return False
    return all(is_documented_item(item) and names_field(item["field"], endpoint.request, fields) for item in items)


def _seconds(retry_after: str | None) -> float | None:
    """Read ``Retry-After``, which is a number of seconds or a date."""
    if retry_after is None:
        return None
    if _DELAY.fullmatch(retry_after.strip()):
        return min(float(retry_after), _LONGEST_WAIT)
    try:
        moment = email.utils.parsedate_to_datetime(retry_after)
    except (TypeError, ValueError, IndexError, OverflowError):
        return None
    if moment.tzinfo is None:
        # All dates in HTTP are in UTC.
        moment = moment.replace(tzinfo=UTC)
    return min(max(0.0, moment.timestamp() - time.time()), _LONGEST_WAIT)
