"""The resources of INTERFACE.md section 2 and the error of section 7 as schemas, for the OpenAPI document."""

from __future__ import annotations

from typing import Any, get_args

from cpaas_provider.sandbox.service.handlers.otp import STATUS
from cpaas_provider.sandbox.service.requests import COLUMN_TYPES, Network, Schema

_TEXT: Schema = {"type": "string"}
_NUMBER: Schema = {"type": "number"}
_WHOLE: Schema = {"type": "integer"}
_FLAG: Schema = {"type": "boolean"}
_MOMENT: Schema = {"type": "string", "format": "date-time"}
_DATES: dict[str, Schema] = {"created_datetime": _MOMENT, "updated_datetime": _MOMENT}
_REFERENCES: dict[str, Schema] = {"external_ref": _TEXT, "callback": _TEXT}


def _object(required: str, **properties: Schema) -> Schema:
    return {"type": "object", "required": required.split(), "properties": properties}


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def ref(name: str) -> Schema:
    """Return a reference to a schema of the document."""
    return {"$ref": f"#/components/schemas/{name}"}


def _meta(part: str, block: Schema) -> Schema:
    return _object(f"method resource {part}", method=_TEXT, resource=_TEXT, **{part: block})


_MONEY = {"available_balance": _NUMBER, "charge": _NUMBER}
_EMAIL_ESTIMATE = _object("available_balance charge", **_MONEY)
_SMS_ESTIMATE = _object(
    "available_balance charge encoding message_length pages",
    **_MONEY,
    encoding={"type": "string", "enum": ["GSM-7", "UCS-2"]},
    message_length=_WHOLE,
    pages=_WHOLE,
)
_AIRTIME_CHARGE = _object(
    "amount available_balance balance_before refunded",
    amount=_NUMBER,
    available_balance=_NUMBER,
    balance_before=_NUMBER,
    refunded=_FLAG,
)
_AIRTIME_STATUS = ["pending", "sent", "failed", "error", "success", "duplicate"]

SCHEMAS: dict[str, Schema] = {
    "AirtimePurchase": _object(
        "id recipient status created_datetime network meta",
        id=_TEXT,
        recipient=_TEXT,
        status={"type": "string", "enum": _AIRTIME_STATUS},
        created_datetime=_MOMENT,
        network={"type": "string", "enum": list(get_args(Network))},
        meta=_meta("charge", _AIRTIME_CHARGE),
        **_REFERENCES,
    ),
    "EmailMessage": _object(
        "id recipients sender_id created_datetime meta",
        id=_TEXT,
        recipients=_list(_TEXT),
        sender_id=_TEXT,
        from_name=_TEXT,
        template_id=_TEXT,
        personalisation=_list(ref("Personalisation")),
        meta=_meta("estimate", _EMAIL_ESTIMATE),
        **_REFERENCES,
        **_DATES,
    ),
    "SmsMessage": _object(
        "id recipients sender_id is_trackable content created_datetime meta",
        id=_TEXT,
        recipients=_list(_TEXT),
        sender_id=_TEXT,
        is_trackable=_FLAG,
        content=_TEXT,
        template_id=_TEXT,
        personalisation=_list(ref("Personalisation")),
        meta=_meta("estimate", _SMS_ESTIMATE),
        **_REFERENCES,
        **_DATES,
    ),
    "Token": _object(
        "id recipient status status_desc created_datetime",
        id=_TEXT,
        recipient=_TEXT,
        status={"type": "number", "enum": list(STATUS)},
        status_desc={"type": "string", "enum": list(STATUS.values())},
        **_DATES,
    ),
    "Tokens": _list(ref("Token")),
    "ContactColumn": _object("id name type", id=_TEXT, name=_TEXT, type={"type": "string", "enum": list(COLUMN_TYPES)}),
    "ContactTable": _object("id columns created_datetime", id=_TEXT, columns=_list(ref("ContactColumn")), **_DATES),
    "ContactRow": _object(
        "id columns created_datetime",
        id=_TEXT,
        columns={"type": "object", "description": "Column ID to cell value, null where the cell is clear"},
        **_DATES,
    ),
    "RowAndTable": _object("row table", row=ref("ContactRow"), table=ref("ContactTable")),
    "PhoneLookup": _object("msisdn", msisdn=_TEXT, operator=_TEXT, country=_TEXT, ported=_FLAG, dnd=_FLAG),
    "Message": _object("status message", status=_WHOLE, type=_TEXT, message=_TEXT),
    "Error": _object(
        "status message errors",
        status={"type": "number", "description": "Not always the HTTP status"},
        message=_TEXT,
        errors=_list(_object("field message type", field=_TEXT, message=_TEXT, type=_TEXT)),
    ),
}

# What DELETE returns, by the setting `delete_body` and the operation; None is no body at all.
DELETED: dict[str, dict[str, str | None]] = {
    "message": {"revoke_otp": "Message", "delete_contact_row": "Message"},
    "record": {"revoke_otp": "Token", "delete_contact_row": "ContactRow"},
    "empty": {"revoke_otp": None, "delete_contact_row": None},
}


def enveloped(schema: Schema, envelope: bool) -> Schema:
    """Return a result's schema, wrapped where the settings say so."""
    if not envelope:
        return schema
    return _object("status type message data", status=_WHOLE, type={"const": "success"}, message=_TEXT, data=schema)


def error_response(description: str, **headers: Any) -> dict[str, Any]:
    """Return a response in the documented error shape."""
    response: dict[str, Any] = {
        "description": description,
        "content": {"application/json": {"schema": ref("Error")}},
    }
    return response | ({"headers": headers} if headers else {})
