"""What arrived, for people and tests to look into: one item for each message and recipient, newest first."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cpaas_provider.sandbox.core.account import to_amount
from cpaas_provider.sandbox.core.clock import timestamp
from cpaas_provider.sandbox.core.context import Sandbox
from cpaas_provider.sandbox.core.database import Row
from cpaas_provider.sandbox.service.handlers import contacts, otp

MAX_LIMIT = 1000

_DELIVERIES = """
SELECT d.*, m.channel, m.sender_id, m.from_name, m.reply_to, m.template_id, m.external_ref, m.callback,
       m.is_trackable, m.created
FROM deliveries d JOIN messages m ON m.id = d.message_id"""

# Columns of the tables that are moments or money.
_MOMENTS = {"created": "created_datetime", "updated": "updated_datetime", "expires": "expires_datetime"}
_MONEY = ("charge", "amount")


Show = Callable[["Sandbox", Row], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class InboxView:
    """Where one kind of item is found, by what, and how it is shown; ``reference`` is a whole condition."""

    source: str
    count: str
    recipient: str | None
    reference: str | None
    show: Show
    message: str | None = None
    order: str = "seq"
    only: tuple[str, ...] = ()


def _plain(sandbox: Sandbox, row: Row) -> dict[str, Any]:
    """Show moments and money as the service shows them."""
    item = {key: value for key, value in row.items() if key not in _MOMENTS and key != "due"}
    item |= {key: to_amount(row[key]) for key in _MONEY if key in row}
    return item | {name: timestamp(row[key]) for key, name in _MOMENTS.items() if row.get(key) is not None}


def _delivery(sandbox: Sandbox, row: Row) -> dict[str, Any]:
    item = _plain(sandbox, row)
    item["is_trackable"] = bool(row["is_trackable"])
    item["status"] = item.pop("outcome")
    return item


def _otp(sandbox: Sandbox, row: Row) -> dict[str, Any]:
    status = otp.present_status(row, sandbox.clock.now())
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


def _of_deliveries(kind: str) -> InboxView:
    reference = "d.message_id IN (SELECT id FROM messages WHERE external_ref = ?)"
    only = (f"d.kind = '{kind}'",)
    count = "SELECT count(*) FROM deliveries d"
    return InboxView(_DELIVERIES, count, "d.recipient", reference, _delivery, "d.message_id", "d.seq", only)


def _of(table: str, show: Show, recipient: str, reference: str | None = None, message: str | None = None) -> InboxView:
    rows, count = f"SELECT * FROM {table}", f"SELECT count(*) FROM {table}"  # noqa: S608 - names of ours
    return InboxView(rows, count, recipient, reference, show, message)


VIEWS: dict[str, InboxView] = {
    "sms": _of_deliveries("sms"),
    "email": _of_deliveries("email"),
    "otp": _of("otps", _otp, "recipient"),
    "airtime": _of("airtime", _airtime, "recipient", "external_ref = ?", "id"),
    "contacts": _of("contacts", _contact, "columns"),
    "lookups": _of("lookups", _lookup, "recipient"),
    "reports": _of("reports", _report, "recipient", "external_ref = ?", "message_id"),
}


def _like(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return f"%{escaped}%"


def query(
    sandbox: Sandbox,
    name: str,
    recipient: str | None = None,
    external_ref: str | None = None,
    search: str | None = None,
    limit: int = 50,
    offset: int = 0,
    message_id: str | None = None,
) -> dict[str, Any]:
    """Return a page of a box; raise ValueError where the box knows no such filter."""
    view = VIEWS[name]
    where, values = list(view.only), list[Any]()
    if recipient is not None and name == "contacts":
        # a contact's recipients are cells: any text cell that equals the value
        where.append("EXISTS (SELECT 1 FROM json_each(contacts.columns) WHERE json_each.value = ?)")
        values.append(recipient)
    elif recipient is not None:
        where.append(f"{view.recipient} = ?")
        values.append(recipient)
    if external_ref is not None:
        if view.reference is None:
            raise ValueError(f"{name} have no external_ref")
        where.append(view.reference)
        values.append(external_ref)
    if message_id is not None:
        if view.message is None:
            raise ValueError(f"{name} have no message_id")
        where.append(f"{view.message} = ?")
        values.append(message_id)
    if search:
        where.append(f"{view.recipient} LIKE ? ESCAPE '\\'")
        values.append(_like(search))
    clause = f" WHERE {' AND '.join(where)}" if where else ""
    total = sandbox.database.number(view.count + clause, values)
    sql = f"{view.source}{clause} ORDER BY {view.order} DESC LIMIT ? OFFSET ?"
    rows = sandbox.database.rows(sql, [*values, limit, offset])
    items = [view.show(sandbox, row) for row in rows]
    return {"total": total, "limit": limit, "offset": offset, "items": items}
