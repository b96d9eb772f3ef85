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
# Matches only at the start of a word. Tried at each letter, a long word would take quadratic time.
_ADDRESS = re.compile(r"(?<![^\s,;:<>\"()\[\]])[^\s@,;:<>\"()\[\]]+@[^\s@,;:<>\"()\[\]]+")
_COMPARISON = re.compile(r"\b(?:same|duplicate|copy|identical|equal|repeat)\w*\b[^.;]*\Z")
"""Words before a recipient with which the rejected one is only compared."""
_COMPARED_WITHIN = 200
"""How many characters before a recipient are searched for such words."""


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
    placed = list(_placed(steps, recipients, personalised))
    quoted = [one for text in (item.field, item.message) for one in _quoted(text or "", known)]
    if not quoted:
        yield from placed
    elif not placed:
        yield from quoted
    else:
        # Some services count from 1. A recipient at another place is only compared with the one that is meant.
        nearby = {*placed, *_placed(steps, recipients, personalised, first=1)}
        yield from (one for one in quoted if one in nearby)


def _placed(
    steps: Sequence[str], recipients: Sequence[str], personalised: Sequence[Mapping[str, Any]], first: int = 0
) -> Iterator[str]:
    """Yield the recipients at the places in a field's name.

    :param first: the number of the first place
    """
    for step, place in itertools.pairwise(steps):
        index = int(place) - first if place.isdecimal() else -1
        if step in _RECIPIENTS and 0 <= index < len(recipients):
            yield recipients[index]
        elif step in _PERSONALISATION and 0 <= index < len(personalised):
            yield personalised[index]["to"]


def _steps(field: str | None) -> list[str]:
    return _STEP.findall((field or "").lower())


def _quoted(text: str, known: Mapping[str, str]) -> Iterator[str]:
    """Yield the recipients whose numbers or addresses a sentence quotes.

    :param known: the recipients by their form in lower case
    """
    text = text.lower()
    for match in _NUMBER.finditer(text):
        if _is_compared(text, match.start()):
            continue
        runs = re.findall(r"\d+", match[0])
        if (number := "".join(runs)) in known:
            yield known[number]
        elif not match[0].startswith("+") or runs[0] in known:
            # Two numbers side by side look like one with blanks. But what follows a prefix is no number of its own.
            yield from (known[run] for run in runs if run in known)
    for match in _ADDRESS.finditer(text):
        bare = match[0].strip("'").rstrip(".!?'")
        if bare in known and not _is_compared(text, match.start()):
            yield known[bare]


def _is_compared(text: str, place: int) -> bool:
    """Tell whether another recipient is only compared with the one that a text quotes at a place."""
    return _COMPARISON.search(text, max(0, place - _COMPARED_WITHIN), place) is not None
