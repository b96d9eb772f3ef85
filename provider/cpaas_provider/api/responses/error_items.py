"""Which recipients or fields the rejection of a send is about, as far as its error items tell (INTERFACE.md section 7).

Services differ in how they name a field (``recipients``, ``recipients.3``, ``body.personalisation[3].to``) and in
whether they quote the recipient, so all of these are understood. Places are counted from 0.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from cpaas_provider.api.errors import ErrorItem

_RECIPIENTS = frozenset({"recipients", "recipient"})
_PERSONALISATION = frozenset({"personalisation", "personalization"})
_OF_RECIPIENTS = _RECIPIENTS | _PERSONALISATION | {"to", "msisdn", "phone", "phone_number", "number", "email"}
_OF_MESSAGE = frozenset(
    {
        "callback",
        "channel",
        "content",
        "external_ref",
        "from_name",
        "is_trackable",
        "reply_to",
        "sender_id",
        "subject",
        "template_id",
    }
)
# Names of the whole request rather than of a field.
_OF_NOTHING = frozenset({"", "body", "data", "json", "payload", "request", "non_field_errors", "__root__"})
_STEP = re.compile(r"[^\s.\[\]/'\"]+")
_NUMBER = re.compile(r"\+?\d(?:[\s().\-]{0,2}\d){5,}")
_ADDRESS = re.compile(r"(?<![^\s,;:<>\"'()\[\]])[^\s@,;:<>\"'()\[\]]+@[^\s@,;:<>\"'()\[\]]+")


def rejected_recipients(items: Iterable[ErrorItem], fields: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the recipients of a request that error items name, as the request had them and in its order.

    :param items: what the service listed
    :param fields: the request as it went on the wire
    """
    listed = fields.get("recipients")
    if not isinstance(listed, str):
        return ()
    recipients = listed.split(",")
    known = {recipient.lower(): recipient for recipient in recipients}
    named = {one for item in items for one in _named(item, recipients, known, fields.get("personalisation") or ())}
    return tuple(recipient for recipient in recipients if recipient in named)


def is_message_error(items: Sequence[ErrorItem], fields: Mapping[str, Any]) -> bool:
    """Tell whether there are items and all of them name a field that is not about recipients."""
    return bool(items) and all(_is_about_message(item, fields) for item in items)


def _is_about_message(item: ErrorItem, fields: Mapping[str, Any]) -> bool:
    steps = _steps(item.field)
    if not _OF_RECIPIENTS.isdisjoint(steps):
        return False
    if not _OF_MESSAGE.isdisjoint(steps):
        return True
    return not _OF_NOTHING.issuperset(steps) and not rejected_recipients((item,), fields)


def _named(
    item: ErrorItem, recipients: Sequence[str], known: Mapping[str, str], personalised: Sequence[Mapping[str, Any]]
) -> Iterator[str]:
    steps = _steps(item.field)
    if _OF_RECIPIENTS.isdisjoint(steps) and not _OF_MESSAGE.isdisjoint(steps):
        # What is said of the text may quote a number in it.
        return
    quoted = [known[one] for words in (item.field, item.message) for one in _quoted(words or "") if one in known]
    if quoted:
        # Surer than a place, which some count from 1.
        yield from quoted
        return
    for step, place in itertools.pairwise(steps):
        if step in _RECIPIENTS and place.isdecimal() and int(place) < len(recipients):
            yield recipients[int(place)]
        elif step in _PERSONALISATION and place.isdecimal() and int(place) < len(personalised):
            yield personalised[int(place)]["to"]


def _steps(field: str | None) -> list[str]:
    return _STEP.findall((field or "").lower())


def _quoted(words: str) -> Iterator[str]:
    """Yield the numbers and addresses in a sentence, in the form of ``recipients`` but in lower case."""
    words = words.lower()
    # As one run, or with the blanks that people write: two numbers may stand side by side.
    yield from re.findall(r"\d+", words)
    for number in _NUMBER.findall(words):
        yield re.sub(r"\D", "", number)
    for address in _ADDRESS.findall(words):
        yield address.rstrip(".!?")
