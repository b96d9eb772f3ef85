"""Finds the recipients and fields that the error items of a rejected send name (contract.md 7).

Services name a field in different ways (``recipients``, ``recipients.3``, ``body.personalisation[3].to``), and some
quote the recipient. All of these are understood. Places are counted from 0.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from cpaas_provider.api.errors import ErrorItem
from cpaas_provider.api.models.base import WireRequest
from cpaas_provider.api.models.email import SendEmailRequest
from cpaas_provider.api.models.sms import SendSmsRequest
from cpaas_provider.api.responses.values import is_empty
from cpaas_provider.api.responses.wording import speaks_of_refusal

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
_ROW_FIELDS = frozenset({"id", "row", "row_id"})
_ITEM_FIELDS = frozenset({"field", "message", "type"})


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
    """Tell whether error items name a field, and none of them is about recipients: all batches have the same fault."""
    return any(not _WHOLE_REQUEST.issuperset(_steps(item.field)) for item in items) and not any(
        _is_about_recipients(item, fields) for item in items
    )


def _is_about_recipients(item: ErrorItem, fields: Mapping[str, Any]) -> bool:
    return not _RECIPIENT_FIELDS.isdisjoint(_steps(item.field)) or bool(rejected_recipients((item,), fields))


def is_documented_item(item: Any) -> bool:
    """Tell whether an error item has the form of contract.md 7, and nothing else that says something."""
    return (
        isinstance(item, Mapping)
        and isinstance(item.get("field"), str)
        and all(item.get(name) is None or isinstance(item[name], str) for name in ("message", "type"))
        and all(name in _ITEM_FIELDS or is_empty(value) for name, value in item.items())
    )


def names_field(field: str, request: type[WireRequest], fields: Mapping[str, Any]) -> bool:
    """Tell whether the field of an error item is one of a request.

    :param fields: the fields of the request, as on the wire
    """
    names = {*request.model_fields, *fields}
    if not _RECIPIENTS.isdisjoint(names):
        # A passcode and a purchase have one recipient: "recipients" is a field of another request.
        others = {"recipients"} - names
        names |= (_RECIPIENT_FIELDS | {"substitutions"}) - others
    if "row_id" in names:
        names |= _ROW_FIELDS
    if isinstance(columns := fields.get("columns"), Mapping):
        names |= {step for column in columns for step in _steps(str(column))}
    return not names.isdisjoint(_steps(field))


def surely_rejected_recipients(errors: Any, fields: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the recipients of an accepted request that its errors surely reject, in the request's form and order.

    An item must have the documented form, be about one recipient alone, and say that the service rejected it. In doubt
    the recipient was accepted, because one that counts as rejected may get the message again.

    :param errors: the ``errors`` of the response
    """
    items = [
        ErrorItem(item["field"], item.get("message"), item.get("type"))
        for item in (errors if isinstance(errors, list) else ())
        if is_documented_item(item)
    ]
    counts_from_0 = any("0" in _steps(item.field) for item in items)
    rejected, uncertain = set[str](), set[str]()
    for item in items:
        if not _RECIPIENT_FIELDS.isdisjoint(_steps(item.field)):
            recipients, is_certain = _about(item, fields, counts_from_0)
            is_alone = is_certain and len(recipients) == 1
            (rejected if is_alone and _is_refusal(item) else uncertain).update(recipients)
    # Two recipients in one refusal are only uncertain. Another item may reject one of them alone.
    listed = fields.get("recipients", "").split(",")
    return tuple(recipient for recipient in listed if recipient in rejected - uncertain)


def _about(item: ErrorItem, fields: Mapping[str, Any], counts_from_0: bool) -> tuple[set[str], bool]:
    """Return every recipient that an item may be about, and whether there is no other way to read it.

    A recipient with which another is only compared is one of them.
    """
    recipients, personalised = fields.get("recipients", "").split(","), fields.get("personalisation") or ()
    known = {recipient.lower(): recipient for recipient in recipients}
    texts = [text or "" for text in (item.field, item.message)]
    quoted = {recipient for text in texts for recipient in _quoted(text, known, with_compared=True)}
    steps = _steps(item.field)
    placed = set(_placed(steps, recipients, personalised))
    others = set() if counts_from_0 else set(_placed(steps, recipients, personalised, first=1))
    is_certain = (bool(quoted) or counts_from_0) and not any(_quotes_other_address(text, known) for text in texts)
    return (quoted if quoted and quoted <= placed | others else quoted | placed | others), is_certain


def _is_refusal(item: ErrorItem) -> bool:
    return speaks_of_refusal(f"{item.type or ''} . {item.message or ''}")


def _named(
    item: ErrorItem, recipients: Sequence[str], known: Mapping[str, str], personalised: Sequence[Mapping[str, Any]]
) -> Iterator[str]:
    steps = _steps(item.field)
    if _RECIPIENT_FIELDS.isdisjoint(steps) and not _MESSAGE_FIELDS.isdisjoint(steps):
        # An error about the text may quote a number that stands in it.
        return
    placed = list(_placed(steps, recipients, personalised))
    quoted = [recipient for text in (item.field, item.message) for recipient in _quoted(text or "", known)]
    if not quoted:
        yield from placed
    elif not placed:
        yield from quoted
    else:
        # Some services count from 1. A recipient at another place is only compared with the one that is meant.
        nearby = {*placed, *_placed(steps, recipients, personalised, first=1)}
        yield from (recipient for recipient in quoted if recipient in nearby)


def _placed(
    steps: Sequence[str], recipients: Sequence[str], personalised: Sequence[Mapping[str, Any]], first: int = 0
) -> Iterator[str]:
    """Yield the recipients at the places in a field's name.

    :param first: the number of the first place
    """
    for step, position in itertools.pairwise(steps):
        index = int(position) - first if position.isdecimal() else -1
        if step in _RECIPIENTS and 0 <= index < len(recipients):
            yield recipients[index]
        elif step in _PERSONALISATION and 0 <= index < len(personalised):
            yield personalised[index]["to"]


def _steps(field: str | None) -> list[str]:
    return _STEP.findall((field or "").lower())


def _quoted(text: str, known: Mapping[str, str], *, with_compared: bool = False) -> Iterator[str]:
    """Yield the recipients whose numbers or addresses a sentence quotes.

    :param known: the recipients by their form in lower case
    :param with_compared: whether a recipient counts with which another is only compared
    """
    text = text.lower()
    for match in _NUMBER.finditer(text):
        if not with_compared and _is_compared(text, match.start()):
            continue
        runs = re.findall(r"\d+", match[0])
        if (number := "".join(runs)) in known:
            yield known[number]
        elif not match[0].startswith("+") or runs[0] in known:
            # Two numbers side by side look like one with blanks. But what follows a prefix is no number of its own.
            yield from (known[run] for run in runs if run in known)
    for match in _ADDRESS.finditer(text):
        bare = match[0].strip("'").rstrip(".!?'")
        if bare in known and (with_compared or not _is_compared(text, match.start())):
            yield known[bare]


def _quotes_other_address(text: str, known: Mapping[str, str]) -> bool:
    """Tell whether a sentence quotes an address to which the request does not send."""
    return any(match[0].strip("'").rstrip(".!?'") not in known for match in _ADDRESS.finditer(text.lower()))


def _is_compared(text: str, position: int) -> bool:
    """Tell whether another recipient is only compared with the one that a text quotes at a position."""
    return _COMPARISON.search(text, max(0, position - _COMPARED_WITHIN), position) is not None
