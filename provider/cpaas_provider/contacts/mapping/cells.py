"""Typed cells: the values that each column type accepts, and their form on the wire (INTERFACE.md 2.5; contract.md).

Single rows and whole sources use the same parser for each type.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Literal

from cpaas_provider.api.recipients.msisdn import normalise_msisdn
from cpaas_provider.api.values import MAX_CELL_BYTES, as_text, is_blank, plain
from cpaas_provider.contacts.mapping.parsing.addresses import parse_email, parse_url
from cpaas_provider.contacts.mapping.parsing.choices import options_parser, parse_option
from cpaas_provider.contacts.mapping.parsing.dates import date_parser
from cpaas_provider.contacts.mapping.parsing.numbers import number_parser
from cpaas_provider.contacts.mapping.parsing.values import MAX_LEVELS, checked_text
from cpaas_provider.contacts.mapping.rules import ColumnRule

ClearAs = Literal["null", "empty"]
Parse = Callable[[Any], Any]

CLEARED: dict[str, str | None] = {"null": None, "empty": ""}
"""An empty cell on the wire."""
_DEFAULT_RULE = ColumnRule()
_ABOVE_NUMBERS = 10**20
_LONGEST_NUMBER = 250

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
    column_type: str, value: Any, *, default_region: str | None = None, empty_cell_value: ClearAs = "null"
) -> Any:
    """Return a cell's value as on the wire.

    :param column_type: TEXT, NUMBER, DATE, PHONE NUMBER, EMAIL, URL, SELECT or MULTI SELECT; a type that the contract
        does not list accepts any JSON value unchanged
    :param value: the value; a blank one (``None``, text of blanks, NaN, an empty list of options) clears the cell
    :param default_region: region of national phone numbers
    :param empty_cell_value: what clears a cell on the wire: ``null`` or an empty string
    :raises ValueError: when the value does not fit the type; gives the reason, never the value
    """
    cell = cell_parser(column_type, _DEFAULT_RULE, default_region)(value)
    return CLEARED[empty_cell_value] if cell is None else cell


def cell_parser(written_type: str, rule: ColumnRule = _DEFAULT_RULE, default_region: str | None = None) -> Parse:
    """Return a function that turns a value of one column into its form on the wire, a blank value into ``None``.

    :param written_type: the column's type, in upper or lower case
    :param rule: the notation of values in the source
    :param default_region: region of national phone numbers if the rule names none
    :return: the function; it raises ``ValueError`` for a value that does not fit, with the reason, never the value
    """
    parse = _parser(column_type(written_type), rule, default_region)

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


def _parser(kind: str, rule: ColumnRule, default_region: str | None) -> Parse:
    match kind:
        case "TEXT":
            return _parse_text
        case "NUMBER":
            return number_parser(rule.decimal, rule.thousands)
        case "DATE":
            return date_parser(rule.date_format, rule.excel_serial)
        case "PHONE NUMBER":
            return _phone_parser(rule.region or default_region)
        case "EMAIL":
            return parse_email
        case "URL":
            return parse_url
        case "SELECT":
            return parse_option
        case "MULTI SELECT":
            return options_parser(rule.separator)
        case _:
            return _parse_json


def _parse_text(value: Any) -> str:
    return checked_text(as_text(value))


def _phone_parser(region: str | None) -> Parse:
    def read(value: Any) -> str:
        # Compared before it is converted, because a Decimal can stand for a gigabyte of digits.
        out_of_range = isinstance(value, (int, float, Decimal)) and not 0 <= value < _ABOVE_NUMBERS
        if out_of_range or (type(value) is str and len(value) > _LONGEST_NUMBER):
            raise ValueError("is not a phone number")
        return normalise_msisdn(value, region)

    return read


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
    return levels == 0 or any(_is_deeper(one, levels - 1) for one in inner)
