"""Finds what speaks against a rejection: an id, a word, a list or a code, at any depth of a body.

A rejection needs proof. A body that also speaks of an acceptance, or of a fault of a server, proves nothing.
A sentence such as "was not sent" or "must be created first" does not speak of an acceptance.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cpaas_provider.api.bounds import is_nothing

TIMEOUT_STATUSES = frozenset({408, 460, 499})
"""The service, or a proxy in front of it, stopped waiting. The service may have carried out the request."""

_CODE_NAMES = frozenset({"status", "code", "status code", "http status", "http code", "error code", "http status code"})
_STATUS_NAMES = ("status", "state")
_ID_NAMES = frozenset({"id", "ids", "sid", "uuid", "guid"})
_NO_ID = frozenset({"valid", "invalid", "paid", "unpaid", "void", "grid", "android"})
"""Words that only end as an id does."""
_IDS_OF_THE_REQUEST = frozenset({"request", "trace", "correlation", "span", "error", "sender", "template"})
"""What stands before the ``id`` of an exchange, or of a field of the request: nothing was made under these."""
_NAMES_OF_NAMES = frozenset({"field", "path", "loc", "param", "parameter", "pointer", "resource", "method"})
"""The values of these are names of fields or operations, such as ``scheduled_at``."""

_ACCEPTANCE = re.compile(
    r"\b(?:accepted|queued|enqueued|sent|submitted|scheduled|delivered|dispatched|processed|processing|created|"
    r"succe\w*|ok|okay|o\.k\.?|partial\w*|buffered|relayed|forwarded|transmitted|done|completed|acknowledged|pushed|"
    r"handed over|en ?route|in (?:progress|flight|transit)|(?:request|message|messages|sms|email|been) received|"
    r"pending(?! (?:approval|review|verification|registration|activation)))\b"
    r"(?! (?:values?|formats?|types?|ranges?|characters?|countries|networks?|lengths?|time|ms|seconds|duration)\b)"
)
_DENIAL_BEFORE = re.compile(
    r"(?:(?:\b(?:not|never|no|none|nothing|cannot|neither|nor|without|unable|fail|fails|failed|failure|zero|0)|"
    r"n['\u2019]t)(?: (?:to|be|been|could|can|have|has|had|was|were|is|are|being|get|the|a|any|your|this|these|"
    r"messages?|sms|emails?|requests?|recipients?|numbers?|batch|of|that|it|successfully|\d{1,9})){0,6}"
    r"|\b(?:must|needs? to|ha(?:s|ve) to|required to|can only|may only)(?: only)?(?: be)?) \Z"
)
_DENIAL_AFTER = re.compile(r"[\"']? ?[:=] ?[\"']?(?:false|no|none|null|0)\b")
_DENIED_WITHIN = 100
"""How many characters before a word are searched for a denial."""
_PART = re.compile(r"\b(\d{1,9}) of (?:the |your |these )?(\d{1,9}|messages|recipients|numbers|sms|emails)\b")
"""Says how many of the messages failed. The others may have been sent."""
_SENDING = re.compile(r"\b(?:send|sent|sending|deliver\w*|dispatch\w*|submit\w*|queued?)\b")
_REFUSING_STATUS = re.compile(
    r"\b(?:bad|invalid|errors?|err|fail\w*|fatal|reject\w*|refus\w*|den(?:y|ied)|declined|not?|nok|ko|un(?!known)\w+|forbidden|"
    r"missing|required|conflict|exceeded|exhausted|exceeds|too|insufficient|expired|block\w*|suspend\w*|disab\w*|gone|"
    r"malformed|wrong|illegal|violat\w*|abort\w*|out of)\b"
)
"""A status that speaks of a refusal. Every other word may speak of an acceptance."""
_FAULT = re.compile(
    r"\b(?:timed? ?out|etimedout|econn\w+|deadline exceeded|socket hang up|broken pipe|upstream|gateway|backend|"
    r"unavailable|overload\w*|unhandled|uncaught|traceback|panic|crash\w*|deadlock|internal server|"
    r"service (?:is )?down|(?:internal|server|unexpected|unknown|database|network|connection|connect) error|"
    r"connection (?:was )?(?:reset|refused|lost|closed|aborted)|e5\d\d|"
    r"(?:http|status|code|error|err)[ :/#.]{0,3}(?:1[. ][01] )?5\d\d|"
    r"5\d\d (?:internal|server|service|bad|not implemented))\b"
)
_NEW_WORD = re.compile(r"(?<=[a-z])(?=[A-Z])")
_SEPARATORS = re.compile(r"[\s_\-]+")
_MARKUP = re.compile(r"<[^<>]*>")
_QUOTED_ID = re.compile(r"""["']([\w\-]{0,40}id)["']\s{0,9}:\s{0,9}["']?\w""", re.IGNORECASE)


class Pairs(tuple[tuple[str, Any], ...]):
    """The fields of a JSON object, also those that it has twice. For ``object_pairs_hook``."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Statements:
    """What a body speaks of.

    :param acceptance: whether anything in it says that the service may have accepted the request
    :param fault: whether anything in it says that the service, or a server in front of it, failed
    """

    acceptance: bool = False
    fault: bool = False


NO_STATEMENTS = Statements()


def find_statements(body: Any, fields: Mapping[str, Any]) -> Statements:
    """Return what a JSON value speaks of, with its objects as ``Pairs``.

    :param fields: the fields of the request. A response may repeat them, which proves nothing
    """
    acceptance = fault = False
    pending: list[tuple[str, bool, Any]] = [("", False, body)]
    is_top = True
    while pending:
        name, speaks, value = pending.pop()
        if isinstance(value, Pairs):
            names = [(as_words(name), inner) for name, inner in value]
            pending += [(name, speaks or _is_id(name) or _has_acceptance(name), inner) for name, inner in names]
            if is_top and ("status", 200) in names:
                # The contract shows 200 together with a failure (INTERFACE.md section 7).
                pending.remove(("status", False, 200))
        elif isinstance(value, list):
            pending += [(name, speaks, item) for item in value]
        elif not is_nothing(value) and not _is_repeated(name, value, fields):
            acceptance = acceptance or speaks or _states_acceptance(name, value)
            fault = fault or _states_fault(name, value)
        is_top = False
    return Statements(acceptance, fault)


def find_statements_in_text(text: str) -> Statements:
    """Return what a body speaks of that is no JSON, such as a page of a proxy."""
    words = as_words(_MARKUP.sub(" ", text))
    return Statements(_quotes_id(text) or _has_acceptance(words), _FAULT.search(words) is not None)


def speaks_of_acceptance(text: str) -> bool:
    """Tell whether a sentence says that something was accepted."""
    return _has_acceptance(as_words(text))


def is_empty(value: Any) -> bool:
    """Tell whether a value says nothing, such as ``null``, ``false`` or an object whose values say nothing."""
    return all(is_nothing(leaf) for _, leaf in leaves(value))


def named_code(value: Any) -> int:
    """Return an HTTP status as a number, also from text of digits; 0 if there is none."""
    if isinstance(value, str) and value.strip().isascii() and value.strip().isdigit() and len(value) <= len("  503  "):
        return int(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e9 or value != int(value):
        return 0
    return int(value)


def leaves(body: Any) -> Iterator[tuple[str, Any]]:
    """Yield every value of a body that is no object and no list, with the name of its field."""
    pending: list[tuple[str, Any]] = [("", body)]
    while pending:
        name, value = pending.pop()
        if isinstance(value, Mapping):
            pending += value.items()
        elif isinstance(value, list):
            pending += [(name, part) for part in value]
        else:
            yield name, value


def as_words(text: str) -> str:
    """Return a name or a sentence as words in lower case, with a blank between them."""
    return _SEPARATORS.sub(" ", _NEW_WORD.sub(" ", text)).strip().lower()


def _has_acceptance(words: str) -> bool:
    if any(int(part[1]) > 0 and part[1] != part[2] for part in _PART.finditer(words)) and _SENDING.search(words):
        return True
    return any(
        not _DENIAL_BEFORE.search(words, max(0, match.start() - _DENIED_WITHIN), match.start())
        and not _DENIAL_AFTER.match(words, match.end())
        for match in _ACCEPTANCE.finditer(words)
    )


def _quotes_id(text: str) -> bool:
    """Tell whether a text holds JSON with an id."""
    return any(_is_id(as_words(match[1])) for match in _QUOTED_ID.finditer(text))


def _states_acceptance(name: str, value: Any) -> bool:
    if name in _CODE_NAMES and 200 <= named_code(value) < 300:
        return True
    if not isinstance(value, str) or name in _NAMES_OF_NAMES:
        return False
    words = as_words(value)
    if name.endswith(_STATUS_NAMES) and not value.strip().isdigit() and not _REFUSING_STATUS.search(words):
        return True
    return _has_acceptance(words) or _quotes_id(value)


def _states_fault(name: str, value: Any) -> bool:
    if name in _CODE_NAMES and (500 <= (code := named_code(value)) < 600 or code in TIMEOUT_STATUSES):
        return True
    return isinstance(value, str) and name not in _NAMES_OF_NAMES and _FAULT.search(as_words(value)) is not None


def _is_id(name: str) -> bool:
    """Tell whether a field is named as an id of something that the service made."""
    before, _, last = name.rpartition(" ")
    if last not in _ID_NAMES:
        before, is_joined = last.removesuffix("s").removesuffix("id"), last.removesuffix("s").endswith("id")
        if not is_joined or last in _NO_ID:
            return False
    return before.rpartition(" ")[2] not in _IDS_OF_THE_REQUEST


def _is_repeated(name: str, value: Any, fields: Mapping[str, Any]) -> bool:
    return str(fields.get(name.replace(" ", "_"), "")) == str(value)
