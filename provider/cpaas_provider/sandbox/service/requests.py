"""The request bodies of INTERFACE.md section 4 as data: they describe and check at once (see ``schema``)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from cpaas_provider.sandbox.core.patterns import EMAIL, EMAIL_PATTERN, MSISDN, MSISDN_PATTERN, URL_PATTERN
from cpaas_provider.sandbox.service.schema import Schema

NETWORKS = ["Airtel", "MTN", "Glo", "9mobile", "NTEL"]
CHANNELS = ["sms", "whatsapp"]
MIN_AIRTIME, MAX_AIRTIME = 50, 500_000


def _text(description: str, **more: Any) -> Schema:
    return {"type": "string", "description": description, **more}


def msisdn(description: str) -> Schema:
    """Return the schema of a number: international format, digits, no plus sign."""
    sentence = "must be a number in international format: 7 to 15 digits without plus sign"
    return _text(description, pattern=MSISDN_PATTERN, examples=["2348030000001"], **{"x-message": sentence})


def email_address(description: str) -> Schema:
    """Return the schema of one email address."""
    return _text(
        description,
        pattern=EMAIL_PATTERN,
        examples=["ada@example.com"],
        **{"x-message": "must be an email address"},
    )


def url(description: str) -> Schema:
    """Return the schema of a web address."""
    sentence = "must be an absolute http or https URL"
    examples = ["http://127.0.0.1:8086/reports"]
    return _text(description, pattern=URL_PATTERN, examples=examples, **{"x-message": sentence})


def _list_of(item: str, description: str, example: str, sentence: str, **more: Any) -> Schema:
    pattern = f"^{item}(?:, ?{item})*$"
    return _text(description, pattern=pattern, examples=[example], **more, **{"x-message": sentence})


_CALLBACK = url("URL that receives delivery reports")
_REFERENCE = _text("The caller's own reference", maxLength=500, examples=["order-1001"])
_OTP_ID = _text("ID of the OTP token")

PERSONALISATION: Schema = {
    "type": "array",
    "description": "What the placeholders stand for, recipient by recipient",
    "items": {
        "type": "object",
        "required": ["to", "substitutions"],
        "properties": {
            "to": _text("Recipient"),
            "substitutions": {"type": "object", "description": "Placeholder name to value"},
        },
    },
}

BUY_AIRTIME: Schema = {
    "type": "object",
    "required": ["network", "amount", "recipient"],
    "properties": {
        "network": _text("Network carrier", enum=NETWORKS),
        "amount": {
            "type": "number",
            "minimum": MIN_AIRTIME,
            "maximum": MAX_AIRTIME,
            "description": "Airtime amount to recharge",
        },
        "recipient": msisdn("Recipient number"),
        "callback": _CALLBACK,
        "external_ref": _REFERENCE,
    },
}

REQUEST_OTP: Schema = {
    "type": "object",
    "required": ["recipient"],
    "properties": {
        "recipient": msisdn("Recipient number"),
        "length": {"type": "integer", "minimum": 4, "maximum": 8, "default": 4, "description": "Digits of the code"},
        "expires_in": {"type": "number", "minimum": 1, "maximum": 60, "default": 15, "description": "Minutes"},
        "token": _text("The code itself; generated where omitted", minLength=1, maxLength=64),
        "channel": _text("How the code travels", enum=CHANNELS),
    },
}

VERIFY_OTP: Schema = {
    "type": "object",
    "required": ["token", "id"],
    "properties": {"token": _text("The code to verify"), "id": _OTP_ID},
}

LOOKUP_PHONE: Schema = {
    "type": "object",
    "required": ["phone"],
    "properties": {"phone": msisdn("Number to look up")},
}


def _with_text(schema: Schema, templates: Iterable[str]) -> Schema:
    """Add content and template_id, of which one is required; only templates that exist may be named."""
    known = sorted(templates)
    schema["properties"]["content"] = _text(
        "Message text; required where no template_id is given", minLength=1, examples=["Hello {name}"]
    )
    schema["properties"]["template_id"] = _text(
        "Template whose text is sent; required where no content is given",
        enum=known,
        **{"x-message": "is not a template of this account"},
    )
    schema["anyOf"] = [{"required": ["content"]}, {"required": ["template_id"]}]
    if not known:  # nothing can be named, so content it must be
        schema["required"] = [*schema["required"], "content"]
        schema["properties"]["template_id"] = {"type": "string", "pattern": "^(?!)$", "x-message": "no templates exist"}
    return schema


def send_sms(templates: Iterable[str]) -> Schema:
    """Return the body of POST /sms/send."""
    numbers = _list_of(
        MSISDN,
        "Comma-separated list of numbers, international format without plus sign",
        "2348030000001,2348030000002",
        "must be numbers in international format, 7 to 15 digits without plus sign, separated by commas",
    )
    sender = _text(
        "Sender ID: a number, or at most 11 characters when alphanumeric",
        pattern="^(?:[0-9]{1,15}|[A-Za-z0-9][A-Za-z0-9 ._&-]{0,10})$",
        examples=["Acme"],
        **{"x-message": "must be a number, or at most 11 letters and digits"},
    )
    schema: Schema = {
        "type": "object",
        "required": ["recipients", "sender_id"],
        "properties": {
            "channel": _text("How the message travels", enum=CHANNELS, default="sms"),
            "recipients": numbers,
            "sender_id": sender,
            "personalisation": PERSONALISATION,
            "external_ref": _REFERENCE,
            "is_trackable": {"type": "boolean", "default": False, "description": "Whether links are tracked"},
            "callback": _CALLBACK,
        },
    }
    return _with_text(schema, templates)


def send_email(templates: Iterable[str]) -> Schema:
    """Return the body of POST /email/send."""
    addresses = _list_of(
        EMAIL,
        "Comma-separated list of email addresses",
        "ada@example.com,bayo@example.com",
        "must be email addresses separated by commas",
        minLength=4,
    )
    schema: Schema = {
        "type": "object",
        "required": ["recipients", "sender_id"],
        "properties": {
            "recipients": addresses,
            "sender_id": email_address("Sender ID, an email address"),
            "from_name": _text("Sender name"),
            "subject": _text("Subject"),
            "reply_to": email_address("Address replies go to"),
            "external_ref": _REFERENCE,
            "callback": _CALLBACK,
            "personalisation": PERSONALISATION,
        },
    }
    return _with_text(schema, templates)


def row_columns(cells: dict[str, Schema]) -> Schema:
    """Return the body that creates or updates a row: one property for each column of the present table."""
    columns: Schema = {
        "type": "object",
        "description": "Column ID to cell value; null or an empty string clears a cell",
        "properties": cells,
        "additionalProperties": False,
        "x-unknown": "is not a column of this table",
    }
    return {"type": "object", "required": ["columns"], "properties": {"columns": columns}}
