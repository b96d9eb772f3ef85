"""The contact table in memory: typed columns, rows, and a log of each change that was carried out."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import Any, Literal

COLUMN_TYPES = ("TEXT", "NUMBER", "DATE", "PHONE NUMBER", "EMAIL", "URL", "SELECT", "MULTI SELECT")


@dataclass
class Column:
    """A column. `required`: a POST must send it. `options`: the only values of a SELECT or MULTI SELECT."""

    id: str
    name: str
    type: str = "TEXT"
    required: bool = False
    options: tuple[str, ...] | None = None


@dataclass
class Row:
    id: str
    columns: dict[str, Any]
    created: datetime
    updated: datetime | None = None


@dataclass(frozen=True)
class Change:
    """A change that was carried out. `columns` is what was sent; `by` tells requests from another client."""

    method: Literal["POST", "PATCH", "DELETE"]
    row_id: str
    columns: Mapping[str, Any] = field(default_factory=dict)
    by: Literal["request", "other"] = "request"


class ContactTable:
    """One table. Not locked: `RowService` holds its lock around each request and each call of a test."""

    def __init__(self, columns: Iterable[Column] = (), *, table_id: str = "tbl_1") -> None:
        self.id = table_id
        self.columns: dict[str, Column] = {column.id: column for column in columns}
        self.rows: dict[str, Row] = {}
        self.log: list[Change] = []
        self.created = datetime.now(UTC)
        self._numbers = itertools.count(1)

    def new_row_id(self, form: str) -> str:
        number = next(self._numbers)
        if form == "digits":
            return str(10_000 + number)
        if form == "long":
            return f"{number:08d}" + "0123456789abcdef" * 11
        if form == "odd":
            return f"row/{number}?ü=%2F #"
        return f"row_{number:06x}"

    def create(
        self, row_id: str, cells: dict[str, Any], sent: Mapping[str, Any], by: Literal["request", "other"] = "request"
    ) -> Row:
        row = self.rows[row_id] = Row(row_id, cells, datetime.now(UTC))
        self.log.append(Change("POST", row_id, dict(sent), by))
        return row

    def update(
        self,
        row_id: str,
        cells: Mapping[str, Any],
        sent: Mapping[str, Any],
        *,
        clear_omitted: bool = False,
        by: Literal["request", "other"] = "request",
    ) -> Row:
        row = self.rows[row_id]
        if clear_omitted:
            row.columns = {}
        row.columns.update(cells)
        row.updated = datetime.now(UTC)
        self.log.append(Change("PATCH", row_id, dict(sent), by))
        return row

    def delete(self, row_id: str, by: Literal["request", "other"] = "request") -> Row:
        row = self.rows.pop(row_id)
        self.log.append(Change("DELETE", row_id, {}, by))
        return row

    def add_column(self, column: Column) -> None:
        self.columns[column.id] = column

    def rename_column(self, column_id: str, name: str) -> None:
        self.columns[column_id].name = name

    def retype_column(self, column_id: str, column_type: str) -> None:
        self.columns[column_id].type = column_type

    def remove_column(self, column_id: str) -> None:
        del self.columns[column_id]
        for row in self.rows.values():
            row.columns.pop(column_id, None)

    def by_name(self) -> list[dict[str, Any]]:
        """The rows as stored, keyed by column name; empty cells are not in them."""
        return [
            {
                column.name: row.columns[column.id]
                for column in self.columns.values()
                if row.columns.get(column.id) not in (None, "")
            }
            for row in self.rows.values()
        ]


_EMAIL = re.compile(r"[^@\s]+@[^@\s.]+(\.[^@\s.]+)+")
_URL = re.compile(r"https?://[^\s/]+\S*")


def cell_error(column: Column, value: Any, validation: str) -> str | None:
    """Why a cell that is not empty is refused, or None. `validation` is a reading of the switch of that name."""
    if validation == "none":
        return None
    strict = validation == "strict"
    if column.type == "NUMBER":
        return None if _is_number(value, strict=strict) else "must be a number"
    if column.type == "MULTI SELECT":
        values = value if isinstance(value, list) else None if strict else [str(value)]
        if values is None or not all(isinstance(item, str) for item in values):
            return "must be a list of strings"
        return _option_error(column, values)
    if isinstance(value, (int, float)) and not isinstance(value, bool) and not strict:
        value = str(value)
    if not isinstance(value, str):
        return "must be a string"
    if column.type == "DATE":
        return None if _is_date(value, strict=strict) else "must be a date"
    if column.type == "PHONE NUMBER":
        digits = value if strict else re.sub(r"[\s()+-]", "", value)
        return None if re.fullmatch(r"[0-9]{7,15}", digits) else "must be a phone number"
    if column.type == "EMAIL":
        return None if _EMAIL.fullmatch(value) else "must be an email address"
    if column.type == "URL":
        return None if _URL.fullmatch(value) else "must be a URL"
    return _option_error(column, [value]) if column.type == "SELECT" else None


def _option_error(column: Column, values: list[str]) -> str | None:
    if column.options is None or set(values) <= set(column.options):
        return None
    return "is not an option"


def _is_number(value: Any, *, strict: bool) -> bool:
    if isinstance(value, (int, float)):
        return not isinstance(value, bool)
    if strict or not isinstance(value, str):
        return False
    try:
        float(value)
    except ValueError:
        return False
    return True


def _is_date(value: str, *, strict: bool) -> bool:
    try:
        if strict:
            date.fromisoformat(value)
            return len(value) == len("2026-01-31")
        datetime.fromisoformat(value)
    except ValueError:
        return False
    return True
