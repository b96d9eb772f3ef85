"""Keeps numbers, addresses, codes, bodies and keys out of words that may reach a log."""

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
_ADDRESS_PART = r"[^\s@,;:<>\"'()\[\]]"
# Begins only where a word begins: tried at each of its letters, a long word would take forever.
_ADDRESS = re.compile(f"(?<!{_ADDRESS_PART}){_ADDRESS_PART}+@{_ADDRESS_PART}+")
# A terminal that shows a log, or the output of a command, would obey some of them.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_HIDDEN = "***"
_PUBLIC_FIELDS = frozenset({"channel", "network", "id", "row_id", "template_id", "is_trackable"})


def redact(words: str, private: Iterable[str]) -> str:
    """Return the service's words without what the request held, without numbers and addresses, and not too long.

    Control characters become blanks.
    """
    words = _one_line(words)
    if len(words) > _MOST_READ:
        # Not in the middle of a word, which nothing below would know again.
        words = words[:_MOST_READ].rpartition(" ")[0]
    values = {value for value in map(_one_line, private) if len(value) >= _SHORTEST_SECRET}
    for value in sorted(values, key=len, reverse=True):
        words = words.replace(value, _HIDDEN)
    words = _without_pieces(words, "\n".join(values))
    words = _ADDRESS.sub(_HIDDEN, _NUMBER.sub(_HIDDEN, words))
    return words if len(words) <= _LONGEST else words[: _LONGEST - 1] + "…"


def describe_columns(names: Collection[str]) -> str:
    """Return which columns a table has. Where it has no header, its first recipient stands in the header's place."""
    if any(redact(name, ()) != name for name in names):
        return "Its first line holds a number or an address, so it seems to have no header"
    return f"It has: {', '.join(names) or 'none'}"


def _one_line(words: str) -> str:
    return " ".join((words if words.isprintable() else _CONTROL.sub(" ", words)).split())


def _without_pieces(words: str, private: str) -> str:
    """Hide whatever is quoted in part: services like to cut a text they complain about."""
    shown: list[str | None] = list(words)
    for start in range(len(words) - _SHORTEST_PIECE + 1):
        if words[start : start + _SHORTEST_PIECE] in private:
            shown[start : start + _SHORTEST_PIECE] = [None] * _SHORTEST_PIECE
    return "".join(
        _HIDDEN if hidden else "".join(filter(None, run))
        for hidden, run in itertools.groupby(shown, key=lambda letter: letter is None)
    )


def sensitive_values(fields: Mapping[str, Any]) -> Iterator[str]:
    """Yield every text and number of a request's fields that others must not read."""
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
