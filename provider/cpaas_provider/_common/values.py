"""Whether there is a value: the one test for what is missing, for sources, texts, recipients, cells and keys."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

# Invisible marks in text that was copied from chats, web pages and spreadsheets: marks of the writing direction, zero
# width characters, joiners, the byte order mark, the soft hyphen.
INVISIBLE_MARKS = dict.fromkeys(
    [0x00AD, 0x061C, 0x180E, *range(0x200B, 0x2010), *range(0x202A, 0x202F), *range(0x2060, 0x206A), 0xFEFF]
)

_MISSING_TYPES = frozenset({"NaTType", "NAType", "MaskedConstant"})
"""The types of NaT and NA of pandas, and of a masked value of NumPy, which are not imported for it."""
_FOREIGN = frozenset({"numpy", "pyarrow"})


def strip_invisible(text: str) -> str:
    """Return a text without invisible marks; unless it is ASCII, also without blanks around it."""
    return text if text.isascii() else text.translate(INVISIBLE_MARKS).strip()


def plain(value: Any) -> Any:
    """Return a value as a plain Python object.

    Scalars and arrays of NumPy become numbers, dates and lists, and scalars of Arrow become what they hold. Members of
    a text enumeration, and other subclasses of ``str``, become plain text.
    """
    kind = type(value)
    if kind is str or value is None:
        return value
    if isinstance(value, str):
        return str.__str__(value)
    library = kind.__module__.partition(".")[0]
    if library == "numpy" and hasattr(value, "dtype"):
        return _from_numpy(value)
    if library == "pyarrow" and hasattr(value, "as_py"):
        return value.as_py()
    return value


def _from_numpy(value: Any) -> Any:
    converted = value.tolist()
    if value.dtype.kind == "M" and isinstance(converted, int):
        # NumPy returns times in nanoseconds as an integer.
        return value.astype("datetime64[us]").tolist()
    if hasattr(converted, "dtype") and not isinstance(converted, float):
        # NumPy returns a long double unchanged.
        return float(converted)
    return value if value.dtype.kind in "mM" and isinstance(converted, (int, list)) else converted


def is_blank(value: Any) -> bool:
    """Tell whether a value is an empty cell.

    That is ``None``, text without a visible character, a NaN of any numeric type, a time that is none (NaT), the NA of
    pandas, a null of Arrow, or a masked value of NumPy.
    """
    if value is None:
        return True
    kind = type(value)
    if kind is str:
        return not value or value.isspace() or (not value.isascii() and not strip_invisible(value))
    if isinstance(value, float):
        return bool(value != value)
    if isinstance(value, Decimal):
        return value.is_nan()
    if kind.__name__ in _MISSING_TYPES:
        return True
    if isinstance(value, str) or kind.__module__.partition(".")[0] in _FOREIGN:
        held = plain(value)
        return held is not value and is_blank(held)
    return False
