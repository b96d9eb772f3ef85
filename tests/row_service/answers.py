"""What the service answers: rows, tables and errors in the form that the switches say."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tests.row_service.switches import Switches
from tests.row_service.table import Column, ContactTable, Row


@dataclass(frozen=True)
class Answer:
    status: int
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()


class Refused(Exception):  # noqa: N818 - an answer, no error of the service
    """A request that is not carried out, and the answer to it."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.status)
        self.answer = answer


def to_json(status: int, value: Any, *headers: tuple[str, str]) -> Answer:
    return Answer(status, json.dumps(value).encode(), (("Content-Type", "application/json"), *headers))


def error(
    status: int, message: str, errors: list[dict[str, str]] | None = None, *, in_body: int | None = None
) -> Answer:
    """The error body of section 7, with or without its list."""
    body: dict[str, Any] = {"status": status if in_body is None else in_body, "message": message}
    if errors is not None:
        body["errors"] = errors
    return to_json(status, body)


def gone(form: str) -> Answer:
    """The answer of a `GoneAnswer` switch."""
    status, kind = int(form[:3]), form[4:]
    if kind == "empty" and status != 200:
        return Answer(status)
    item = {"field": "row_id", "message": "Row does not exist"}
    errors = {
        "items": [item | {"type": "not_found"}],
        "missing": [item | {"type": "missing"}],
        "untyped": [item],
        "empty": [],
        "bare": None,
    }
    return error(status, "Row not found", errors[kind])


def invalid(switches: Switches, problems: list[tuple[Column | str, str, str]]) -> Answer:
    """The answer for refused columns: `(column or unknown id, message, type)` of each."""
    if switches.invalid_errors == "no_body":
        return Answer(400)
    if switches.invalid_errors in ("bare", "empty"):
        errors: list[dict[str, str]] | None = [] if switches.invalid_errors == "empty" else None
        return error(switches.invalid_status, "Invalid row", errors)
    errors = []
    for column, message, kind in problems:
        column_id, name = (column, column) if isinstance(column, str) else (column.id, column.name)
        item = {"field": {"id": column_id, "name": name, "path": f"columns.{column_id}"}[switches.error_field]}
        item["message"] = message
        if switches.invalid_errors == "items":
            item["type"] = kind
        errors.append(item)
    return error(switches.invalid_status, "Invalid row", errors)


def success(switches: Switches, value: Any, *, status: int = 200) -> Answer:
    if switches.envelope == "bare":
        return to_json(status, value)
    return to_json(
        status,
        {
            "status": status if switches.envelope == "number" else "success",
            "type": "success",
            "message": "OK",
            "data": value,
        },
    )


def table_body(switches: Switches, table: ContactTable) -> dict[str, Any]:
    body: dict[str, Any] = {
        "id": table.id,
        "columns": [{"id": column.id, "name": column.name, "type": column.type} for column in table.columns.values()],
    }
    _add_times(switches, body, table.created, None)
    if switches.extra_fields == "with":
        body |= {"name": "Contacts", "row_count": len(table.rows), "links": {"rows": None}}
        for column in body["columns"]:
            column |= {"position": 1, "status": 200, "message": "a column", "errors": []}
    return body


def row_body(switches: Switches, table: ContactTable, row: Row, only: set[str] | None = None) -> dict[str, Any]:
    cells: dict[str, Any] = {}
    for column in table.columns.values():
        if only is not None and column.id not in only:
            continue
        value = row.columns.get(column.id)
        if value is None or value == "" or value == []:
            if switches.empty_form != "omitted":
                cells[column.id] = None if switches.empty_form == "null" else ""
        else:
            cells[column.id] = cell_body(switches, column, value)
    body: dict[str, Any] = {"id": row.id, "columns": cells}
    _add_times(switches, body, row.created, row.updated)
    if switches.extra_fields == "with":
        body |= {"position": 1, "status": "active", "type": "contact", "deleted": False}
    return body


def row_and_table(switches: Switches, table: ContactTable, row: Row, only: set[str] | None = None) -> dict[str, Any]:
    body: dict[str, Any] = {"row": row_body(switches, table, row, only)}
    if switches.answer_table == "with":
        body["table"] = table_body(switches, table)
    return body


def cell_body(switches: Switches, column: Column, value: Any) -> Any:
    if column.type == "NUMBER" and switches.number_form == "text" and not isinstance(value, str):
        return str(value)
    if column.type == "DATE" and switches.date_form == "with_time" and isinstance(value, str) and "T" not in value:
        return f"{value}T00:00:00.000000+00:00"
    if column.type == "PHONE NUMBER" and switches.phone_form == "plus" and isinstance(value, str):
        return value if value.startswith("+") else f"+{value}"
    if column.type == "MULTI SELECT" and isinstance(value, list):
        if switches.multi_form == "comma":
            return ",".join(map(str, value))
        return value[::-1] if switches.multi_form == "reversed" else value
    return value


def deleted(switches: Switches, table: ContactTable, row: Row | None) -> Answer:
    """The answer of a successful DELETE. `row` is None where the row did not exist before."""
    form = switches.delete_answer
    if form == "204":
        return Answer(204)
    if form == "message":
        return to_json(200, {"message": "Row deleted"})
    if form == "message_status":
        return to_json(200, {"status": 200, "message": "Row deleted"})
    if form == "empty" or row is None:
        return Answer(200)
    if form == "wrapped":
        data = {"row": row_body(switches, table, row)}
        return to_json(200, {"status": 200, "type": "success", "message": "Row deleted", "data": data})
    return success(switches, row_body(switches, table, row) if form == "row" else row_and_table(switches, table, row))


def _add_times(switches: Switches, body: dict[str, Any], created: datetime, updated: datetime | None) -> None:
    if switches.timestamps != "none":
        body["created_datetime"] = created.isoformat(timespec="microseconds")
    if switches.timestamps == "all":
        body["updated_datetime"] = updated.isoformat(timespec="microseconds") if updated else None
