"""The inbox: everything that the sandbox accepted, one item for each message and recipient, newest first."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from cpaas_sandbox.core.account import to_amount
from cpaas_sandbox.core.clock import timestamp
from cpaas_sandbox.core.context import Sandbox
from cpaas_sandbox.core.database import Row
from cpaas_sandbox.service.handlers import contacts, otp

MAX_LIMIT = 1000

# Columns of the tables that are moments or money.
_MOMENTS = {"created": "created_datetime", "updated": "updated_datetime", "expires": "expires_datetime"}
_MONEY = ("charge", "amount")

_DELIVERIES = """
SELECT d.*, m.channel, m.sender_id, m.from_name, m.reply_to, m.template_id, m.external_ref, m.callback,
       m.is_trackable, m.created
FROM deliveries d JOIN messages m ON m.id = d.message_id"""
_LIKE = "LIKE '%' || replace(replace(replace(?, '\\', '\\\\'), '%', '\\%'), '_', '\\_') || '%' ESCAPE '\\'"


@dataclass(frozen=True, slots=True)
class InboxView:
    """The queries for one kind of item, its filters, and the function that turns a row into an item."""

    rows: str
    count: str
    filters: dict[str, str]
    show: Callable[[Sandbox, Row], dict[str, Any]]
    order: str = "seq"
    only: str = "1"


def _plain(sandbox: Sandbox, row: Row) -> dict[str, Any]:
    """Return a row with moments and money in the form that the service uses."""
    item = {key: value for key, value in row.items() if key not in _MOMENTS and key != "due"}
    item |= {key: to_amount(row[key]) for key in _MONEY if key in row}
    return item | {name: timestamp(row[key]) for key, name in _MOMENTS.items() if row.get(key) is not None}


def _delivery(sandbox: Sandbox, row: Row) -> dict[str, Any]:
    item = _plain(sandbox, row) | {"is_trackable": bool(row["is_trackable"])}
    return item | {"status": item.pop("outcome")}


def _otp(sandbox: Sandbox, row: Row) -> dict[str, Any]:
    status = otp.current_status(row, sandbox.clock.now())
    return _plain(sandbox, row) | {"status": status, "status_desc": otp.STATUS[status]}


def _airtime(sandbox: Sandbox, row: Row) -> dict[str, Any]:
    return _plain(sandbox, row) | {"refunded": bool(row["refunded"])}


def _contact(sandbox: Sandbox, row: Row) -> dict[str, Any]:
    return {"seq": row["seq"]} | contacts.row_json(sandbox, row)


def _lookup(sandbox: Sandbox, row: Row) -> dict[str, Any]:
    return _plain(sandbox, row) | {"answer": json.loads(row["answer"])}


def _report(sandbox: Sandbox, row: Row) -> dict[str, Any]:
    item = {name: value for name, value in _plain(sandbox, row).items() if name not in ("first", "turn")}
    return item | {"body": json.loads(row["body"]), "due_datetime": timestamp(row["due"])}


def _message_view(kind: str) -> InboxView:
    filters = {
        "recipient": "d.recipient = ?",
        "search": f"d.recipient {_LIKE}",
        "external_ref": "d.message_id IN (SELECT id FROM messages WHERE external_ref = ?)",
        "message_id": "d.message_id = ?",
    }
    return InboxView(
        _DELIVERIES, "SELECT count(*) FROM deliveries d", filters, _delivery, "d.seq", f"d.kind = '{kind}'"
    )


def _table_view(table: str, show: Callable[[Sandbox, Row], dict[str, Any]], **filters: str) -> InboxView:
    filters = {"recipient": "recipient = ?", "search": f"recipient {_LIKE}"} | filters
    return InboxView(f"SELECT * FROM {table}", f"SELECT count(*) FROM {table}", filters, show)  # noqa: S608 - names of ours


VIEWS: dict[str, InboxView] = {
    "sms": _message_view("sms"),
    "email": _message_view("email"),
    "otp": _table_view("otps", _otp),
    "airtime": _table_view("airtime", _airtime, external_ref="external_ref = ?", message_id="id = ?"),
    "contacts": _table_view(
        "contacts",
        _contact,
        # A contact has no recipient of its own: any cell that equals the value counts.
        recipient="EXISTS (SELECT 1 FROM json_each(contacts.columns) WHERE json_each.value = ?)",
        search=f"columns {_LIKE}",
    ),
    "lookups": _table_view("lookups", _lookup),
    "reports": _table_view("reports", _report, external_ref="external_ref = ?", message_id="message_id = ?"),
}


def query(sandbox: Sandbox, view_name: str, filters: Mapping[str, str], limit: int, offset: int) -> dict[str, Any]:
    """Return a page of a view; raise ValueError for a filter that the view does not have."""
    view = VIEWS[view_name]
    unknown = sorted(set(filters) - set(view.filters))
    if unknown:
        raise ValueError(f"{view_name} have no {', '.join(unknown)}")
    clause = f" WHERE {' AND '.join([view.only, *(view.filters[name] for name in filters)])}"
    values = list(filters.values())
    total = sandbox.database.number(view.count + clause, values)
    rows = f"{view.rows}{clause} ORDER BY {view.order} DESC LIMIT ? OFFSET ?"
    items = [view.show(sandbox, row) for row in sandbox.database.rows(rows, [*values, limit, offset])]
    return {"total": total, "limit": limit, "offset": offset, "items": items}
