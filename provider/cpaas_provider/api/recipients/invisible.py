"""Marks nobody sees, which come along when numbers and addresses are copied from chats, web pages and spreadsheets."""

from __future__ import annotations

# Directions of writing, their embeddings and isolates; zero width; joiners; the byte order mark; the soft hyphen.
_MARKS = dict.fromkeys(
    [0x00AD, 0x061C, 0x180E, *range(0x200B, 0x2010), *range(0x202A, 0x202F), *range(0x2060, 0x206A), 0xFEFF]
)
_BLANKS = " \t\n\r\x0b\x0c\x1c\x1d\x1e\x1f\x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)
_MARKS_AND_BLANKS = _BLANKS + "".join(map(chr, _MARKS))


def strip_invisible(text: str) -> str:
    """Return a text without what has no width, and without blanks around it."""
    return text if text.isascii() else text.translate(_MARKS).strip()


def trim_invisible(text: str) -> str:
    """Return a text without blanks and marks before and behind it; within it a joiner may be part of a letter."""
    return text.strip() if text.isascii() else text.strip(_MARKS_AND_BLANKS)
