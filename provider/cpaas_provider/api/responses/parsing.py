"""Turns a response into a resource or an error, and decides on the outcome, without a socket.

A success with a readable resource means accepted, whatever else the body contains. Otherwise one table decides, by the
status line, the status that the body names, its ``errors``, and whether it is nothing but an error. In doubt the
outcome is unknown: after a wrong "rejected" or "not sent", a recipient would get a message twice.
"""

from __future__ import annotations

import email.utils
import json
import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC
from enum import Enum
from http import HTTPStatus
from typing import Any

from pydantic import ValidationError

from cpaas_provider.api.endpoints import Endpoint, RetrySafety
from cpaas_provider.api.http.wire import HttpResponse
from cpaas_provider.api.models.base import PRIVATE
from cpaas_provider.api.models.messages import Message
from cpaas_provider.api.redact import redact
from cpaas_provider.api.responses import failures
from cpaas_provider.api.responses.error_items import rejected_recipients

_DELAY = re.compile(r"[0-9]+(\.[0-9]+)?")
_LONGEST_WAIT = 366 * 24 * 3600.0
"""In seconds. A longer wait is shortened to this, so that a caller can add it to a date."""
_BODY_SUCCESS_TYPE = "success"
_UNION_TAGS = frozenset({"int", "float"})
"""Pydantic appends these to the location of a value that is neither type of number."""
_ACTS = frozenset({RetrySafety.UNSAFE, RetrySafety.PURCHASE})
"""Requests that must not be carried out twice."""
_ERROR_FIELDS = frozenset({"status", "type", "message", "code", "timestamp", "path", "request_id", "trace_id"})
"""The fields of an error body (INTERFACE.md section 7), and others that say nothing of a resource."""
_NESTED_ERROR_FIELDS = frozenset({"errors", "error"})
_SUCCESS = re.compile(r"succe|accept|queue|sent|partial|creat|process|deliver|schedul|\bok\b", re.IGNORECASE)
"""Words of a status or type that speak of a success."""
_DEEPEST_EMPTY = 6
"""How many levels of a value are searched for something that is not empty."""
_NOT_JSON = object()


class Outcome(Enum):
    """The outcome of a request whose response does not prove that it was accepted."""

    NOT_SENT = "not sent"
    REJECTED = "rejected"
    UNKNOWN = "unknown"


class Resource(Enum):
    """How much of the expected resource a successful response contains."""

    WHOLE = "a readable resource"
    TRACE = "no readable resource, but more than an error, or a cut-off body"
    NONE = "no resource"


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts about a response without a readable resource that decide on the outcome.

    :param line: the status of the status line
    :param named: the status that an error body names, 0 if it names none
    :param waits: whether there is a readable Retry-After
    :param lists_errors: whether the body lists errors of fields
    :param looks_like_error: whether the body looks like an error; decides only if a repeated request does no harm
    """

    retry_safety: RetrySafety
    line: int
    named: int = 0
    resource: Resource = Resource.NONE
    waits: bool = False
    lists_errors: bool = False
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
    # By the status line.
    (lambda a: a.line == 429, Outcome.NOT_SENT),
    (lambda a: a.line == 425 and not a.is_purchase, Outcome.NOT_SENT),
    (lambda a: a.line == 503 and a.waits and not a.is_purchase, Outcome.NOT_SENT),
    (lambda a: a.line == 408 or a.line >= 500 or a.line < 200, Outcome.UNKNOWN),
    (lambda a: 300 <= a.line < 400 and a.acts, Outcome.UNKNOWN),
    (lambda a: a.line >= 300, Outcome.REJECTED),
    # After a success in the status line.
    (lambda a: a.resource is Resource.TRACE and a.acts, Outcome.UNKNOWN),
    (lambda a: a.named == 429, Outcome.NOT_SENT),
    (lambda a: a.named == 425 and not a.is_purchase, Outcome.NOT_SENT),
    (lambda a: a.named == 408 or a.named >= 500, Outcome.UNKNOWN),
    (lambda a: a.named >= 400 or a.lists_errors, Outcome.REJECTED),
    (lambda a: a.looks_like_error and not a.acts, Outcome.REJECTED),
)
"""The first row that applies decides. If no row applies, the outcome is unknown."""


def classify(facts: Facts) -> Outcome:
    """Return the outcome of a request whose response has no readable resource."""
    return next((outcome for applies, outcome in TABLE if applies(facts)), Outcome.UNKNOWN)


def parse_response(
    endpoint: Endpoint[Any],
    response: HttpResponse,
    private: Iterable[str] = (),
    fields: Mapping[str, Any] | None = None,
) -> Any:
    """Return the resource of a response.

    :param private: values that must not appear in a status, a name or an error's message; read several times
    :param fields: the fields of the request, as on the wire; tells the recipients that an accepted request leaves out
    :raises CpaasError: if the outcome is not sent, rejected or unknown
    """
    body = _json(response)
    resource, presence, defect = _resource(endpoint, response, body, private)
    if presence is Resource.WHOLE:
        return _with_rejected(endpoint, resource, body, private, fields)
    retry_after = _seconds(response.retry_after)
    error_body = _as_error_body(body)
    listed = error_body.get("errors")
    facts = Facts(
        endpoint.retry_safety,
        response.status,
        _named(error_body),
        presence,
        retry_after is not None,
        lists_errors=response.body_error is None and bool(listed) and isinstance(listed, (list, Mapping)),
        looks_like_error=_is_error(error_body),
    )
    outcome = classify(facts)
    if outcome is Outcome.UNKNOWN:
        raise failures.unknown_outcome(endpoint, _why_unknown(facts, defect), status=response.status)
    is_success = response.status < HTTPStatus.MULTIPLE_CHOICES
    deciding = facts.named if is_success and facts.named else response.status
    if outcome is Outcome.NOT_SENT:
        raise failures.not_sent(endpoint, response.status, deciding, retry_after)
    if not is_success and response.status < HTTPStatus.BAD_REQUEST:
        raise failures.redirected(endpoint, response.status)
    raise failures.rejection(endpoint, response.status, deciding, body, private)


def _why_unknown(facts: Facts, defect: str) -> str:
    if facts.line == HTTPStatus.REQUEST_TIMEOUT:
        return "the service timed out while it waited for the request"
    if facts.line >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return "the service responded with a server error"
    if facts.line >= HTTPStatus.MULTIPLE_CHOICES:
        return (
            "the service redirected the request. The redirect was not followed, because the API key must not go to "
            "another address. Set the base URL to the final address"
        )
    if facts.resource is Resource.NONE and facts.named:
        return f"the service responded with a success whose body names status {min(facts.named, 999)}"
    return defect


def _resource(
    endpoint: Endpoint[Any], response: HttpResponse, body: Any, private: Iterable[str]
) -> tuple[Any, Resource, str]:
    """Return the resource of a successful response, how much of it there is, and why it cannot be used."""
    if not HTTPStatus.OK <= response.status < HTTPStatus.MULTIPLE_CHOICES:
        return None, Resource.NONE, ""
    if (
        endpoint.allows_empty_response
        and response.body_error is None
        and (body is not _NOT_JSON or not response.body.strip())
    ):
        return None, Resource.NONE if _is_error(_as_error_body(body)) else Resource.WHOLE, ""
    if response.body_error is not None:
        return None, Resource.TRACE, f"the response is incomplete ({response.body_error})"
    if body is _NOT_JSON:
        return None, Resource.NONE, "the response is not readable JSON"
    # Some deployments wrap the resource in {"status", "type", "message", "data"}.
    readings = [body, body["data"]] if isinstance(body, dict) and "data" in body else [body]
    unreadable = ""
    for reading in readings:
        try:
            return endpoint.reader.validate_python(reading, context={PRIVATE: private}), Resource.WHOLE, ""
        except ValidationError as error:
            unreadable = ", ".join(sorted({_location(part["loc"]) for part in error.errors(include_input=False)}))
    presence = Resource.TRACE if _is_trace(endpoint, response.status, body) else Resource.NONE
    return None, presence, f"the response lacks or garbles {unreadable[:100]}"


def _is_trace(endpoint: Endpoint[Any], line: int, body: Any) -> bool:
    """Tell whether a success without a readable resource contains more than an error, or speaks of a success.

    The service may then have accepted the request, or a part of it, whatever errors it lists.
    """
    if line != HTTPStatus.OK:
        return True
    if not isinstance(body, Mapping):
        return not _is_empty(body)
    status, kind = body.get("status"), body.get("type")
    if any(isinstance(word, str) and _SUCCESS.search(word) for word in (status, kind)):
        return True
    if isinstance(status, (int, float)) and status and status != HTTPStatus.OK and status < HTTPStatus.BAD_REQUEST:
        # Such as 201, or the status of a passcode.
        return True
    if endpoint.retry_safety is RetrySafety.PURCHASE and _is_word(status):
        return True
    return not all(_is_of_error(name, value) or _is_empty(value) for name, value in body.items())


def _is_of_error(name: str, value: Any) -> bool:
    """Tell whether a field is one of an error body. A ``message`` that is an object may be the resource."""
    return name in _NESTED_ERROR_FIELDS or (name in _ERROR_FIELDS and not isinstance(value, (Mapping, list)))


def _is_empty(value: Any, depth: int = _DEEPEST_EMPTY) -> bool:
    """Tell whether a value says nothing, such as ``null``, ``false`` or an object whose values say nothing."""
    if depth and isinstance(value, Mapping):
        return all(_is_empty(inner, depth - 1) for inner in value.values())
    if depth and isinstance(value, list):
        return all(_is_empty(inner, depth - 1) for inner in value)
    return not value


def _is_word(status: Any) -> bool:
    """Tell whether a status is that of a purchase, such as ``pending``. That of an error body is a number."""
    return isinstance(status, str) and bool(status.strip()) and not status.strip().isdigit()


def _with_rejected(
    endpoint: Endpoint[Any],
    resource: Any,
    body: Any,
    private: Iterable[str],
    fields: Mapping[str, Any] | None,
) -> Any:
    """Return an accepted message with the recipients that its ``errors`` name: the service rejected these."""
    if not isinstance(resource, Message) or not isinstance(body, Mapping):
        return resource
    for part in (body, body.get("data")):
        if items := failures.error_items(part):
            detail = redact(failures.error_text(body, items), private).rstrip(".")
            return resource.model_copy(
                update={
                    "rejected_recipients": rejected_recipients(items, fields or {}),
                    "rejection": f"{endpoint.operation}: the service accepted the request, but not for all recipients: "
                    f"{detail}.",
                }
            )
    return resource


def _json(response: HttpResponse) -> Any:
    try:
        return json.loads(response.body)
    except (ValueError, RecursionError):
        return _NOT_JSON


def _is_whole(value: Any) -> bool:
    if isinstance(value, float):
        return value.is_integer()
    return isinstance(value, int) and not isinstance(value, bool)


def _as_error_body(body: Any) -> Mapping[str, Any]:
    """Return a body that may have the error shape of INTERFACE.md section 7; for any other, an empty one."""
    return body if isinstance(body, Mapping) and "message" in body else {}


def _named(error_body: Mapping[str, Any]) -> int:
    """Return the status that an error body names (INTERFACE.md section 7), 0 if it names none.

    Text is not a status. But text such as "503" counts, because it makes the outcome unknown.
    """
    status = error_body.get("status")
    if _is_whole(status):
        return max(0, int(status or 0))
    if isinstance(status, str) and status.isascii() and status.isdigit() and len(status) <= len("503"):
        return int(status) if int(status) == HTTPStatus.REQUEST_TIMEOUT or int(status) >= 500 else 0
    return 0


def _is_error(error_body: Mapping[str, Any]) -> bool:
    """Tell whether a body looks like the error shape of INTERFACE.md section 7, whatever the HTTP status."""
    if error_body.get("errors"):
        return True
    status = error_body.get("status", 0)
    if not _is_whole(status) or status < HTTPStatus.CONTINUE:
        # Not an HTTP status, but for example that of a passcode.
        return False
    if status >= HTTPStatus.BAD_REQUEST:
        return True
    if kind := error_body.get("type"):
        return str(kind).lower() != _BODY_SUCCESS_TYPE
    return "errors" in error_body and "data" not in error_body


def _location(location: tuple[int | str, ...]) -> str:
    return (
        ".".join(str(part) for part in location if part not in _UNION_TAGS and isinstance(part, str)) or "the resource"
    )


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
