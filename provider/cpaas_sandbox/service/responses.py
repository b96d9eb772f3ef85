"""The JSON schemas of the resources (contract.md 2) and of the error (section 7), for the OpenAPI document."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, get_args

from cpaas_sandbox.service.handlers.otp import STATUS
from cpaas_sandbox.service.requests import COLUMN_TYPES, Network, Schema

_TEXT: Schema = {"type": "string"}
_NUMBER: Schema = {"type": "number"}
_WHOLE: Schema = {"type": "integer"}
_FLAG: Schema = {"type": "boolean"}
_MOMENT: Schema = {"type": "string", "format": "date-time"}
_UPDATED: dict[str, Schema] = {"updated_datetime": _MOMENT}
_REFERENCES: dict[str, Schema] = {"external_ref": _TEXT, "callback": _TEXT}


def _enum(values: Iterable[Any], kind: str = "string") -> Schema:
    return {"type": kind, "enum": list(values)}


def _object(optional: dict[str, Schema] | None = None, /, **required: Schema) -> Schema:
    return {"type": "object", "required": list(required), "properties": required | (optional or {})}


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def ref(name: str) -> Schema:
    """Return a reference to a schema of the document."""
    return {"$ref": f"#/components/schemas/{name}"}


def _meta(**part: Schema) -> Schema:
    return _object(method=_TEXT, resource=_TEXT, **part)


_MONEY = {"available_balance": _NUMBER, "charge": _NUMBER}
_SIZE = {"encoding": _enum(("GSM-7", "UCS-2")), "message_length": _WHOLE, "pages": _WHOLE}
_CHARGE = _object(amount=_NUMBER, available_balance=_NUMBER, balance_before=_NUMBER, refunded=_FLAG)
_SENT = {"id": _TEXT, "recipients": _list(_TEXT), "sender_id": _TEXT, "created_datetime": _MOMENT}
_SENT_IF_GIVEN = {"template_id": _TEXT, "personalisation": _list(ref("Personalisation")), **_REFERENCES, **_UPDATED}
_CELLS = {"type": "object", "description": "Column ID to cell value, null where the cell is clear"}

SCHEMAS: dict[str, Schema] = {
    "AirtimePurchase": _object(
        _REFERENCES,
        id=_TEXT,
        recipient=_TEXT,
        status=_enum(("pending", "sent", "failed", "error", "success", "duplicate")),
        created_datetime=_MOMENT,
        network=_enum(get_args(Network)),
        meta=_meta(charge=_CHARGE),
    ),
    "EmailMessage": _object(_SENT_IF_GIVEN | {"from_name": _TEXT}, **_SENT, meta=_meta(estimate=_object(**_MONEY))),
    "SmsMessage": _object(
        _SENT_IF_GIVEN, **_SENT, is_trackable=_FLAG, content=_TEXT, meta=_meta(estimate=_object(**_MONEY, **_SIZE))
    ),
    "Token": _object(
        _UPDATED,
        id=_TEXT,
        recipient=_TEXT,
        status=_enum(STATUS, "number"),
        status_desc=_enum(STATUS.values()),
        created_datetime=_MOMENT,
    ),
    "Tokens": _list(ref("Token")),
    "ContactColumn": _object(id=_TEXT, name=_TEXT, type=_enum(COLUMN_TYPES)),
    "ContactTable": _object(_UPDATED, id=_TEXT, columns=_list(ref("ContactColumn")), created_datetime=_MOMENT),
    "ContactRow": _object(_UPDATED, id=_TEXT, columns=_CELLS, created_datetime=_MOMENT),
    "RowAndTable": _object(row=ref("ContactRow"), table=ref("ContactTable")),
    "PhoneLookup": _object({"operator": _TEXT, "country": _TEXT, "ported": _FLAG, "dnd": _FLAG}, msisdn=_TEXT),
    "Message": _object({"type": _TEXT}, status=_WHOLE, message=_TEXT),
    "Error": _object(
        status={"type": "number", "description": "Not always the HTTP status"},
        message=_TEXT,
        errors=_list(_object(field=_TEXT, message=_TEXT, type=_TEXT)),
    ),
}

# The record that DELETE returns if the setting `delete_body` is `record`.
DELETED = {"revoke_otp": "Token", "delete_contact_row": "ContactRow"}


def enveloped(schema: Schema, envelope: bool) -> Schema:
    """Return a result's schema, in the envelope if there is one."""
    return _object(status=_WHOLE, type={"const": "success"}, message=_TEXT, data=schema) if envelope else schema


def error_response(description: str, **headers: Any) -> dict[str, Any]:
    """Return a response in the documented error shape."""
    response = {"description": description, "content": {"application/json": {"schema": ref("Error")}}}
    return response | ({"headers": headers} if headers else {})
