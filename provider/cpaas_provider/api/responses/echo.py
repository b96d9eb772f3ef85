"""Compares a response with its request. The answer to another one, which a cache may give, counts for nothing.

``Endpoint.echoes`` lists the fields that a response repeats. A service may write a number in another notation, an id as
a number, and leave a field out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from cpaas_provider.api.endpoints import REFERENCE, Echo, Endpoint, RetrySafety
from cpaas_provider.api.recipients.invalid import InvalidMsisdnError
from cpaas_provider.api.recipients.msisdn import NumberReader
from cpaas_provider.api.responses.values import is_empty, named_code

if TYPE_CHECKING:
    from cpaas_provider.api.models.messages import Message

_WHOLE_FLOAT = re.compile(r"(\d+)\.0+")
_WHOLE_RECIPIENT = re.compile(r"\+?\(?\d[\d\s().\-]{4,40}|[^\s@*•]{1,100}@[^\s@*•]{1,255}")
"""A number of at least five digits or separators, or an address, without a hidden part."""
_UUID = re.compile(r"[0-9A-Fa-f]{8}(-?[0-9A-Fa-f]{4}){3}-?[0-9A-Fa-f]{12}")
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
            if echo.request in fields and not all(
                _repeats(echo, value, str(fields[echo.request])) for value in _named(echo, record, body)
            ):
                return f"the response belongs to another request: it names another {echo.request}"
    if (
        endpoint.sends_message
        and (unnamed := unnamed_recipients(resource, fields))
        and len(unnamed) == len(_listed(fields))
    ):
        return "the response belongs to another request: it names other recipients"
    return None


def unnamed_recipients(message: Message, fields: Mapping[str, Any]) -> Sequence[str]:
    """Return the recipients of a request that its response leaves out, although it names recipients.

    They are accepted all the same: a list that is cut off, or hides digits, rejects no recipient.

    :param fields: the fields of the request, as on the wire
    """
    if not message.recipients:
        return ()
    listed = _listed(fields)
    if set(listed).issubset(message.recipients):
        # Most services repeat the recipients as they were sent.
        return ()
    if not all(_WHOLE_RECIPIENT.fullmatch(recipient.strip()) for recipient in message.recipients):
        # A number of recipients, ids of them, or recipients that are partly hidden.
        return ()
    named = {_comparable(recipient) for recipient in message.recipients}
    unnamed = [recipient for recipient in listed if _comparable(recipient) not in named]
    for region in {_region_of(recipient) for recipient in unnamed}:
        named |= {_as_sent(recipient, region) for recipient in named}
    return [recipient for recipient in unnamed if _comparable(recipient) not in named]


def _listed(fields: Mapping[str, Any]) -> Sequence[str]:
    listed = fields.get("recipients")
    return listed.split(",") if isinstance(listed, str) and listed else ()


def _comparable(recipient: str) -> str:
    return recipient.strip().casefold() if "@" in recipient else re.sub(r"\D", "", recipient)


def _names_error(body: Any) -> bool:
    """Tell whether a body, or its envelope, lists errors or names the status of an error."""
    return any(
        not is_empty(part.get("errors"))
        or not is_empty(part.get("error"))
        or named_code(part.get("status")) >= HTTPStatus.BAD_REQUEST
        for part in _parts(body)
    )


def _parts(body: Any) -> list[Mapping[str, Any]]:
    """Return the objects in which a resource may stand: the body, and the ``data`` of an envelope."""
    parts = [body, body.get("data")] if isinstance(body, Mapping) else []
    return [part for part in parts if isinstance(part, Mapping)]


def _named(echo: Echo, record: Any, body: Any) -> Iterator[Any]:
    """Yield what a response names: in the record, and a reference also in the envelope around it, or within it."""
    value = record
    for name in echo.response.split("."):
        value = getattr(value, name, None)
    yield value
    if echo is REFERENCE:
        yield from (text for part in _parts(body) if isinstance(text := part.get(echo.response), str))


def _repeats(echo: Echo, value: Any, asked: str) -> bool:
    """Tell whether a value is what the request asked for, or is left out where it may be."""
    answered = "" if value is None else str(value).strip()
    if not answered or (echo.words and answered.lower() not in echo.words):
        return not echo.is_required
    if whole := _WHOLE_FLOAT.fullmatch(answered):
        answered = whole[1]
    asked = asked.strip()
    if answered == asked:
        return True
    if answered.casefold() == asked.casefold() and (not echo.is_id or _UUID.fullmatch(asked)):
        return True
    return echo.is_number and (_is_same_number(answered, asked) or (not echo.is_required and _masks(answered, asked)))


def _is_same_number(answered: str, asked: str) -> bool:
    """Tell whether a text is a number in another notation, which may be that of its own country."""
    return _as_sent(answered, _region_of(asked)) == asked


def _region_of(number: str) -> str | None:
    import phonenumbers

    try:
        return phonenumbers.region_code_for_number(phonenumbers.parse(f"+{number}"))
    except phonenumbers.NumberParseException:
        return None


def _as_sent(number: str, region: str | None) -> str:
    """Return a number as requests have it, ``""`` if it is none. One without country code is of the region."""
    try:
        return NumberReader(region, "possible").read(number)
    except InvalidMsisdnError:
        return ""


def _masks(answered: str, asked: str) -> bool:
    """Tell whether a text is a number with some of its digits hidden."""
    shown = re.sub(r"[^\d*•xX#]", "", answered)
    pattern = _MASK.sub(r"\\d+", shown)
    return pattern != shown and re.fullmatch(pattern, asked) is not None
