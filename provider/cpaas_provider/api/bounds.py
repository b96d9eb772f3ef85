"""The bounds of the contract, and checks of arguments against them when a DAG file is parsed. Imports no library.

A check takes an argument's name and value. It returns the value, or raises ``ValueError`` with a message that names
both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import timedelta
from typing import Any

NETWORKS: tuple[str, ...] = ("Airtel", "MTN", "Glo", "9mobile", "NTEL")
SMALLEST_AMOUNT = 50
CHANNELS = ("sms", "whatsapp")
NUMBER_CHECKS = ("valid", "possible")
"""What makes a phone number usable: its country has it, or it has a length that its country has."""
PARTIAL, WHOLE = ROW_UPDATES = ("partial", "whole")
"""Whether an update of a contact row sends the cells that changed, or all cells."""
OTP_DIGITS = (4, 8)
OTP_MINUTES = (1, 60)
SHORTEST_POKE_INTERVAL = 1.0
LONGEST_ID = 100
"""The characters of an id that the service gives. Task state, journal and database hold as many."""

Check = Callable[[str, Any], Any]

_MISSING_VALUE_WORDS = frozenset({"None", "nan", "NaN", "NaT", "<NA>", "null", "NULL"})
_EMPTY_OR_MISSING_WORDS = _MISSING_VALUE_WORDS | {""}
"""What Python, templates, JSON, data frames and databases write for a missing value. In other capitals these are names,
such as Null, Nan and Nat."""
_BLANKS = "".join(map(chr, (*range(33), 0xA0, 0xAD, *range(0x2000, 0x2010), 0x2028, 0x2029, 0x2060, 0x3000, 0xFEFF)))
"""Blanks, control characters and characters that show nothing."""
_TEMPLATE_MARKS = ("{{", "{%", "{#")


def is_known(value: Any) -> bool:
    """Tell whether a value is final when the DAG file is parsed: not ``None``, a template or a reference to an XCom."""
    if isinstance(value, str):
        return not any(mark in value for mark in _TEMPLATE_MARKS)
    return value is not None and not hasattr(value, "iter_references")


def if_known(check: Check) -> Check:
    """Return a check that skips values that are known only when the task runs."""
    return lambda name, value: check(name, value) if is_known(value) else value


def flag(name: str, value: Any) -> bool:
    """Return a boolean, also one that a template or a parameter of a run gives as text: ``true`` or ``false``."""
    read = to_flag(value)
    if read is None:
        raise ValueError(f"{name} must be True or False; it is {value!r}.")
    return read


def flag_or_none(name: str, value: Any) -> bool | None:
    """Return the same, and ``None`` for an option that is not given."""
    return None if value is None else flag(name, value)


def network(name: str, value: Any) -> Any:
    """Check the name of a mobile network that sells airtime."""
    if str(value).strip().lower() not in {name.lower() for name in NETWORKS}:
        raise ValueError(f"{name} must be one of {', '.join(NETWORKS)}; it is {value!r}.")
    return value


def airtime_amount(name: str, value: Any) -> Any:
    """Check an amount of airtime, as a number or text."""
    number = to_number(value)
    if number is None or number < SMALLEST_AMOUNT:
        raise ValueError(f"{name} must be a number of at least {SMALLEST_AMOUNT}; it is {value!r}.")
    return value


def whole_within(least: int, most: int) -> Check:
    """Return a check that accepts whole numbers from ``least`` to ``most``, as numbers or text."""

    def check(name: str, value: Any) -> Any:
        number = to_number(value)
        if number is None or not number.is_integer() or not least <= number <= most:
            raise ValueError(f"{name} must be a whole number from {least} to {most}; it is {value!r}.")
        return value

    return check


def texts(name: str, value: Any) -> Any:
    """Check a list of texts. One text is refused, because it would be read letter by letter."""
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Collection):
        raise ValueError(f"{name} must be a list of texts; it is {value!r}.")
    if not all(isinstance(text, str) and text.strip() for text in value):
        raise ValueError(f"{name} must be a list of texts that are not empty; it is {value!r}.")
    return value


def poke_interval(name: str, value: Any) -> Any:
    """Check the time between two pokes, as a timedelta or in seconds."""
    seconds = value.total_seconds() if isinstance(value, timedelta) else to_number(value)
    if seconds is None or seconds < SHORTEST_POKE_INTERVAL:
        raise ValueError(f"{name} must be a timedelta or number of at least 1 second; it is {value!r}.")
    return value


def file_name(suffixes: tuple[str, ...]) -> Check:
    """Return a check that accepts paths with one of these suffixes. A template may supply the suffix at run time."""

    def check(name: str, value: Any) -> Any:
        if value is None or hasattr(value, "iter_references"):
            return value
        path = str(value)
        end = path if is_known(path) else path.rpartition("}")[2]
        suffix_is_templated = end != path and "." not in end
        if not suffix_is_templated and not end.endswith(suffixes):
            raise ValueError(f"{name} must end in one of {', '.join(suffixes)}; it is {path!r}.")
        return value

    return check


def has_missing_value(texts: Iterable[str]) -> bool:
    """Return whether one of the texts is empty or a word for a missing value."""
    return not _EMPTY_OR_MISSING_WORDS.isdisjoint(texts)


def is_missing_word(text: str) -> bool:
    """Return whether a text is a word for a missing value, such as ``None``."""
    return text in _MISSING_VALUE_WORDS


def is_missing_argument(text: str) -> bool:
    """Return whether an argument is such a word. In a cell, ``none`` may be an answer."""
    return text == "none" or text in _MISSING_VALUE_WORDS


def missing_value_reason(text: str) -> str | None:
    """Return what is wrong with a recipient if it is a word for a missing value; else ``None``."""
    if not is_missing_argument(text):
        return None
    return f"is the word {text!r}: the template or task it came from had no value"


_NOTHING_WORDS = {word.lower() for word in _MISSING_VALUE_WORDS} | {
    "nil", "undefined", "n/a", "na", "false", "no", "inf", "infinity",
}  # fmt: skip
"""Words that a service writes where it has no value."""


def is_nothing(value: Any) -> bool:
    """Tell whether a value of a response says nothing: ``null``, ``false``, 0, -1, blanks, or a word for no value."""
    if isinstance(value, str):
        text = value.strip(_BLANKS).lower()
        number = to_number(text)
        return not any(map(str.isalnum, text)) or text in _NOTHING_WORDS or (number is not None and number <= 0)
    if isinstance(value, (int, float)):
        return not value > 0
    return not value


def to_flag(value: Any) -> bool | None:
    """Return a boolean, or what a text says in any case of letters; ``None`` for any other value."""
    if isinstance(value, bool):
        return value
    return {"true": True, "false": False}.get(value.strip().lower()) if isinstance(value, str) else None


def to_number(value: Any) -> float | None:
    """Return a number, or text as a rendered template gives it, as a float; ``None`` if it is no finite number."""
    if isinstance(value, bool):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None
