"""The eight column types of INTERFACE.md 2.5 and what a cell of each may hold (contract.md, "Cells")."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cpaas_provider.sandbox.core.context import Column
from cpaas_provider.sandbox.service import requests
from cpaas_provider.sandbox.service.schema import Schema


def _choice(options: tuple[str, ...]) -> Schema:
    if not options:
        return {"type": "string", "x-message": "must be a string"}
    return {"type": "string", "enum": list(options)}


def _number(options: tuple[str, ...]) -> Schema:
    return {"type": "number", "examples": [42]}


def _text(options: tuple[str, ...]) -> Schema:
    return {"type": "string"}


def _date(options: tuple[str, ...]) -> Schema:
    return {"type": "string", "format": "date", "examples": ["1990-05-17"]}


def _phone(options: tuple[str, ...]) -> Schema:
    return requests.msisdn("Digits in international format without plus sign")


def _email(options: tuple[str, ...]) -> Schema:
    return requests.email_address("An email address")


def _url(options: tuple[str, ...]) -> Schema:
    return requests.url("An absolute http or https URL")


def _choices(options: tuple[str, ...]) -> Schema:
    return {"type": "array", "items": _choice(options), "x-message": "must be a list of strings"}


COLUMN_TYPES: dict[str, Callable[[tuple[str, ...]], Schema]] = {
    "TEXT": _text,
    "NUMBER": _number,
    "DATE": _date,
    "PHONE NUMBER": _phone,
    "EMAIL": _email,
    "URL": _url,
    "SELECT": _choice,
    "MULTI SELECT": _choices,
}

_CLEARED: Schema = {"enum": ["", None]}
_DIGITS: Schema = {"type": "string", "pattern": "^-?[0-9]{1,18}(?:\\.[0-9]{1,9})?$"}


def cell_schema(column: Column, number_cells: str) -> Schema:
    """Return the schema of a cell in a column; null or an empty string clears it."""
    value = COLUMN_TYPES[column.type](column.options)
    lenient = column.type == "NUMBER" and number_cells == "number_or_string"
    branches = [value, _DIGITS, _CLEARED] if lenient else [value, _CLEARED]
    return {"title": column.name, "description": column.type, "anyOf": branches}


def stored(column: Column, value: Any) -> Any:
    """Return a valid cell as it is kept: None where it was cleared, a number where digits came as a string."""
    if value is None or value == "":
        return None
    if column.type == "NUMBER" and isinstance(value, str):
        return float(value) if "." in value else int(value)
    return value
