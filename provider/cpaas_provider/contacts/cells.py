"""Typed cells: what each column type takes, and how it goes on the wire (contract.md, cell formats)."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import date, datetime
from typing import Any, Literal
from urllib.parse import urlsplit

from cpaas_provider.api.addresses import normalise_email
from cpaas_provider.api.numbers import normalise_msisdn

ClearAs = Literal["null", "empty"]

_CLEARED: dict[str, str | None] = {"null": None, "empty": ""}


def encode_cell(
    column_type: str, value: Any, *, default_region: str | None = None, empty_cell_value: ClearAs = "null"
) -> Any:
    """Return a cell's value as the service takes it.

    :param column_type: TEXT, NUMBER, DATE, PHONE NUMBER, EMAIL, URL, SELECT or MULTI SELECT; a type the contract does
        not know takes any JSON value as it is
    :param value: the value; ``None`` clears the cell
    :param default_region: region of national phone numbers
    :param empty_cell_value: what clears a cell on the wire: ``null`` or an empty string
    :raises ValueError: when the value does not fit the type; gives the reason, never the value
    """
    if value is None:
        return _CLEARED[empty_cell_value]
    encode = _ENCODERS.get(column_type.strip().upper())
    return encode(value, default_region) if encode else value


def _text(value: Any, _region: str | None) -> str:
    # NaN is what data frames hold where a cell is empty; None says so.
    if isinstance(value, float) and math.isnan(value):
        raise ValueError("must be text")
    if isinstance(value, (dict, list, tuple, set, frozenset, bytes)):
        raise ValueError("must be text")
    return str(value)


def _number(value: Any, _region: str | None) -> int | float:
    if isinstance(value, bool):
        raise ValueError("must be a number")
    if isinstance(value, int):
        return value
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise ValueError("must be a number") from None
    if not math.isfinite(number):
        raise ValueError("must be a finite number")
    return int(number) if number.is_integer() else number


def _date(value: Any, _region: str | None) -> str:
    if isinstance(value, datetime):
        return value.date().isoformat()
    if isinstance(value, date):
        return value.isoformat()
    try:
        return datetime.fromisoformat(value.strip()).date().isoformat()
    except (AttributeError, TypeError, ValueError):
        raise ValueError("must be a date such as 2026-01-31") from None


def _url(value: Any, _region: str | None) -> str:
    text = value.strip() if isinstance(value, str) else ""
    try:
        parts = urlsplit(text)
        sound = parts.scheme in {"http", "https"} and bool(parts.hostname)
    except ValueError:
        sound = False
    if not sound or any(character.isspace() for character in text):
        raise ValueError("must be a URL such as https://example.com/page")
    return text


def _choice(value: Any, _region: str | None) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError("must be one option, as text")
    return value.strip()


def _choices(value: Any, _region: str | None) -> list[str]:
    options = value.split(",") if isinstance(value, str) else value
    if not isinstance(options, (list, tuple, set, frozenset)):
        raise ValueError("must be a list of options")
    choices = [_choice(option, None) for option in options]
    return sorted(choices) if isinstance(options, (set, frozenset)) else choices


_ENCODERS: dict[str, Callable[[Any, str | None], Any]] = {
    "TEXT": _text,
    "NUMBER": _number,
    "DATE": _date,
    "PHONE NUMBER": normalise_msisdn,
    "EMAIL": lambda value, _region: normalise_email(value),
    "URL": _url,
    "SELECT": _choice,
    "MULTI SELECT": _choices,
}
