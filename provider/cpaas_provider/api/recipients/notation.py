"""The ways in which a text writes a number or a code. What hides numbers and what erases them share this list."""

from __future__ import annotations

import re
import unicodedata

from cpaas_provider.api.text import strip_invisible

_SIGNS = "().-/_\u00b7\u2010\u2011\u2012\u2013\u2014\u2015\u2212"
SEPARATORS = rf"(?:[\s{re.escape(_SIGNS)}]{{0,3}}|[,:])"
"""A regular expression for what may stand between two digits of one number.

A comma or a colon counts only by itself: with a blank, it separates two numbers.
"""


def spaced(digits: str) -> str:
    """Return a regular expression for digits with any separators."""
    return SEPARATORS.join(digits)


def spaced_in_bytes(digits: str) -> bytes:
    """Return the same for bytes in UTF-8, with blanks of ASCII only."""
    signs = b"|".join(re.escape(sign).encode() for sign in f" \t\r\n{_SIGNS}")
    return (b"(?:(?:" + signs + b"){0,3}|[,:])").join(digit.encode() for digit in digits)


def with_ascii_digits(text: str) -> str:
    """Return a text with digits of all scripts and letters of all widths in plain form, without invisible marks."""
    if text.isascii():
        return text
    text = strip_invisible(unicodedata.normalize("NFKC", text))
    return "".join(str(unicodedata.digit(character)) if character.isdecimal() else character for character in text)
