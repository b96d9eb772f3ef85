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
_MOST_READ = 4_000
_TAIL = 300
"""Where only the beginning of a text is read, this many characters at its end are hidden: a value may be cut there."""
_SHORTEST_SECRET = 3
_SHORTEST_PIECE = 10
_SHORTEST_NUMBER = 7
"""The fewest digits that are hidden although they belong to no private value."""
_LAST_DIGITS = 9
"""The digits at the end of a number by which it is known."""
_FIGURE = re.compile(rf"\+?\d(?:{SEPARATORS}\d)*")
_DIGITS = re.compile(r"\d(?:[^0-9A-Za-z]{0,6}\d)*")
"""Digits with anything but letters between them. Only known ones are hidden."""
_MOMENT = re.compile(
    r"((?<!\d)[12]\d{3}-[01]\d-[0-3]\d(?:[T ][0-2]\d:[0-5]\d(?::[0-5]\d(?:\.\d{1,6})?)?)?(?!\d)"
    r"|(?<![\d:])[0-2]\d:[0-5]\d:[0-5]\d(?![\d:]))"
)
_NO_DIGIT = re.compile(r"\D+")
_ADDRESS_PART = r"[^\s@,;:<>\"()\[\]]"
# Matches only at the start of a word. Tried at each letter, a long word would take quadratic time.
_ADDRESS = re.compile(f"(?<!{_ADDRESS_PART}){_ADDRESS_PART}+(?:@|%40|=40|&#64;){_ADDRESS_PART}+")
# Terminals that show a log or the output of a command obey some of them.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_HIDDEN = "***"
_KNOWN_WORDS = frozenset(
    {"SENT", "VERIFIED", "EXPIRED", "FAILED", "REVOKED", "DELETED"}
    | {"pending", "sent", "failed", "error", "success", "duplicate"}
    | {"Airtel", "MTN", "Glo", "9mobile", "NTEL"}
    | {"TEXT", "NUMBER", "DATE", "PHONE NUMBER", "EMAIL", "URL", "SELECT", "MULTI SELECT"}
)
"""Words that nearly all answers have. They are no secret, and to compare them with a large request would take long."""
_ENCODING = re.compile(r"(?:GSM|UCS|UTF|UNICODE|ASCII)(?:[-_ ]?\d{1,2})?(?:[-_ ]?BIT)?", re.IGNORECASE)
"""The encoding of an SMS, which each answer to a send has. The contract does not say how it is written."""
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
    blanks. Dates and times of day stay.

    :param private: the values of the request, and the API key
    :param longest: the most characters of the result
    :param shortest_number: the fewest digits that are hidden although no private value has them
    """
    is_cut = len(text) > _MOST_READ
    text = _one_line(text[:_MOST_READ])
    values = {value for value in map(_one_line, private) if len(value) >= _SHORTEST_SECRET}
    text = _without_values(text, values, _TAIL if is_cut else 0)
    text = _without_codes(text, values)
    # The pattern has one group, so every second part is a moment.
    parts = _MOMENT.split(text)
    for index in range(0, len(parts), 2):
        parts[index] = _without_numbers(parts[index], shortest_number)
    text = _ADDRESS.sub(_HIDDEN, "".join(parts))
    return text if len(text) <= longest else text[: longest - 1] + "…"


def service_word(text: str, private: Iterable[str], *, shortest_number: int = _SHORTEST_NUMBER) -> str:
    """Return a status or a name that the service gives, as it may be logged, stored and returned.

    Every such text passes through here: one line of ``MAX_WORD`` characters at most, redacted as an error's text is.
    """
    if text in _KNOWN_WORDS or _ENCODING.fullmatch(text):
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


def _without_values(text: str, values: Collection[str], tail: int) -> str:
    """Hide values, and parts of them, because services often quote only the beginning of a text.

    :param tail: how many characters at the end of the text are hidden in any case
    """
    folded = _fold(text)
    if len(text) < _SHORTEST_PIECE:
        # No part of a longer value is hidden. Most words of the service are short, and the values of a bulk are many.
        longest = len(text.casefold())
        values = [value for value in values if len(value) <= longest]
    values = {_fold(value) for value in values}
    if _differs_in_case_alone(text, folded, values):
        return _HIDDEN
    hidden = bytearray(len(text))
    positions: dict[str, list[int]] = {}
    for start in range(len(text) - _SHORTEST_PIECE + 1):
        positions.setdefault(folded[start : start + _SHORTEST_PIECE], []).append(start)
    for value in values:
        start = folded.find(value) if len(value) <= _SHORTEST_PIECE else -1
        while start >= 0:
            hidden[start : start + len(value)] = b"\1" * len(value)
            start = folded.find(value, start + len(value))
        for start in range(len(value) - _SHORTEST_PIECE + 1):
            # Each piece is hidden once, however often the values have it.
            for position in positions.pop(value[start : start + _SHORTEST_PIECE], ()):
                hidden[position : position + _SHORTEST_PIECE] = b"\1" * _SHORTEST_PIECE
    if tail:
        hidden[-tail:] = b"\1" * len(hidden[-tail:])
    runs = itertools.groupby(zip(text, hidden, strict=True), key=lambda pair: pair[1])
    return "".join(_HIDDEN if is_hidden else "".join(letter for letter, _ in run) for is_hidden, run in runs)


def _differs_in_case_alone(text: str, folded: str, values: Collection[str]) -> bool:
    """Return whether a text has a value whose letters change in number with their case, such as ß."""
    text = text.casefold()
    return any(value not in folded and value.casefold() in text for value in values if not value.isascii())


def _without_codes(text: str, values: Iterable[str]) -> str:
    """Hide the digits of known codes and numbers, with anything but letters between them."""
    if len(_NO_DIGIT.sub("", text)) < _SHORTEST_SECRET:
        return text
    codes = {code for code in map(_digits_of_code, values) if len(code) >= _SHORTEST_SECRET}
    # A number may be written without its country code.
    codes |= {code[-_LAST_DIGITS:] for code in codes}
    lengths = {len(code) for code in codes}

    def hide(run: re.Match[str]) -> str:
        digits = _NO_DIGIT.sub("", run[0])
        windows = (digits[start : start + size] for size in lengths for start in range(len(digits) - size + 1))
        return _HIDDEN if any(window in codes for window in windows) else run[0]

    return _DIGITS.sub(hide, text) if codes else text


def _without_numbers(text: str, shortest: int) -> str:
    """Hide all numbers of as many digits or more."""
    return _FIGURE.sub(lambda figure: _HIDDEN if len(_NO_DIGIT.sub("", figure[0])) >= shortest else figure[0], text)


def _digits_of_code(value: str) -> str:
    """Return the digits of a number or a code; empty for any other text."""
    return _NO_DIGIT.sub("", value) if _FIGURE.fullmatch(value) else ""


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
