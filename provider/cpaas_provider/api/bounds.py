"""The bounds the contract sets, and checks of arguments against them where a DAG is written. It imports no library.

A check takes an argument's name and value, and returns the value or raises ``ValueError`` with words that name both.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import timedelta
from typing import Any

NETWORKS: tuple[str, ...] = ("Airtel", "MTN", "Glo", "9mobile", "NTEL")
SMALLEST_AMOUNT = 50
CHANNELS = ("sms", "whatsapp")
OTP_DIGITS = (4, 8)
OTP_MINUTES = (1, 60)
SHORTEST_POKE_INTERVAL = 1.0

Check = Callable[[str, Any], Any]

# What templates, JSON and data frames write where there is nothing.
_NOTHING = frozenset({"none", "null", "nan"})
_TEMPLATE = ("{{", "{%", "{#")


def is_known(value: Any) -> bool:
    """Tell whether a value is what it will be when the task runs: neither nothing, nor a template, nor an XCom."""
    if isinstance(value, str):
        return not any(mark in value for mark in _TEMPLATE)
    return value is not None and not hasattr(value, "iter_references")


def if_known(check: Check) -> Check:
    """Return a check that passes over what only the run will tell."""
    return lambda name, value: check(name, value) if is_known(value) else value


def network(name: str, value: Any) -> Any:
    """Return a mobile network that sells airtime."""
    if str(value).strip().lower() not in {one.lower() for one in NETWORKS}:
        raise ValueError(f"{name} must be one of {', '.join(NETWORKS)}; it is {value!r}.")
    return value


def airtime_amount(name: str, value: Any) -> Any:
    """Return an amount of airtime, as a number or text."""
    number = _number(value)
    if number is None or number < SMALLEST_AMOUNT:
        raise ValueError(f"{name} must be a number of at least {SMALLEST_AMOUNT}; it is {value!r}.")
    return value


def whole_within(least: int, most: int) -> Check:
    """Return a check that takes whole numbers from ``least`` to ``most``, as numbers or text."""

    def check(name: str, value: Any) -> Any:
        number = _number(value)
        if number is None or not number.is_integer() or not least <= number <= most:
            raise ValueError(f"{name} must be a whole number from {least} to {most}; it is {value!r}.")
        return value

    return check


def poke_interval(name: str, value: Any) -> Any:
    """Return the time between two pokes, as a timedelta or in seconds."""
    seconds = value.total_seconds() if isinstance(value, timedelta) else _number(value)
    if seconds is None or seconds < SHORTEST_POKE_INTERVAL:
        raise ValueError(f"{name} must be a timedelta or number of at least 1 second; it is {value!r}.")
    return value


def file_name(suffixes: tuple[str, ...]) -> Check:
    """Return a check that takes paths whose name ends in one of some ways; a template may say the end later."""

    def check(name: str, value: Any) -> Any:
        if value is None or hasattr(value, "iter_references"):
            return value
        written = str(value)
        end = written.rpartition("}")[2] if not is_known(written) else written
        told_later = end != written and "." not in end
        if not told_later and not end.endswith(suffixes):
            raise ValueError(f"{name} must end in one of {', '.join(suffixes)}; it is {written!r}.")
        return value

    return check


def missing_value_reason(text: str) -> str | None:
    """Return what is wrong with a recipient that is but a word for nothing; ``None`` where it is another."""
    if text.lower() not in _NOTHING:
        return None
    return f"is the word {text!r}: the template or task it came from had no value"


def _number(value: Any) -> float | None:
    if isinstance(value, bool):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None
