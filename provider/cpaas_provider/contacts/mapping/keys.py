"""The key of a source row, and its values for the hash that shows a change: the same for every kind of source."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from functools import partial
from operator import itemgetter
from typing import Any
from uuid import UUID

from cpaas_provider.api.bounds import is_missing_word
from cpaas_provider.api.text import trim_invisible
from cpaas_provider.api.values import is_blank, plain
from cpaas_provider.contacts.mapping.parsers import LARGEST_EXACT_INTEGER, MAX_LEVELS, checked_text

MAX_KEY_CHARACTERS = 512
"""The most characters of one part of a key."""
_PLAIN_TYPES = frozenset({str, type(None), int, float, bool})
_MISSING = ("missing",)
_LONGEST_WORD = 4
"""The length of the longest word for a missing value. Most keys are longer, and need no further look."""

ReadKey = Callable[[Mapping[str, Any]], "tuple[str, ...] | None"]
ReadRaw = Callable[[Mapping[str, Any]], "tuple[Any, ...]"]


def key_text(value: Any) -> str | None:
    """Return one part of a key as text that is the same in every kind of source; ``None`` for a blank value.

    Blanks and invisible marks around text are removed, and it is normalised to NFC. Everything else distinguishes keys:
    capitals, accents, leading zeros, a ``.0`` at the end, digits of other scripts. A whole number gives the same text
    as an integer, float, decimal or text of its digits. Dates and times are in ISO 8601.

    :raises ValueError: when the value cannot be a key: a boolean, a list, bytes, a float beyond 2**53 - 1, which may
        have lost digits, a word for a missing value such as ``None``, or text of more than 512 characters or with
        control characters; never shows the value
    """
    if type(value) is str and len(value) <= MAX_KEY_CHARACTERS and value.isascii() and value.isprintable():
        return _without_missing_word(value.strip()) or None
    if type(value) is int and abs(value) <= LARGEST_EXACT_INTEGER:
        return str(value)
    value = plain(value)
    if is_blank(value):
        return None
    text = unicodedata.normalize("NFC", trim_invisible(_written(value)))
    if len(text) > MAX_KEY_CHARACTERS:
        raise ValueError(f"is longer than {MAX_KEY_CHARACTERS} characters, too long for a key")
    return checked_text(_without_missing_word(text), one_line=True)


def _without_missing_word(text: str) -> str:
    """Return the text of a key.

    :raises ValueError: when it is a word for a missing value: all rows without a key would share one row of the list
    """
    if len(text) <= _LONGEST_WORD and is_missing_word(text):
        raise ValueError(f"is the word {text}, which means that there is no value")
    return text


def key_texts(parts: Iterable[Any]) -> tuple[str, ...] | None:
    """Return the parts of a key as text; ``None`` if one of them is blank.

    :raises ValueError: when a value cannot be part of a key; never shows the value
    """
    texts = [key_text(part) for part in parts]
    known = tuple(text for text in texts if text is not None)
    return known if len(known) == len(texts) else None


def key_reader(columns: Sequence[str], refused: Callable[[str, str], Exception]) -> ReadKey:
    """Return a function that reads the key of a row; ``None`` if a part of it is blank or missing.

    :param columns: the source columns of the key
    :param refused: makes the error for a value that cannot be a key, from the column's name and the reason
    """

    def part(row: Mapping[str, Any], column: str) -> str | None:
        value = row.get(column)
        try:
            return key_text(value)
        except ValueError as error:
            raise refused(column, str(error)) from None

    def read_several(row: Mapping[str, Any]) -> tuple[str, ...] | None:
        parts = []
        for column in columns:
            text = part(row, column)
            if text is None:
                return None
            parts.append(text)
        return tuple(parts)

    def read_one(row: Mapping[str, Any]) -> tuple[str, ...] | None:
        text = part(row, only)
        return None if text is None else (text,)

    only = columns[0]
    return read_one if len(columns) == 1 else read_several


def raw_reader(columns: Sequence[str]) -> ReadRaw:
    """Return a function that reads a row's values in some columns, in a form with a stable ``repr``.

    Values of different types have different forms, and so do ``None`` and a missing column. A form consists of texts,
    numbers, booleans, ``None`` and tuples of these.
    """
    all_plain = _PLAIN_TYPES.issuperset

    def read(row: Mapping[str, Any]) -> tuple[Any, ...]:
        try:
            values = get(row)
        except KeyError:
            values = tuple([row.get(column, _MISSING) for column in columns])
        if all_plain(map(type, values)):
            return values
        return tuple([value if value is _MISSING else _raw(value) for value in values])

    get = _getter(columns)
    return read


def _getter(columns: Sequence[str]) -> Callable[[Mapping[str, Any]], tuple[Any, ...]]:
    if not columns:
        return lambda row: ()
    if len(columns) == 1:
        only = columns[0]
        return lambda row: (row[only],)
    get: Callable[[Mapping[str, Any]], tuple[Any, ...]] = itemgetter(*columns)
    return get


def _written(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        raise ValueError("must be text, a number or a date to be a key")
    if isinstance(value, int):
        return _whole(value)
    if isinstance(value, float):
        if abs(value) > LARGEST_EXACT_INTEGER:
            raise ValueError("is a float beyond 2**53 - 1, which may have lost digits; have it written as text")
        return _whole(int(value)) if value.is_integer() else format(Decimal(repr(value)), "f")
    if isinstance(value, Decimal):
        if not value.is_finite() or abs(value.adjusted()) > MAX_KEY_CHARACTERS:
            raise ValueError(f"is longer than {MAX_KEY_CHARACTERS} characters, too long for a key")
        return _whole(int(value)) if value == value.to_integral_value() else format(value.normalize(), "f")
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    if isinstance(value, UUID):
        return str(value)
    raise ValueError("must be text, a number or a date to be a key")


def _whole(value: int) -> str:
    # Python refuses to convert an integer of more than 4,300 digits to text.
    if value.bit_length() > 4 * MAX_KEY_CHARACTERS:
        raise ValueError(f"is longer than {MAX_KEY_CHARACTERS} characters, too long for a key")
    return int.__str__(value)


def _raw(value: Any, level: int = 0) -> Any:
    if type(value) in _PLAIN_TYPES:
        return value
    if (write := _WRITERS.get(type(value))) is not None:
        return write(value)
    value = plain(value)
    if type(value) in _PLAIN_TYPES:
        return value
    if level > MAX_LEVELS:
        # No column type accepts a value that is nested this deep.
        return ("deep",)
    inner = partial(_raw, level=level + 1)
    if isinstance(value, (list, tuple)):
        return ("list", *(value if _PLAIN_TYPES.issuperset(map(type, value)) else map(inner, value)))
    if isinstance(value, (set, frozenset)):
        return ("set", *sorted(map(inner, value), key=repr))
    if isinstance(value, Mapping):
        return ("mapping", *sorted(((inner(name), inner(item)) for name, item in value.items()), key=repr))
    kind = type(value).__name__
    if isinstance(value, (datetime, date, time)):
        return (kind, value.isoformat())
    if isinstance(value, (bytes, bytearray, memoryview)):
        return ("bytes", bytes(value).hex())
    return (kind, repr(value))


_WRITERS: dict[type, Callable[[Any], Any]] = {
    Decimal: lambda value: ("Decimal", str(value)),
    UUID: lambda value: ("UUID", str(value)),
    date: lambda value: ("date", value.isoformat()),
    datetime: lambda value: ("datetime", value.isoformat()),
}
