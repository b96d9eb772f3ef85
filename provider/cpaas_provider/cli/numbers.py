"""Numbers as arguments of commands."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Callable

MOST_ROWS = 1_000_000_000
MOST_DAYS = 36_500
MOST_PORT = 65_535


def whole_number(most: int, least: int = 1) -> Callable[[str], int]:
    """Return a function that reads a whole number within bounds, as argparse calls it."""

    def read(text: str) -> int:
        digits = text.strip()
        # Beyond so many digits it is too large, and slow to read.
        value = int(digits) if digits.isascii() and digits.isdigit() and len(digits) <= 20 else -1
        if not least <= value <= most:
            raise ArgumentTypeError(f"must be a whole number from {least} to {most:,}")
        return value

    return read
