"""Removes numbers, addresses, codes, bodies and keys from texts that may reach a log."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from cpaas_provider.api.recipients.notation import SEPARATORS, with_ascii_digits

MAX_WORD = 50
"""The most characters of a status or a name that the service gives."""

_LONGEST = 300
_MOST_READ = 2_000
_SHORTEST_SECRET = 3
_SHORTEST_PIECE = 10
_SHORTEST_NUMBER = 7
"""The fewest digits that are hidden, whoever's number they are."""
_FIGURE = re.compile(rf"\+?\d(?:{SEPARATORS}\d)*")
_NO_DIGIT = re.compile(r"\D+")
_ADDRESS_PART = r"[^\s@,;:<>\"()\[\]]"
# Matches only at the start of a word. Tried at each letter, a long word would take quadratic time.
_ADDRESS = re.compile(f"(?<!{_ADDRESS_PART}){_ADDRESS_PART}+@{_ADDRESS_PART}+")
# Terminals that show a log or the output of a command obey some of them.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_HIDDEN = "***"
_KNOWN_WORDS = frozenset(
    {"SENT", "VERIFIED", "EXPIRED", "FAILED", "REVOKED", "DELETED"}
    | {"pending", "sent", "failed", "error", "success", "duplicate"}
    | {"Airtel", "MTN", "Glo", "9mobile", "NTEL", "GSM-7", "GSM7", "UCS-2", "UCS2"}
)
"""Words that nearly all answers have. They are no secret, and to compare them with a large request would take long."""
_PUBLIC_FIELDS = frozenset({"channel", "network", "id", "row_id", "template_id", "is_trackable"})


class RequestSecrets:
    """The values of one request that must not reach a log. A large request has thousands, and few responses need them.

    :param api_key: the key that the request was made with
    :param fields: its fields, as on the wire
    """

    def __init__(self, api_key: str, fields: Mapping[str, Any]) -> None:
        self._api_key = api_key
        self._fields = fields

    def __iter__(self) -> Iterator[str]:
        yield self._api_key
        yield from sensitive_values(self._fields)


def redact(
    text: str, private: Iterable[str], *, longest: int = _LONGEST, shortest_number: int = _SHORTEST_NUMBER
) -> str:
    """Return a text of the service in one line, shortened, without private values, numbers and addresses.

    Private values are found in upper and lower case, and their digits with any separators. Control characters become
    blanks.

    :param private: the values of the request, and the API key
    :param longest: the most characters of the result
    :param shortest_number: the fewest digits that are hidden although no private value has them
    """
    text = _one_line(text)
    if len(text) > _MOST_READ:
        # Cut between words: the code below would not recognise a part of a value.
        text = text[:_MOST_READ].rpartition(" ")[0]
    values = {value for value in map(_one_line, private) if len(value) >= _SHORTEST_SECRET}
    text = _without_values(text, {_fold(value) for value in values})
    codes = {code for code in map(_digits_of_code, values) if len(code) >= _SHORTEST_SECRET}

    def hide(figure: re.Match[str]) -> str:
        digits = _NO_DIGIT.sub("", figure[0])
        is_private = len(digits) >= shortest_number or not codes.isdisjoint(_parts(digits))
        return _HIDDEN if is_private else figure[0]

    text = _ADDRESS.sub(_HIDDEN, _FIGURE.sub(hide, text))
    return text if len(text) <= longest else text[: longest - 1] + "…"


def service_word(text: str, private: Iterable[str], *, shortest_number: int = _SHORTEST_NUMBER) -> str:
    """Return a status or a name that the service gives, as it may be logged, stored and returned.

    Every such text passes through here: one line of ``MAX_WORD`` characters at most, redacted as an error's text is.
    """
    if text in _KNOWN_WORDS:
        return text
    return redact(text, private, longest=MAX_WORD, shortest_number=shortest_number)


def describe_columns(names: Collection[str]) -> str:
    """Return a sentence on the columns of a table. In a file without a header, the names may be recipients."""
    if any(redact(name, ()) != name for name in names):
        return "Its first line holds a number or an address, so it seems to have no header"
    return f"It has: {', '.join(names) or 'none'}"


def _one_line(text: str) -> str:
    text = text if text.isprintable() else _CONTROL.sub(" ", text)
    return with_ascii_digits(" ".join(text.split()))


def _fold(text: str) -> str:
    """Return a text in lower case, with as many characters as before."""
    lower = text.lower()
    if len(lower) == len(text):
        return lower
    return "".join(letter.lower() if len(letter.lower()) == 1 else letter for letter in text)


def _without_values(text: str, values: Collection[str]) -> str:
    """Hide values, and parts of them, because services often quote only the beginning of a text.

    :param values: in lower case
    """
    folded = _fold(text)
    hidden = bytearray(len(text))
    for value in values:
        start = folded.find(value)
        while start >= 0:
            hidden[start : start + len(value)] = b"\1" * len(value)
            start = folded.find(value, start + len(value))
    joined = "\n".join(values)
    for start in range(len(text) - _SHORTEST_PIECE + 1):
        if folded[start : start + _SHORTEST_PIECE] in joined:
            hidden[start : start + _SHORTEST_PIECE] = b"\1" * _SHORTEST_PIECE
    runs = itertools.groupby(zip(text, hidden, strict=True), key=lambda pair: pair[1])
    return "".join(_HIDDEN if is_hidden else "".join(letter for letter, _ in run) for is_hidden, run in runs)


def _digits_of_code(value: str) -> str:
    """Return the digits of a number or a code; empty for any other text."""
    return _NO_DIGIT.sub("", value) if _FIGURE.fullmatch(value.strip()) else ""


def _parts(digits: str) -> Iterator[str]:
    """Yield every part of a few digits that is long enough to be a private value."""
    for start in range(len(digits) - _SHORTEST_SECRET + 1):
        for end in range(start + _SHORTEST_SECRET, len(digits) + 1):
            yield digits[start:end]


def sensitive_values(fields: Mapping[str, Any]) -> Iterator[str]:
    """Yield every text and number in a request's fields that must not reach a log."""
    for name, value in fields.items():
        if name not in _PUBLIC_FIELDS:
            yield from _leaves(value)


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for part in value.values():
            yield from _leaves(part)
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from _leaves(part)
    elif isinstance(value, str):
        yield value
        if "," in value:
            yield from (part.strip() for part in value.split(","))
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield str(value)
