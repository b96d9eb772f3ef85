"""Removes numbers, addresses, codes, bodies and keys from texts that may reach a log."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

_LONGEST = 300
_MOST_READ = 2_000
_SHORTEST_SECRET = 3
_SHORTEST_PIECE = 10
_NUMBER = re.compile(r"\+?\d(?:[\s().\-/]{0,2}\d){6,}")
_ADDRESS_PART = r"[^\s@,;:<>\"()\[\]]"
# Matches only at the start of a word. Tried at each letter, a long word would take quadratic time.
_ADDRESS = re.compile(f"(?<!{_ADDRESS_PART}){_ADDRESS_PART}+@{_ADDRESS_PART}+")
# Terminals that show a log or the output of a command obey some of them.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_HIDDEN = "***"
_PUBLIC_FIELDS = frozenset({"channel", "network", "id", "row_id", "template_id", "is_trackable"})


def redact(text: str, private: Iterable[str]) -> str:
    """Return a message of the service in one line, shortened, without private values, numbers and addresses.

    Control characters become blanks.

    :param private: the values of the request, and the API key
    """
    text = _one_line(text)
    if len(text) > _MOST_READ:
        # Cut between words: the code below would not recognise a part of a value.
        text = text[:_MOST_READ].rpartition(" ")[0]
    values = {value for value in map(_one_line, private) if len(value) >= _SHORTEST_SECRET}
    for value in sorted(values, key=len, reverse=True):
        text = text.replace(value, _HIDDEN)
    text = _without_pieces(text, "\n".join(values))
    text = _ADDRESS.sub(_HIDDEN, _NUMBER.sub(_HIDDEN, text))
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def describe_columns(names: Collection[str]) -> str:
    """Return a sentence on the columns of a table. In a file without a header, the names may be recipients."""
    if any(redact(name, ()) != name for name in names):
        return "Its first line holds a number or an address, so it seems to have no header"
    return f"It has: {', '.join(names) or 'none'}"


def _one_line(text: str) -> str:
    return " ".join((text if text.isprintable() else _CONTROL.sub(" ", text)).split())


def _without_pieces(text: str, private: str) -> str:
    """Hide parts of private values, because services often quote only the beginning of a text."""
    shown: list[str | None] = list(text)
    for start in range(len(text) - _SHORTEST_PIECE + 1):
        if text[start : start + _SHORTEST_PIECE] in private:
            shown[start : start + _SHORTEST_PIECE] = [None] * _SHORTEST_PIECE
    return "".join(
        _HIDDEN if hidden else "".join(filter(None, run))
        for hidden, run in itertools.groupby(shown, key=lambda letter: letter is None)
    )


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
