"""Turns a response into a resource or an error, and decides on the outcome, without a socket.

A success with a readable resource means accepted, whatever else the body contains. Otherwise ``classification.py``
decides. It is loaded with the first such response, as all that only some responses need: its patterns take longer to
compile than a request takes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from cpaas_provider.api.amounts import counted
from cpaas_provider.api.endpoints import Endpoint, RetrySafety
from cpaas_provider.api.http.wire import HttpResponse
from cpaas_provider.api.models.base import PRIVATE
from cpaas_provider.api.redact import redact
from cpaas_provider.api.responses.echo import contradicts, unnamed_recipients
from cpaas_provider.api.responses.values import NOT_JSON, as_error_body, is_empty, is_error

if TYPE_CHECKING:
    from cpaas_provider.api.models.messages import Message

_UNION_TAGS = frozenset({"int", "float"})
"""Pydantic appends these to the location of a value that is neither type of number."""
_CONTRADICTION = "the response states both that the purchase was made and that it was not"


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
    fields = fields or {}
    try:
        body = json.loads(response.body)
    except (ValueError, RecursionError):
        body = NOT_JSON
    resource, defect = _resource(endpoint, response, body, private)
    if defect is None:
        reason = contradicts(endpoint, resource, body, fields)
        if endpoint.retry_safety is RetrySafety.PURCHASE:
            from cpaas_provider.api.responses.purchase import contradicts_itself

            reason = _CONTRADICTION if contradicts_itself(resource, body) else reason
        if reason is None:
            return _with_rejected(endpoint, resource, body, private, fields) if endpoint.sends_message else resource
        from cpaas_provider.api.responses.failures import unknown_outcome

        raise unknown_outcome(endpoint, reason, status=response.status)
    from cpaas_provider.api.responses.classification import error_of

    raise error_of(endpoint, response, body, private, fields, defect)


def _resource(
    endpoint: Endpoint[Any], response: HttpResponse, body: Any, private: Iterable[str]
) -> tuple[Any, str | None]:
    """Return the resource of a successful response, and why it cannot be used; ``None`` if it can."""
    if not HTTPStatus.OK <= response.status < HTTPStatus.MULTIPLE_CHOICES:
        return None, ""
    if (
        endpoint.allows_empty_response
        and response.body_error is None
        and (body is not NOT_JSON or not response.body.strip())
    ):
        return None, "the response is an error" if is_error(as_error_body(body)) else None
    if response.body_error is not None:
        return None, f"the response is incomplete ({response.body_error})"
    if body is NOT_JSON:
        return None, "the response is not readable JSON"
    # Some deployments wrap the resource in {"status", "type", "message", "data"}.
    readings = [body, body["data"]] if isinstance(body, dict) and "data" in body else [body]
    unreadable = ""
    for reading in readings:
        try:
            return endpoint.reader.validate_python(reading, context={PRIVATE: private}), None
        except ValidationError as error:
            unreadable = ", ".join(sorted({_location(part["loc"]) for part in error.errors(include_input=False)}))
    return None, f"the response lacks or garbles {unreadable[:100]}"


def _with_rejected(
    endpoint: Endpoint[Any],
    message: Message,
    body: Any,
    private: Iterable[str],
    fields: Mapping[str, Any],
) -> Message:
    """Return an accepted message with the recipients that its ``errors`` surely reject, and with their text."""
    rejected: tuple[str, ...] = ()
    remarks = []
    if unnamed := unnamed_recipients(message, fields):
        remarks.append(f"it does not name {counted(len(unnamed), 'recipient')}, who count as accepted")
    for part in (body, body.get("data")) if isinstance(body, Mapping) else ():
        if isinstance(part, Mapping) and not is_empty(part.get("errors")):
            from cpaas_provider.api.responses.error_items import surely_rejected_recipients
            from cpaas_provider.api.responses.failures import error_text

            rejected = surely_rejected_recipients(part["errors"], fields)
            detail = redact(error_text(part), private).rstrip(".") or "errors without a text"
            remarks.append(f"it names errors: {detail}")
            break
    if not remarks:
        return message
    rejection = f"{endpoint.operation}: the service accepted the request. In its response, {'; '.join(remarks)}."
    return message.model_copy(update={"rejected_recipients": rejected, "rejection": rejection})


def _location(location: tuple[int | str, ...]) -> str:
    return (
        ".".join(str(part) for part in location if part not in _UNION_TAGS and isinstance(part, str)) or "the resource"
    )
