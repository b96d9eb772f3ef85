"""What arrived, for people and tests to look into: one item for each message and recipient, newest first."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cpaas_provider.sandbox import contacts, otp
from cpaas_provider.sandbox.account import to_amount
from cpaas_provider.sandbox.clock import timestamp
from cpaas_provider.sandbox.database import Row

if TYPE_CHECKING:
    from cpaas_provider.sandbox.state import Sandbox

MAX_LIMIT = 1000

_DELIVERIES = """
SELECT d.*, m.channel, m.sender_id, m.from_name, m.reply_to, m.template_id, m.external_ref, m.callback,
       m.is_trackable, m.created
FROM deliveries d JOIN messages m ON m.id = d.message_id"""

# Columns of the tables that are moments or money.
_MOMENTS = {"created": "created_datetime", "updated": "updated_datetime", "expires": "expires_datetime"}
_MONEY = ("charge", "amount")


@dataclass(frozen=True, slots=True)
class Box:
    """Where one kind of item is found, by what, and how it is shown; ``reference`` is a whole condition."""

    source: str
    count: str
    recipient: str | None
    reference: str | None
    show: Callable[[Sandbox, Row], dict[str, Any]]
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


def _callback(sandbox: Sandbox, row: Row) -> dict[str, Any]:
    return _plain(sandbox, row) | {"body": json.loads(row["body"]), "due_datetime": timestamp(row["due"])}


def _of_deliveries(kind: str) -> Box:
    reference = "d.message_id IN (SELECT id FROM messages WHERE external_ref = ?)"
    only = (f"d.kind = '{kind}'",)
    return Box(_DELIVERIES, "SELECT count(*) FROM deliveries d", "d.recipient", reference, _delivery, "d.seq", only)


def _of(table: str, show: Callable[[Sandbox, Row], dict[str, Any]], recipient: str, reference: str | None) -> Box:
    return Box(f"SELECT * FROM {table}", f"SELECT count(*) FROM {table}", recipient, reference, show)  # noqa: S608 - names of ours


BOXES: dict[str, Box] = {
    "sms": _of_deliveries("sms"),
    "email": _of_deliveries("email"),
    "otp": _of("otps", _otp, "recipient", None),
    "airtime": _of("airtime", _airtime, "recipient", "external_ref = ?"),
    "contacts": _of("contacts", _contact, "columns", None),
    "lookups": _of("lookups", _lookup, "recipient", None),
    "callbacks": _of("callbacks", _callback, "recipient", "external_ref = ?"),
}


def _like(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return f"%{escaped}%"


def look(
    sandbox: Sandbox,
    name: str,
    recipient: str | None = None,
    external_ref: str | None = None,
    search: str | None = None,
    limit: int = 50,
    offset: int = 0,
) -> dict[str, Any]:
    """Return a page of a box; raise ValueError where the box knows no such filter."""
    box = BOXES[name]
    where, values = list(box.only), list[Any]()
    if recipient is not None and name == "contacts":
        # a contact's recipients are cells: any text cell that equals the value
        where.append("EXISTS (SELECT 1 FROM json_each(contacts.columns) WHERE json_each.value = ?)")
        values.append(recipient)
    elif recipient is not None:
        where.append(f"{box.recipient} = ?")
        values.append(recipient)
    if external_ref is not None:
        if box.reference is None:
            raise ValueError(f"{name} have no external_ref")
        where.append(box.reference)
        values.append(external_ref)
    if search:
        where.append(f"{box.recipient} LIKE ? ESCAPE '\\'")
        values.append(_like(search))
    clause = f" WHERE {' AND '.join(where)}" if where else ""
    total = sandbox.database.number(box.count + clause, values)
    sql = f"{box.source}{clause} ORDER BY {box.order} DESC LIMIT ? OFFSET ?"
    rows = sandbox.database.rows(sql, [*values, limit, offset])
    items = [box.show(sandbox, row) for row in rows]
    return {"total": total, "limit": limit, "offset": offset, "items": items}
