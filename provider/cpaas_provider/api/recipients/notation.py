"""The ways in which a text writes a number or a code. What hides numbers and what erases them share this list."""

from __future__ import annotations

import re
import unicodedata

from cpaas_provider.api.text import strip_invisible

SIGNS = "().-/_\u00b7\u2010\u2011\u2012\u2013\u2014\u2015\u2212\u30fc\uff70"
"""What may stand between the digits of a number. The last two are Japanese, and typed in place of a hyphen."""
SEPARATORS = rf"(?:[\s{re.escape(SIGNS)}]{{0,5}}|[,:])"
"""A regular expression for what may stand between two digits of one number.

A comma or a colon counts only by itself: with a blank, it separates two numbers.
"""
SEPARATORS_OF_KNOWN = rf"(?:[\s{re.escape(SIGNS)}]{{0,5}}|\s?[,:+]\s?)"
"""The same between digits that are given, so that no other number is meant."""

_PIECE = 500
# Keycaps, and marks that choose how the character before them looks.
_DECORATIONS = dict.fromkeys([0x20E3, 0x034F, *range(0xFE00, 0xFE10), *range(0xE0000, 0xE0080)])

_FULL_WIDTH = dict(zip(range(0xFF01, 0xFF5F), range(0x21, 0x7F), strict=True))


def spaced(digits: str) -> str:
    """Return a regular expression for digits with any separators."""
    return SEPARATORS_OF_KNOWN.join(digits)


def spaced_in_bytes(digits: str) -> bytes:
    """Return the same for bytes in UTF-8, with blanks of ASCII only."""
    signs = b"|".join(re.escape(sign).encode() for sign in f" \t\r\n{SIGNS}")
    return (b"(?:(?:" + signs + b"){0,5}|[ ]?[,:+][ ]?)").join(digit.encode() for digit in digits)


def with_ascii_digits(text: str) -> str:
    """Return a text with digits of all scripts and letters of all widths in plain form, without invisible marks."""
    if text.isascii():
        return text
    # In pieces, because Python sorts the marks of one letter in quadratic time, however many there are.
    pieces = (unicodedata.normalize("NFKC", text[start : start + _PIECE]) for start in range(0, len(text), _PIECE))
    return with_decimal_digits(strip_invisible("".join(pieces)).translate(_DECORATIONS))


def with_decimal_digits(text: str) -> str:
    """Return a text with the decimal digits of all scripts, and signs of full width, as ASCII has them."""
    if text.isascii():
        return text
    return "".join(
        str(unicodedata.digit(character)) if character.isdecimal() else character for character in text
    ).translate(_FULL_WIDTH)
