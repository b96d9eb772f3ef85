"""Keeps numbers, addresses, codes, bodies and keys out of words that may reach a log."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

_LONGEST = 300
_SHORTEST_SECRET = 3
_NUMBER = re.compile(r"\+?\d(?:[\s().-]?\d){6,}")
_ADDRESS = re.compile(r"[^\s@,;:<>\"'()\[\]]+@[^\s@,;:<>\"'()\[\]]+")
_HIDDEN = "***"
_PUBLIC_FIELDS = frozenset({"channel", "network", "id", "row_id", "template_id", "is_trackable"})


def scrub(words: str, private: Iterable[str]) -> str:
    """Return the service's words without what the request held, without numbers and addresses, and not too long."""
    for value in sorted({value for value in private if len(value) >= _SHORTEST_SECRET}, key=len, reverse=True):
        words = words.replace(value, _HIDDEN)
    words = _ADDRESS.sub(_HIDDEN, _NUMBER.sub(_HIDDEN, words))
    words = " ".join(words.split())
    return words if len(words) <= _LONGEST else words[: _LONGEST - 1] + "…"


def private_values(fields: Mapping[str, Any]) -> Iterator[str]:
    """Yield every text and number of a request's fields that somebody else must not read."""
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
