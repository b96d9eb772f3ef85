"""Numbers with what they count, for people."""

from __future__ import annotations


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """``1 duplicate``, ``2,000 duplicates``."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"
