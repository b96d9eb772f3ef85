"""Typed cells: the values that each column type accepts, and their form on the wire (contract.md 2.5 and 10).

Single rows and whole sources use the same parser for each type.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Literal

from msgspec.structs import replace

from cpaas_provider.api.recipients.msisdn import INTERNATIONAL, NumberReader
from cpaas_provider.api.values import MAX_CELL_BYTES, as_text, is_blank, plain
from cpaas_provider.contacts.mapping.dates import date_parser
from cpaas_provider.contacts.mapping.parsers import (
    MAX_LEVELS,
    checked_text,
    number_parser,
    options_parser,
    parse_email,
    parse_option,
    parse_url,
)
from cpaas_provider.contacts.mapping.rules import ColumnRule

ClearAs = Literal["null", "empty"]
Parse = Callable[[Any], Any]

CLEARED: dict[str, str | None] = {"null": None, "empty": ""}
"""An empty cell on the wire."""
_DEFAULT_RULE = ColumnRule()

EMPTY_CELLS: tuple[Any, ...] = (*CLEARED.values(), [])
"""The forms of a cell without a value."""


def is_empty_cell(cell: Any) -> bool:
    """Tell whether a cell has no value, as it is sent or as the service returned it."""
    return cell in EMPTY_CELLS


FIELDS_OF_TYPE: dict[str, frozenset[str]] = {
    "NUMBER": frozenset({"decimal", "thousands"}),
    "DATE": frozenset({"date_format", "excel_serial"}),
    "PHONE NUMBER": frozenset({"region"}),
    "MULTI SELECT": frozenset({"separator"}),
}
"""The fields of a rule that apply to one column type only."""


def column_type(written: str) -> str:
    """Return a column type in capitals, without blanks around it."""
    return written.strip().upper()


def encode_cell(
    column_type: str, value: Any, *, numbers: NumberReader = INTERNATIONAL, empty_cell_value: ClearAs = "null"
) -> Any:
    """Return a cell's value as on the wire.

    :param column_type: TEXT, NUMBER, DATE, PHONE NUMBER, EMAIL, URL, SELECT or MULTI SELECT; a type that the contract
        does not list accepts any JSON value unchanged
    :param value: the value; a blank one (``None``, text of blanks, NaN, an empty list of options) clears the cell
    :param numbers: reads phone numbers as the connection has it
    :param empty_cell_value: what clears a cell on the wire: ``null`` or an empty string
    :raises ValueError: when the value does not fit the type; gives the reason, never the value
    """
    cell = cell_parser(column_type, _DEFAULT_RULE, numbers)(value)
    return CLEARED[empty_cell_value] if cell is None else cell


def cell_parser(written_type: str, rule: ColumnRule = _DEFAULT_RULE, numbers: NumberReader = INTERNATIONAL) -> Parse:
    """Return a function that turns a value of one column into its form on the wire, a blank value into ``None``.

    :param written_type: the column's type, in upper or lower case
    :param rule: the notation of values in the source
    :param numbers: reads phone numbers as the connection has it, in the region of the rule if it names one
    :return: the function; it raises ``ValueError`` for a value that does not fit, with the reason, never the value
    """
    parse = _parser(column_type(written_type), rule, numbers)

    def read(value: Any) -> Any:
        if type(value) is not str:
            value = plain(value)
        elif len(value) > MAX_CELL_BYTES:
            raise ValueError(f"is longer than {MAX_CELL_BYTES} bytes")
        if is_blank(value):
            return None
        cell = parse(value)
        return None if cell == [] else cell

    return read


def _parser(kind: str, rule: ColumnRule, numbers: NumberReader) -> Parse:
    match kind:
        case "TEXT":
            return lambda value: checked_text(as_text(value))
        case "NUMBER":
            return number_parser(rule.decimal, rule.thousands)
        case "DATE":
            return date_parser(rule.date_format, rule.excel_serial)
        case "PHONE NUMBER":
            reader = numbers if rule.region is None else replace(numbers, default_region=rule.region)
            return lambda value: str(reader.read(value))
        case "EMAIL":
            return lambda value: str(parse_email(value))
        case "URL":
            return parse_url
        case "SELECT":
            return parse_option
        case "MULTI SELECT":
            return options_parser(rule.separator)
        case _:
            return _parse_json


def _parse_json(value: Any) -> Any:
    """Return a value of a column type that the contract does not know: any JSON value, as it is."""
    if isinstance(value, str):
        return checked_text(value)
    try:
        written = json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
        if json.loads(written) != value:
            raise ValueError("must be a JSON value")
    except (TypeError, ValueError, RecursionError):
        raise ValueError("must be a JSON value") from None
    if _is_deeper(value, MAX_LEVELS):
        raise ValueError(f"is nested more than {MAX_LEVELS} levels deep")
    if len(written) > MAX_CELL_BYTES:
        raise ValueError(f"is longer than {MAX_CELL_BYTES} bytes")
    return value


def _is_deeper(value: Any, levels: int) -> bool:
    if not isinstance(value, (list, dict)):
        return False
    inner = value.values() if isinstance(value, dict) else value
    return levels == 0 or any(_is_deeper(value, levels - 1) for value in inner)
