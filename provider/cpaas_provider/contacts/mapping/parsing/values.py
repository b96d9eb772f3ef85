"""Texts that can be sent as they are."""

from __future__ import annotations

import re
import unicodedata

from cpaas_provider.api.text import strip_invisible
from cpaas_provider.api.values import MAX_CELL_BYTES

MAX_LEVELS = 20
"""The most levels that a value may be nested."""
LARGEST_EXACT_INTEGER = 2**53 - 1
"""Above it not every integer is a double, and so not safe as a JSON number (RFC 8259, section 6)."""

# Line breaks and tabs belong to text; the other control characters are damage, such as a wrong encoding.
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_CONTROL_OR_BREAK = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_SURROGATE = re.compile(r"[\ud800-\udfff]")


def checked_text(text: str, *, one_line: bool = False) -> str:
    """Return a text that can be sent as it is.

    :param one_line: refuse line breaks and tabs too
    :raises ValueError: when it holds control characters or half a character, or is too long
    """
    if text.isprintable() and len(text) * 4 <= MAX_CELL_BYTES:
        return text
    found = (_CONTROL_OR_BREAK if one_line else _CONTROL).search(text)
    if found:
        raise ValueError("contains NUL characters" if "\0" in text else "contains control characters")
    if _SURROGATE.search(text):
        raise ValueError("holds half a character (a lone surrogate)")
    if len(text) > MAX_CELL_BYTES or len(text.encode()) > MAX_CELL_BYTES:
        raise ValueError(f"is longer than {MAX_CELL_BYTES} bytes")
    return text


def ascii_digits(text: str) -> str:
    """Return a text with the decimal digits of any script, such as Arabic or full-width ones, as 0 to 9.

    Blanks around it and marks without width are left out: Windows writes the latter into dates and numbers.
    """
    if text.isascii():
        return text.strip()
    visible = strip_invisible(text.strip())
    return "".join(str(unicodedata.decimal(letter)) if letter.isdecimal() else letter for letter in visible)
