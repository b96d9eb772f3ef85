"""Compares a response with its request. The answer to another one, which a cache may give, counts for nothing.

``Endpoint.echoes`` lists the fields that a response repeats. A service may write a number in another notation, an id as
a number, and leave a field out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import reduce
from http import HTTPStatus
from typing import Any

import phonenumbers

from cpaas_provider.api.endpoints import Echo, Endpoint, RetrySafety
from cpaas_provider.api.recipients.msisdn import InvalidMsisdnError, normalise_msisdn
from cpaas_provider.api.responses.statements import is_empty

_WHOLE_FLOAT = re.compile(r"(\d+)\.0+")
_MASK = re.compile(r"[*•xX#]+")


def contradicts(endpoint: Endpoint[Any], resource: Any, body: Any, fields: Mapping[str, Any]) -> str | None:
    """Return why a response with a readable resource is no answer to its request, ``None`` if it may be one.

    :param resource: the resource, or a list of resources
    :param body: the whole body
    :param fields: the fields of the request, as on the wire
    """
    if endpoint.retry_safety is RetrySafety.BILLED_READ and _names_error(body):
        # The record of a lookup has no id, which proves elsewhere that the service did what it was asked for.
        return "the response holds a record and an error"
    for record in resource if isinstance(resource, list) else [resource]:
        for echo in endpoint.echoes:
            if echo.request in fields and not _repeats(echo, record, str(fields[echo.request])):
                return f"the response belongs to another request: it names another {echo.request}"
    return None


def _names_error(body: Any) -> bool:
    """Tell whether a body, or its envelope, lists errors or names the status of an error."""
    parts = [body, body.get("data")] if isinstance(body, Mapping) else []
    return any(
        not is_empty(part.get("errors")) or not is_empty(part.get("error")) or _is_error_status(part.get("status"))
        for part in parts
        if isinstance(part, Mapping)
    )


def _is_error_status(status: Any) -> bool:
    if isinstance(status, str):
        status = int(status) if status.isascii() and status.isdigit() and len(status) < 4 else 0
    return isinstance(status, (int, float)) and status >= HTTPStatus.BAD_REQUEST


def _repeats(echo: Echo, record: Any, asked: str) -> bool:
    """Tell whether a record names what the request asked for, or leaves it out where it may."""
    value = reduce(lambda part, name: getattr(part, name, None), echo.response.split("."), record)
    answered = "" if value is None else str(value).strip()
    if not answered:
        return not echo.is_required
    if whole := _WHOLE_FLOAT.fullmatch(answered):
        answered = whole[1]
    if answered.casefold() == asked.strip().casefold():
        return True
    return echo.is_number and (_is_same_number(answered, asked) or (not echo.is_required and _masks(answered, asked)))


def _is_same_number(answered: str, asked: str) -> bool:
    """Tell whether a text is a number in another notation, which may be that of its own country."""
    try:
        region = phonenumbers.region_code_for_number(phonenumbers.parse(f"+{asked}"))
        return normalise_msisdn(answered, region) == asked
    except (phonenumbers.NumberParseException, InvalidMsisdnError):
        return False


def _masks(answered: str, asked: str) -> bool:
    """Tell whether a text is a number with some of its digits hidden."""
    shown = re.sub(r"[^\d*•xX#]", "", answered)
    pattern = _MASK.sub(r"\\d+", shown)
    return pattern != shown and re.fullmatch(pattern, asked) is not None
