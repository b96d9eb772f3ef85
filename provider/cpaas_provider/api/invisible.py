"""Marks nobody sees, which come along when numbers and addresses are copied from chats, web pages and spreadsheets."""

from __future__ import annotations

# Directions of writing, their embeddings and isolates; zero width; joiners; the byte order mark; the soft hyphen.
_MARKS = dict.fromkeys(
    [0x00AD, 0x061C, 0x180E, *range(0x200B, 0x2010), *range(0x202A, 0x202F), *range(0x2060, 0x206A), 0xFEFF]
)


def without_marks(text: str) -> str:
    """Return a text without what has no width, and without blanks around it."""
    return text if text.isascii() else text.translate(_MARKS).strip()
