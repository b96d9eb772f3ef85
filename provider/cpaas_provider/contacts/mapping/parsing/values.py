"""Values as sources return them: whether a value is blank, and its text."""

from __future__ import annotations

import re
import unicodedata
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

from cpaas_provider.api.text import strip_invisible

MAX_CELL_BYTES = 64 * 1024
"""The longest cell, in bytes of UTF-8."""
MAX_LEVELS = 20
"""The most levels that a value may be nested."""
LARGEST_EXACT_INTEGER = 2**53 - 1
"""Above it not every integer is a double, and so not safe as a JSON number (RFC 8259, section 6)."""

# Line breaks and tabs belong to text; the other control characters are damage, such as a wrong encoding.
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_CONTROL_OR_BREAK = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_PANDAS_MISSING = frozenset({"NaTType", "NAType"})


def plain(value: Any) -> Any:
    """Return a value as a plain Python object.

    Scalars and arrays of NumPy become numbers, dates and lists. Members of a text enumeration, and other subclasses
    of ``str``, become plain text.
    """
    kind = type(value)
    if kind is str or value is None:
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if kind.__module__ == "numpy" and hasattr(value, "dtype"):
        return _from_numpy(value)
    return value


def _from_numpy(value: Any) -> Any:
    converted = value.tolist()
    if value.dtype.kind == "M" and isinstance(converted, int):
        # NumPy returns times in nanoseconds as an integer.
        return value.astype("datetime64[us]").tolist()
    return value if value.dtype.kind in "mM" and isinstance(converted, (int, list)) else converted


def is_blank(value: Any) -> bool:
    """Tell whether a value is an empty cell.

    That is ``None``, text without a visible character, a NaN of any numeric type, or the NaT and NA of pandas.
    """
    if value is None:
        return True
    kind = type(value)
    if kind is str:
        return not value or value.isspace() or (not value.isascii() and not strip_invisible(value))
    if kind is float:
        return bool(value != value)
    if kind is Decimal:
        return bool(value.is_nan())
    return kind.__name__ in _PANDAS_MISSING


def as_text(value: Any) -> str:
    """Return a value as it is usually written.

    Numbers get no exponent. A whole float gets no ``.0``, because data frames make floats of integers beside blanks.
    Decimals keep the digits they have. Dates and times are written in ISO 8601.

    :raises ValueError: when the value has no usual text, such as bytes, lists and mappings
    """
    if type(value) is str:
        return value
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, int):
        return _digits_of(value)
    if isinstance(value, (float, Decimal)):
        return _decimal_text(value)
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    if isinstance(value, UUID):
        return str(value)
    raise ValueError("must be text")


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


def _digits_of(value: int) -> str:
    try:
        return int.__str__(value)
    except ValueError:
        # Python refuses to convert an integer of more than 4,300 digits to text.
        raise ValueError("has too many digits") from None


def _decimal_text(value: float | Decimal) -> str:
    number = value if isinstance(value, Decimal) else Decimal(repr(float(value)))
    if not number.is_finite():
        raise ValueError("must be a finite number")
    if abs(number.adjusted()) > MAX_CELL_BYTES:
        raise ValueError("has too many digits")
    if isinstance(value, float) and number == number.to_integral_value():
        return str(int(number))
    return format(number, "f")
