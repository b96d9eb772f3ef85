"""Finds what speaks against a rejection: an id, a word, a list or a code, at any depth of a body.

A rejection needs proof. A body that also speaks of an acceptance, or of a fault of a server, proves nothing.
"""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from msgspec import Struct

from cpaas_provider.api.bounds import is_nothing
from cpaas_provider.api.responses.values import Pairs, is_empty, leaves, named_code
from cpaas_provider.api.responses.wording import (
    as_words,
    has_acceptance,
    has_fault,
    has_refusal,
    is_refusing_status,
    mentions_acceptance,
)

TIMEOUT_STATUSES = frozenset({408, 460, 499})
"""The service, or a proxy in front of it, stopped waiting. The service may have carried out the request."""

_CODE_NAME = re.compile(
    r"(?:(?:http|response|result|return|error|err|server) ?)*(?:status)? ?(?:code|status)|http|result|error"
)
"""The names of a status or a code. A country code is none."""
_ID_WORD = re.compile(r"(?:s|u|gu)?ids?\d*|identifier")
_NO_ID = frozenset({"valid", "invalid", "paid", "unpaid", "void", "grid", "android"})
"""Words that only end as an id does."""
_IDS_OF_OTHERS = frozenset(
    {
        *("request", "trace", "fbtrace", "correlation", "span", "session", "ray", "log", "host", "support", "incident"),
        *("account", "user", "customer", "client", "api", "app", "application", "project", "tenant", "company"),
        *("organization", "organisation", "error", "sender", "template", "invalid", "is"),
    }
)
"""What stands before the ``id`` of an exchange, of its caller, or of a field: nothing was made under these."""
_NAMES_OF_NAMES = frozenset({"field", "path", "loc", "param", "parameter", "pointer", "resource", "method"})
"""The values of these are names of fields or operations, such as ``scheduled_at``."""
_STATUS_PHRASES = frozenset(as_words(status.phrase) for status in HTTPStatus if status >= HTTPStatus.BAD_REQUEST)
"""The names of the statuses of an error, which some services write where others write an id."""
_GOOD_NAME = re.compile(r"\b(?:valid|good|passed|reached)\b")

_PAGE = re.compile(r"<!doctype html|<html\b", re.IGNORECASE)
_SCRIPT = re.compile(r"<(?:script|style)\b", re.IGNORECASE)
_SCRIPT_END = re.compile(r"</(?:script|style)\b", re.IGNORECASE)
_MARKUP = re.compile(r"<[^<>]*>")
_PAIR = re.compile(
    # JSON within a text, a form, an attribute, a line of YAML: a name of up to two words, and its value.
    r"(?<![\w\-])[\"']?((?:[A-Za-z][\w\-]{0,40} )?[\w\-]{1,60})[\"']?\s{0,9}[:=]\s{0,9}"
    r"[\"']?([\w+][^\"'<>&,;\n\r]{0,100})"
)
_TAG = re.compile(r"<([\w\-:.]{1,60})(?:\s[^<>]{0,100})?>\s{0,20}([^<>\s][^<>]{0,100})</")


class Statements(Struct, frozen=True):
    """What a body speaks of.

    :param acceptance: whether anything in it says that the service may have accepted the request
    :param fault: whether anything in it says that the service, or a server in front of it, failed
    """

    acceptance: bool = False
    fault: bool = False

    def __or__(self, other: Statements) -> Statements:
        return Statements(self.acceptance or other.acceptance, self.fault or other.fault)


NO_STATEMENTS = Statements()


def find_statements(body: Any, fields: Mapping[str, Any]) -> Statements:
    """Return what a JSON value speaks of, with its objects as ``Pairs``.

    :param fields: the fields of the request. A response may repeat them, which proves nothing
    """
    request = _Request(fields)
    found = NO_STATEMENTS
    pending: list[tuple[str, bool, Any]] = [("", False, body)]
    is_top = True
    while pending:
        name, speaks, value = pending.pop()
        if isinstance(value, Pairs):
            names = [(as_words(name), inner) for name, inner in value]
            pending += [(name, speaks or _is_id(name) or has_acceptance(name), inner) for name, inner in names]
            if is_top and ("status", 200) in names:
                # The contract shows 200 together with a failure (contract.md 7).
                pending.remove(("status", False, 200))
        elif isinstance(value, list):
            pending += [(name, speaks, item) for item in value]
        if isinstance(value, (Pairs, list)):
            found |= request.results(name, value)
        elif not is_nothing(value) and not request.has(name, value):
            found |= _of_leaf(name, request.without_texts(value), speaks)
        is_top = False
    return found


def find_statements_in_text(text: str) -> Statements:
    """Return what a body speaks of that is no JSON, such as XML, a form or a page of a proxy."""
    is_page = _PAGE.search(text) is not None
    if is_page:
        first, *others = _SCRIPT.split(text)
        text = " ".join([first, *(_SCRIPT_END.split(other, maxsplit=1)[-1] for other in others)])
    text = html.unescape(text)
    bare = _MARKUP.sub(" ", text)
    words = as_words(bare)
    # The attributes of a page are its layout.
    pairs = [*_PAIR.findall(bare if is_page else text), *_TAG.findall(text)]
    # Of JSON that is cut, the rest is unknown: a count of 0 at its beginning denies nothing.
    is_cut = text.lstrip().startswith(("{", "["))
    found = Statements(has_acceptance(words) or (is_cut and mentions_acceptance(words)), has_fault(words))
    for name, value in ((as_words(name), value) for name, value in pairs):
        if not is_nothing(value):
            found |= Statements(_is_id(name) and not _is_status_phrase(value), _names_fault(name, value))
            found |= Statements(name.endswith(("status", "state")) and has_acceptance(as_words(value)))
    return found


class _Request:
    """The values of a request, as a response may repeat them."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        listed = fields.get("recipients")
        self._recipients = frozenset(listed.lower().split(",")) if isinstance(listed, str) else frozenset()
        self._values = {(as_words(name), str(value)) for name, value in leaves(fields)}
        self._texts = {value for _, value in self._values if " " in value.strip() and _states_anything(value)}

    def has(self, name: str, value: Any) -> bool:
        """Tell whether the request has a field of this name and value."""
        return (name, str(value)) in self._values

    def without_texts(self, value: Any) -> Any:
        """Return a value without the texts of the request that it quotes and that would speak of something."""
        if isinstance(value, str):
            for text in self._texts:
                value = value.replace(text, " ")
        return value

    def results(self, name: str, value: Pairs | list[Any]) -> Statements:
        """Return what an object or a list says about single recipients of a request that has several.

        A result for one of them that is no refusal speaks of an acceptance.
        """
        if len(self._recipients) < 2 or has_refusal(name):
            return NO_STATEMENTS
        if isinstance(value, Pairs):
            by_recipient = ((key, inner) for key, inner in value if self._is_recipient(key))
            return Statements(any(not is_empty(inner) and not _refuses(inner) for _, inner in by_recipient))
        is_good = _GOOD_NAME.search(name) is not None
        return Statements(
            any(
                self._is_recipient(item)
                if is_good
                else isinstance(item, Pairs)
                and any(self._is_recipient(inner) for _, inner in item)
                and not (_refuses(item) or self._repeats(item))
                for item in value
            )
        )

    def _repeats(self, item: Pairs) -> bool:
        return all(self.has(as_words(name), value) for name, value in leaves(item))

    def _is_recipient(self, value: Any) -> bool:
        return isinstance(value, (str, int)) and str(value).lower().removeprefix("+") in self._recipients


def _states_anything(text: str) -> bool:
    words = as_words(text)
    return has_acceptance(words) or has_fault(words)


def _refuses(value: Any) -> bool:
    """Tell whether a value says anything of a refusal, such as a word, ``false`` or the code of an error."""
    if isinstance(value, Pairs):
        return any((has_refusal(as_words(name)) and not is_empty(inner)) or _refuses(inner) for name, inner in value)
    if isinstance(value, list):
        return any(map(_refuses, value))
    if value is False or 400 <= named_code(value) < 500:
        return True
    return isinstance(value, str) and has_refusal(as_words(value))


def _of_leaf(name: str, value: Any, speaks: bool) -> Statements:
    accepts = speaks and not (isinstance(value, str) and _is_status_phrase(value))
    found = Statements(accepts or _names_acceptance(name, value), _names_fault(name, value))
    if not isinstance(value, str) or name in _NAMES_OF_NAMES:
        return found
    words = as_words(value)
    found |= Statements(has_acceptance(words), has_fault(words))
    if name.endswith(("status", "state")) and not named_code(value):
        found |= Statements(not is_refusing_status(words) and not _is_status_phrase(value))
    # Some servers quote the response of another one.
    return found | find_statements_in_text(value) if "{" in value or "</" in value else found


def _names_acceptance(name: str, value: Any) -> bool:
    return bool(_CODE_NAME.fullmatch(name)) and 200 <= named_code(value) < 300


def _names_fault(name: str, value: Any) -> bool:
    code = named_code(value)
    is_fault = 500 <= code < 600
    if name in ("message", "type", "reason"):
        return is_fault
    return (is_fault or code in TIMEOUT_STATUSES) and _CODE_NAME.fullmatch(name) is not None


def _is_status_phrase(value: str) -> bool:
    return as_words(value) in _STATUS_PHRASES


def _is_id(name: str) -> bool:
    """Tell whether a field is named as an id of something that the service made."""
    words: Sequence[str] = name.split(" ")
    if words[0] == "id" and len(words) > 1:
        return words[1] not in _IDS_OF_OTHERS
    before, last = words[-2] if len(words) > 1 else "", words[-1]
    if not _ID_WORD.fullmatch(last):
        before, is_joined = last.removesuffix("s").removesuffix("id"), last.removesuffix("s").endswith("id")
        if not is_joined or last in _NO_ID:
            return False
    return before not in _IDS_OF_OTHERS
