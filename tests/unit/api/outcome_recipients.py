"""Which recipients an accepted request rejects: an oracle from PROMISES.md alone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from tests.unit.api.outcome_evidence import Level, in_body, is_note
from tests.unit.api.question import Question

_NUMBER = re.compile(r"(?<![\w+])\+?\d[\d ()-]{5,20}\d(?!\w)")
_ADDRESS = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
_ABOUT_RECIPIENTS = re.compile(r"\W*(?:recipients?|to|msisdn|phone|email|personalisation)(?:\W.*)?", re.IGNORECASE)
_INDEX = re.compile(r"\D+(\d{1,3})\D*")


def rejected_within(question: Question, body: Any) -> tuple[frozenset[str], frozenset[str]]:
    rejected, rejectable, other = set[str](), set[str](), set[str]()
    for item in _items(body):
        level, named = _said_of(question, item)
        (rejected if level is Level.CLEAR else rejectable if level else other).update(named)
    rejected -= rejectable | other
    if any(_has_index_of_none(question, item) for item in _items(body)) or _has_other_errors(body):
        rejectable |= rejected
        rejected = set()
    # Where nobody is left, the id and the items contradict one another.
    sure = rejected if len(rejected) < len(question.recipients) else set()
    return frozenset(sure), frozenset(rejected | rejectable | (other & _alone(question, body)))


def _has_other_errors(body: Any) -> bool:
    """Whether there are errors in another form than a list, which may say otherwise."""
    holders = (body, body.get("data") if isinstance(body, dict) else None)
    return any(
        isinstance(holder, dict) and holder.get("errors") and not isinstance(holder["errors"], list)
        for holder in holders
    )


def _has_index_of_none(question: Question, item: Any) -> bool:
    """Whether an item names a recipient by an index that only a count from 1 has."""
    name = item.get("field") if isinstance(item, dict) else None
    index = _INDEX.fullmatch(name) if isinstance(name, str) and _ABOUT_RECIPIENTS.fullmatch(name) else None
    return index is not None and int(index[1]) >= len(question.recipients)


def _alone(question: Question, body: Any) -> set[str]:
    """Return the recipients that at least one item rejects alone, whatever other items say."""
    said = (_said_of(question, item) for item in _items(body))
    return {name for level, named in said if level for name in named}


def _items(body: Any) -> Iterator[Any]:
    for holder in (body, body.get("data") if isinstance(body, dict) else None):
        if isinstance(holder, dict) and isinstance(holder.get("errors"), list):
            yield from holder["errors"]


def _said_of(question: Question, item: Any) -> tuple[Level, set[str]]:
    """Return which recipients an item names, and how sure it is that it rejects them."""
    if not isinstance(item, dict):
        return Level.NO, set(question.recipients)
    name, message = item.get("field"), item.get("message")
    exact, loose, strangers = _named(question, message if isinstance(message, str) else "")
    if isinstance(name, str) and name in question.recipients:
        loose.add(name)
    elif not isinstance(name, str) or not _ABOUT_RECIPIENTS.fullmatch(name):
        return Level.NO, exact | loose
    elif not exact | loose and (index := _INDEX.fullmatch(name)) and int(index[1]) < len(question.recipients):
        loose.add(question.recipients[int(index[1])])
    elif not exact | loose and not index and len(question.recipients) == 1:
        loose.update(question.recipients)
    found = in_body({key: value for key, value in item.items() if key != "type"}, question.fields)
    if len(exact | loose) != 1 or strangers or is_note(item) or found.acceptance is Level.CLEAR:
        return Level.NO, exact | loose
    is_plain = name == "recipients" and item.keys() <= {"field", "message", "type"} and not found.level and exact
    # A sentence that names somebody twice may be about two recipients.
    is_plain = is_plain and isinstance(message, str) and all(message.count(recipient) == 1 for recipient in exact)
    is_plain = is_plain and item.get("type", "invalid") in ("invalid", "missing", "value_error")
    return Level.CLEAR if is_plain else Level.DOUBT, exact | loose


def _named(question: Question, text: str) -> tuple[set[str], set[str], bool]:
    """Return the recipients that a text names exactly, those it names in another form, and whether it names others."""
    exact, loose, strangers = set[str](), set[str](), False
    digits = {recipient[-9:]: recipient for recipient in question.recipients if recipient.isdigit()}
    addresses = {recipient.casefold(): recipient for recipient in question.recipients if "@" in recipient}
    for match in _NUMBER.findall(text):
        plain = re.sub(r"\D", "", match)
        recipient = digits.get(plain[-9:])
        if recipient is None or not recipient.endswith(plain.lstrip("0")):
            strangers = True
        else:
            (exact if match == recipient else loose).add(recipient)
    for match in _ADDRESS.findall(text):
        if (recipient := addresses.get(match.rstrip(".").casefold())) is None:
            strangers = True
        else:
            (exact if match == recipient else loose).add(recipient)
    return exact, loose - exact, strangers
