"""Finds the recipients and fields that the error items of a rejected send name (INTERFACE.md section 7).

Services name a field in different ways (``recipients``, ``recipients.3``, ``body.personalisation[3].to``), and some
quote the recipient. All of these are understood. Places are counted from 0.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from cpaas_provider.api.errors import ErrorItem
from cpaas_provider.api.models.messages import SendEmailRequest, SendSmsRequest

_RECIPIENTS = frozenset({"recipients", "recipient"})
_PERSONALISATION = frozenset({"personalisation", "personalization"})
_RECIPIENT_FIELDS = _RECIPIENTS | _PERSONALISATION | {"to", "msisdn", "phone", "phone_number", "number", "email"}
_MESSAGE_FIELDS = (SendSmsRequest.model_fields | SendEmailRequest.model_fields).keys() - _RECIPIENTS - _PERSONALISATION
# Names that stand for the whole request, not for a field.
_WHOLE_REQUEST = frozenset({"", "body", "data", "json", "payload", "request", "non_field_errors", "__root__"})
_STEP = re.compile(r"[^\s.\[\]/'\"]+")
_NUMBER = re.compile(r"\+?\d(?:[\s().\-]{0,2}\d){5,}")
_ADDRESS = re.compile(r"(?<![^\s,;:<>\"'()\[\]])[^\s@,;:<>\"'()\[\]]+@[^\s@,;:<>\"'()\[\]]+")


def rejected_recipients(items: Iterable[ErrorItem], fields: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the recipients of a request that error items name, in the request's form and order.

    :param items: the error items of the response
    :param fields: the fields of the request, as on the wire
    """
    listed = fields.get("recipients")
    if not isinstance(listed, str):
        return ()
    recipients = listed.split(",")
    known = {recipient.lower(): recipient for recipient in recipients}
    personalised = fields.get("personalisation") or ()
    named = {recipient for item in items for recipient in _named(item, recipients, known, personalised)}
    return tuple(recipient for recipient in recipients if recipient in named)


def is_message_error(items: Sequence[ErrorItem], fields: Mapping[str, Any]) -> bool:
    """Tell whether there are error items, and each of them names a field that is not about recipients."""
    return bool(items) and all(_is_about_message(item, fields) for item in items)


def _is_about_message(item: ErrorItem, fields: Mapping[str, Any]) -> bool:
    steps = _steps(item.field)
    if not _RECIPIENT_FIELDS.isdisjoint(steps):
        return False
    if not _MESSAGE_FIELDS.isdisjoint(steps):
        return True
    return not _WHOLE_REQUEST.issuperset(steps) and not rejected_recipients((item,), fields)


def _named(
    item: ErrorItem, recipients: Sequence[str], known: Mapping[str, str], personalised: Sequence[Mapping[str, Any]]
) -> Iterator[str]:
    steps = _steps(item.field)
    if _RECIPIENT_FIELDS.isdisjoint(steps) and not _MESSAGE_FIELDS.isdisjoint(steps):
        # An error about the text may quote a number that stands in it.
        return
    quoted = [known[found] for text in (item.field, item.message) for found in _quoted(text or "") if found in known]
    if quoted:
        # More reliable than a place, which some services count from 1.
        yield from quoted
        return
    for step, place in itertools.pairwise(steps):
        if step in _RECIPIENTS and place.isdecimal() and int(place) < len(recipients):
            yield recipients[int(place)]
        elif step in _PERSONALISATION and place.isdecimal() and int(place) < len(personalised):
            yield personalised[int(place)]["to"]


def _steps(field: str | None) -> list[str]:
    return _STEP.findall((field or "").lower())


def _quoted(text: str) -> Iterator[str]:
    """Yield the numbers and addresses in a sentence, in the form of ``recipients`` but in lower case."""
    text = text.lower()
    # Runs of digits, and numbers with blanks within: two numbers side by side would look like one with blanks.
    yield from re.findall(r"\d+", text)
    for number in _NUMBER.findall(text):
        yield re.sub(r"\D", "", number)
    for address in _ADDRESS.findall(text):
        yield address.rstrip(".!?")
