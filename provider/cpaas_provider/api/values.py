"""Values as sources return them: whether there is one, and its text."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

from cpaas_provider._common.values import is_blank as is_blank
from cpaas_provider._common.values import plain as plain
from cpaas_provider.api.bounds import has_missing_value, is_missing_argument, is_missing_word
from cpaas_provider.api.text import trim_invisible

_TEXT_OR_INTEGER = frozenset({str, int})

MAX_CELL_BYTES = 64 * 1024
"""The longest cell, in bytes of UTF-8."""


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


def readable_text(value: Any) -> str | None:
    """Return a value as a recipient reads it; ``None`` if there is none, or it has no usual text, such as a list."""
    if type(value) is str and value.isascii() and (text := value.strip()):
        # Most cells: what follows comes to the same, and takes twice as long.
        return None if is_missing_word(text) else text
    value = plain(value)
    if isinstance(value, Enum):
        return readable_text(value.value)
    if is_blank(value):
        return None
    if isinstance(value, str):
        text = trim_invisible(value)
        return None if is_missing_word(text) else text
    if isinstance(value, datetime):
        return value.isoformat(sep=" ", timespec="minutes")
    if isinstance(value, timedelta):
        return str(value)
    try:
        return as_text(value)
    except ValueError:
        return None


def plain_texts(values: Sequence[Any]) -> list[str] | None:
    """Return what ``readable_text`` returns for each value, if all are ASCII text or integers; else ``None``.

    No text may be missing. It looks at all values at once, which takes a third of the time.
    """
    try:
        if int in map(type, values):
            if not _TEXT_OR_INTEGER.issuperset(map(type, values)):
                return None
            values = list(map(str, values))
        texts = list(map(str.strip, values))
    except (TypeError, ValueError):
        # Another type, or more digits than Python converts.
        return None
    is_plain = not has_missing_value(texts) and "".join(texts).isascii()
    return texts if is_plain else None


def missing_word(value: Any) -> str | None:
    """Return the word for a missing value that a cell consists of, such as ``nan``; ``None`` for any other value."""
    value = plain(value)
    if not isinstance(value, str):
        return None
    text = trim_invisible(value)
    return text if is_missing_word(text) else None


def no_value_reason(value: Any) -> str | None:
    """Return why a rendered argument has no value, such as a template of an XCom that is missing; else ``None``."""
    if value is None:
        return "is None"
    if is_blank(value):
        return "is empty"
    if isinstance(value, str) and is_missing_argument(text := trim_invisible(value)):
        return f"is the word {text!r}"
    return None


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
