"""Checks of operator arguments: a value that cannot work is refused where the DAG is written."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import timedelta
from typing import Any

# As the database counts them, which no DAG file is to import.
_LONGEST_CAP = timedelta(days=90)
_LONGEST_CATEGORY = 100


def one_of(*words: str) -> Callable[[str, Any], Any]:
    """Return a check that takes one of some words."""

    def check(name: str, value: Any) -> Any:
        if value not in words:
            raise ValueError(f"{name} must be one of {', '.join(words)}; it is {value!r}.")
        return value

    return check


def on_unknown(name: str, value: Any) -> Any:
    """Return what to do about a request of unknown outcome."""
    return one_of("fail", "skip", "resend")(name, value)


def boolean(name: str, value: Any) -> bool:
    """Return a switch; refuse words, of which every one would count as yes."""
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be True or False; it is {value!r}.")
    return value


def seconds(name: str, value: Any) -> float:
    """Return a number of seconds."""
    if not _is_number(value) or not 0 <= value < math.inf:
        raise ValueError(f"{name} must be a number of seconds of at least 0; it is {value!r}.")
    return float(value)


def duration(name: str, value: Any) -> timedelta:
    """Return a span that is given as such or in seconds."""
    if not isinstance(value, timedelta) and not (_is_number(value) and math.isfinite(value)):
        raise ValueError(f"{name} must be a timedelta or a number of seconds; it is {value!r}.")
    found = value if isinstance(value, timedelta) else timedelta(seconds=value)
    if found < timedelta():
        raise ValueError(f"{name} must not be negative; it is {value!r}.")
    return found


def duration_or_none(name: str, value: Any) -> timedelta | None:
    """Return a span, or ``None`` for no bound."""
    return None if value is None else duration(name, value)


def ratio(name: str, value: Any) -> float:
    """Return a share, 0 to 1."""
    if not _is_number(value) or not 0 <= value <= 1:
        raise ValueError(f"{name} must be a number from 0 to 1; it is {value!r}.")
    return float(value)


def count_or_ratio(name: str, value: Any) -> Any:
    """Return a count of rows (a whole number), or a share of them (a float from 0 to 1)."""
    is_share = isinstance(value, float) and 0 <= value <= 1
    if not is_share and (isinstance(value, (bool, float)) or not isinstance(value, int) or value < 0):
        raise ValueError(f"{name} must be a whole number of at least 0, or a float from 0 to 1; it is {value!r}.")
    return value


def amount_or_none(name: str, value: Any) -> float | None:
    """Return an amount of money, or ``None`` for no bound."""
    if value is None:
        return None
    if not _is_number(value) or not 0 <= value < math.inf:
        raise ValueError(f"{name} must be a number of at least 0; it is {value!r}.")
    return float(value)


def frequency_cap(name: str, value: Any) -> tuple[int, timedelta] | None:
    """Return a number of messages and the period they are counted in, or ``None`` for no cap."""
    if value is None:
        return None
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        raise ValueError(f"{name} must be a number of messages and a period, such as (3, timedelta(days=7)).")
    messages, period = integer_at_least(1)(f"{name}[0]", value[0]), duration(f"{name}[1]", value[1])
    if not timedelta() < period <= _LONGEST_CAP:
        raise ValueError(f"{name}[1] must be a period of at most {_LONGEST_CAP.days} days; it is {value[1]!r}.")
    return messages, period


def frequency_category(name: str, value: Any) -> str | None:
    """Return the name of a category, or ``None`` for none."""
    if value is not None and not (isinstance(value, str) and 0 < len(value.strip()) <= _LONGEST_CATEGORY):
        raise ValueError(f"{name} must be text of 1 to {_LONGEST_CATEGORY} characters; it is {value!r}.")
    return value


def refuse_no_text(operator: Any) -> None:
    """Refuse a message without content: neither ``content`` nor ``template_id`` is given."""
    if not any(given is not None and given != "" for given in (operator.content, operator.template_id)):
        raise ValueError(f"{operator}: neither content nor template_id is given. Give one of them.")


def refuse_unstated_substitutions(operator: Any) -> None:
    """Refuse a template campaign without ``substitutions``: the provider cannot read the template's placeholders."""
    if operator.template_id is not None and operator.substitutions is None:
        raise ValueError(
            f"{operator}: a campaign with template_id needs substitutions. The service stores the template, so the "
            "provider cannot read its placeholders. Without values, recipients would read the placeholders. Name the "
            "columns that fill them, such as substitutions=['name']. If the template has none, give substitutions=[]."
        )


def integer_at_least(least: int) -> Callable[[str, Any], Any]:
    """Return a check that takes whole numbers of at least ``least``."""

    def check(name: str, value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ValueError(f"{name} must be a whole number of at least {least}; it is {value!r}.")
        return value

    return check


def or_none(check: Callable[[str, Any], Any]) -> Callable[[str, Any], Any]:
    """Return a check that takes ``None``, too."""
    return lambda name, value: None if value is None else check(name, value)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
