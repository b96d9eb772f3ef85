"""The contact list: one table with typed columns (contract.md 2.5 and 4.9 to 4.13)."""

from __future__ import annotations

import json
import uuid
from typing import Any

from cpaas_sandbox.core.clock import datetimes
from cpaas_sandbox.core.context import Sandbox
from cpaas_sandbox.core.database import Row
from cpaas_sandbox.core.errors import not_found
from cpaas_sandbox.service.http import Request


def table_json(sandbox: Sandbox) -> dict[str, Any]:
    """Return the table as the service shows it."""
    table = sandbox.table
    columns = [{"id": column.id, "name": column.name, "type": column.type} for column in table.columns.values()]
    return {"id": table.id, "columns": columns, **datetimes(table.created, table.updated)}


def row_json(sandbox: Sandbox, row: Row) -> dict[str, Any]:
    """Return a row as the service shows it: every column of the table, null for an empty cell."""
    cells = json.loads(row["columns"])
    columns = {id_: cells.get(id_) for id_ in sandbox.table.columns}
    return {"id": row["id"], "columns": columns, **datetimes(row["created"], row["updated"])}


def _found(sandbox: Sandbox, row_id: str) -> Row:
    row = sandbox.database.row("SELECT * FROM contacts WHERE id = ?", [row_id])
    if row is None:
        raise not_found("row_id", "There is no contact row with this id")
    return row


def _both(sandbox: Sandbox, row: Row) -> dict[str, Any]:
    return {"row": row_json(sandbox, row), "table": table_json(sandbox)}


def add_row(sandbox: Sandbox, cells: dict[str, Any], row_id: str | None = None) -> str:
    """Store a new row of checked cells and return its id."""
    row_id = row_id or uuid.uuid4().hex
    values = [row_id, json.dumps(cells), sandbox.clock.now()]
    sandbox.database.execute("INSERT INTO contacts (id, columns, created) VALUES (?, ?, ?)", values)
    return row_id


def get_table(sandbox: Sandbox, request: Request) -> dict[str, Any]:
    """Answer GET /lists/contact."""
    return table_json(sandbox)


def get_row(sandbox: Sandbox, request: Request) -> dict[str, Any]:
    """Answer GET /lists/contact/row/{row_id}."""
    return _both(sandbox, _found(sandbox, request.id))


def create_row(sandbox: Sandbox, request: Request) -> dict[str, Any]:
    """Answer POST /lists/contact/rows."""
    row_id = add_row(sandbox, request.fields["columns"])
    sandbox.counters.add("contacts.created")
    return _both(sandbox, _found(sandbox, row_id))


def update_row(sandbox: Sandbox, request: Request) -> dict[str, Any]:
    """Answer PATCH /lists/contact/rows/{row_id}; cells that the request leaves out stay."""
    row = _found(sandbox, request.id)
    cells = json.loads(row["columns"]) | request.fields["columns"]
    values = [json.dumps(cells), sandbox.clock.now(), row["id"]]
    sandbox.database.execute("UPDATE contacts SET columns = ?, updated = ? WHERE id = ?", values)
    sandbox.counters.add("contacts.updated")
    return _both(sandbox, _found(sandbox, row["id"]))


def delete_row(sandbox: Sandbox, request: Request) -> dict[str, Any]:
    """Answer DELETE /lists/contact/rows/{row_id}."""
    row = _found(sandbox, request.id)
    sandbox.database.execute("DELETE FROM contacts WHERE id = ?", [row["id"]])
    sandbox.counters.add("contacts.deleted")
    return row_json(sandbox, row)
