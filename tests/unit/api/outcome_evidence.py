"""What in the body of a response speaks of acceptance, or of a fault of the server, read from PROMISES.md alone.

Nothing here is shared with the code it judges. Where the promises are silent, evidence is in doubt, and the oracle
allows each verdict that a careful reader may come to.
"""

from __future__ import annotations

import enum
import math
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

LONGEST_ID, TOO_LONG_ID = 128, 2_000
"""An id up to the first length means something; from the second on it does not. Between them it is in doubt."""


class Level(enum.IntEnum):
    """How sure it is that something is so."""

    NO, DOUBT, CLEAR = range(3)


@dataclass(frozen=True)
class Evidence:
    """What a body says besides an answer: ``limited`` is a status or code of 429, ``early`` one of 425."""

    acceptance: Level = Level.NO
    fault: Level = Level.NO
    limited: Level = Level.NO
    early: Level = Level.NO

    def __or__(self, other: Evidence) -> Evidence:
        return Evidence(*map(max, self._levels, other._levels))

    @property
    def level(self) -> Level:
        """How sure it is that the body is no proof of a rejection."""
        return max(self.acceptance, self.fault)

    def at_most_doubt(self) -> Evidence:
        return Evidence(*(min(level, Level.DOUBT) for level in self._levels))

    @property
    def _levels(self) -> tuple[Level, ...]:
        return self.acceptance, self.fault, self.limited, self.early


NOTHING = Evidence()
_DOUBT = Evidence(Level.DOUBT, Level.DOUBT)
_ACCEPTED = Evidence(Level.CLEAR)
_FAULT = Evidence(fault=Level.CLEAR)

_WORDS_FOR_NOTHING = {"null", "none", "undefined", "nan", "nil"}
_IDS_IN_DOUBT = {"n/a", "na", "false", "true", "void", "empty", "unknown", "infinity", "-infinity", "inf", "-inf"}

_ACCEPTANCE = {
    "accepted", "queued", "enqueued", "sent", "ok", "okay", "success", "successful", "successfully", "submitted",
    "processing", "processed", "delivered", "scheduled", "created", "dispatched",
}  # fmt: skip
_NEGATION = {
    "not", "no", "never", "cannot", "can", "unable", "failed", "fails", "failure", "without", "refused", "rejected",
    "invalid", "before", "until", "must", "nothing", "if",
}  # fmt: skip
_IN_OTHER_LANGUAGES = {"angenommen", "encolado", "aceptado", "accepte", "enviado", "gesendet", "inviato", "gonderildi"}
_FAULT_PHRASES = (
    "timed out", "gateway timeout", "gateway time out", "bad gateway", "internal error", "internal server error",
    "service unavailable", "upstream",
)  # fmt: skip
_FAULT_WORDS = {"timeout", "gateway", "unavailable", "overloaded", "crashed", "exception"}

_ID_KEYS = {"id", "messageid", "transactionid"}
_STATUS_KEYS = {"status", "code", "statuscode", "httpstatus", "errorcode"}
# Values of these say what a field is, not what the service did.
_NAMES = {"field", "type", "pointer", "path", "parameter"}
_HOLDERS_OF_ERRORS = {"", "errors", "error", "source", "extensions", "details", "detail", "loc", "path", "locations"}
_NOTES = {"warning", "warn", "note", "notice", "info", "information"}


def id_level(value: Any) -> Level:
    """Say whether a value is an id that means something."""
    if isinstance(value, bool) or value is None:
        return Level.NO
    if isinstance(value, int):
        return Level.NO if value <= 0 else Level.CLEAR if value < 10**30 else Level.DOUBT
    if isinstance(value, float):
        return Level.DOUBT if math.isfinite(value) and value > 0 else Level.NO
    return _text_id_level(value) if isinstance(value, str) else Level.NO


def _text_id_level(value: str) -> Level:
    if len(value) > TOO_LONG_ID:
        return Level.NO
    shown = "".join(char for char in value if unicodedata.category(char)[0] not in "CZ")
    if not shown or value.strip().casefold() in _WORDS_FOR_NOTHING:
        return Level.NO
    plain = re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._:-]*", value)
    odd = shown.casefold() in _IDS_IN_DOUBT | _WORDS_FOR_NOTHING or not shown.strip("0-.")
    return Level.DOUBT if odd or not plain or len(value) > LONGEST_ID else Level.CLEAR


def in_words(text: str) -> Evidence:
    """Return what a text says."""
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text)
    tokens = re.findall(r"[a-z]+", spaced.casefold())
    joined = " ".join(tokens)
    found = NOTHING
    if not text.isascii() or _IN_OTHER_LANGUAGES.intersection(tokens):
        found |= Evidence(Level.DOUBT)
    if _ACCEPTANCE.intersection(tokens):
        found |= Evidence(Level.DOUBT if _NEGATION.intersection(tokens) else Level.CLEAR)
    if any(re.search(rf"\b{phrase}\b", joined) for phrase in _FAULT_PHRASES) or joined == "timeout":
        found |= _FAULT
    elif _FAULT_WORDS.intersection(tokens) or re.search(r"(?<!\d)5\d\d(?!\d)", text):
        found |= Evidence(fault=Level.DOUBT)
    return found


def in_body(body: Any, fields: Mapping[str, Any]) -> Evidence:
    """Return what a value says, at any depth.

    :param fields: the fields of the request, which a response may repeat
    """
    return _in_value("", body, fields, top=True)


def in_text(text: str, fields: Mapping[str, Any]) -> Evidence:
    """Return what a body says that is no JSON, or only the beginning of it."""
    found = in_words(re.sub(r"<[^>]*>", " ", text))
    # What is cut off may hold an id, or the words may be those of a field's name.
    for value in re.findall(r'"(?:id|message_?id|transaction_?id)"\s*:\s*("[^"]+"|\d+)', text, re.IGNORECASE):
        found |= Evidence(id_level(int(value) if value.isdecimal() else value.strip('"')))
    if text.lstrip()[:1] in ("{", "[") and found.level is not Level.CLEAR:
        found |= _DOUBT
    return found


def _in_value(key: str, value: Any, fields: Mapping[str, Any], *, top: bool = False) -> Evidence:
    name = re.sub(r"[^a-z0-9]", "", key.casefold())
    if isinstance(value, dict):
        inside = [_in_value(part, member, fields, top=top and not key) for part, member in value.items()]
        return _join(inside) | _of_holder(name, value)
    if isinstance(value, list):
        return _join([_in_value("", member, fields) for member in value]) | _of_holder(name, value)
    if value is None:
        return NOTHING
    return _in_scalar(name, value, fields, top=top)


def _join(parts: list[Evidence]) -> Evidence:
    found = NOTHING
    for part in parts:
        found |= part
    return found


def _of_holder(name: str, value: Any) -> Evidence:
    """Return what a list or an object says by the name it has."""
    if not value:
        return Evidence(Level.DOUBT) if _speaks(name) else NOTHING
    if _speaks(name):
        return _ACCEPTED
    return NOTHING if name in _HOLDERS_OF_ERRORS else Evidence(Level.DOUBT)


def _speaks(name: str) -> bool:
    return name in _ACCEPTANCE or any(name.startswith(word) for word in ("accepted", "queued", "sent", "delivered"))


def _in_scalar(name: str, value: Any, fields: Mapping[str, Any], *, top: bool) -> Evidence:
    if name in _ID_KEYS:
        # These are no ids, and may speak of one that is not shown.
        is_odd = value is True or value == math.inf or (isinstance(value, str) and len(value) > TOO_LONG_ID)
        return Evidence(max(id_level(value), Level.DOUBT if is_odd else Level.NO))
    if _speaks(name):
        says_no = value is False or value == 0 or str(value).strip().casefold() in ("", "no", "false", "0")
        return Evidence(Level.DOUBT) if says_no else _ACCEPTED
    if isinstance(value, bool):
        return Evidence(Level.DOUBT) if value else NOTHING
    if name in _STATUS_KEYS and (code := as_code(value)) is not None:
        return _in_code(code, exact=not isinstance(value, float), documented=top and name == "status")
    if isinstance(value, str):
        # A word for a status need not be one of an error.
        return _in_text_of(name, value, fields) | Evidence(Level.DOUBT if name == "status" and not top else Level.NO)
    # A charge, a balance, a number of pages.
    return Evidence(Level.DOUBT)


def _in_text_of(name: str, value: str, fields: Mapping[str, Any]) -> Evidence:
    found = in_words(value)
    if name in _NAMES or value in map(str, fields.values()):
        found = found.at_most_doubt()
    if name.endswith("id") and (id_level(value) or len(value) > TOO_LONG_ID) and value not in map(str, fields.values()):
        found |= Evidence(Level.DOUBT)
    if name == "type" and value.strip().casefold() in _NOTES:
        found |= Evidence(Level.DOUBT)
    return found


def as_code(value: Any) -> int | None:
    """Read an HTTP status, as a number or as text; ``None`` for anything else."""
    if isinstance(value, str) and re.fullmatch(r"\s*\d{3}\s*", value, re.ASCII):
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return int(value) if value == int(value) and 100 <= value <= 599 else None


def _in_code(code: int, *, exact: bool, documented: bool) -> Evidence:
    if code >= 500:
        return Evidence(fault=Level.CLEAR if exact else Level.DOUBT)
    if code == 429:
        return Evidence(limited=Level.CLEAR if documented else Level.DOUBT)
    if code == 425:
        return Evidence(fault=Level.DOUBT, early=Level.DOUBT)
    if code in (408, 460, 499):
        return Evidence(fault=Level.DOUBT)
    # The error that the contract shows carries a status of 200.
    if code < 400 and not (documented and code == 200):
        return Evidence(Level.DOUBT)
    return NOTHING


def is_note(item: Mapping[str, Any]) -> bool:
    """Whether an item of ``errors`` calls itself something less than an error."""
    return str(item.get("type")).strip().casefold() in _NOTES
