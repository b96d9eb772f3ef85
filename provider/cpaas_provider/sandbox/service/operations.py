"""The fourteen operations of INTERFACE.md section 4 as data, and which of them a method and path name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from cpaas_provider.sandbox.core.context import Sandbox
from cpaas_provider.sandbox.core.errors import FieldError, ServiceError
from cpaas_provider.sandbox.service import requests
from cpaas_provider.sandbox.service.handlers import airtime, contacts, lookup, messages, otp
from cpaas_provider.sandbox.service.http import Request

Handler = Callable[[Sandbox, Request], Any]


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of the service."""

    name: str
    method: str
    path: str
    section: str
    summary: str
    handler: Handler
    result: str
    body: Any = None
    """Type of the body, or ``row_body``, which makes it of the present columns."""
    query: Any = None
    texts: str | None = None
    """The channel of the templates that may be named in place of content."""
    spends: bool = False
    deprecated: bool = False
    alias: str | None = None
    deletes: str | None = None
    """What a DELETE says was done, where it returns a message."""

    @property
    def by_id(self) -> bool:
        """Whether the path names one resource."""
        return "{" in self.path


OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "buy_airtime", "POST", "/airtime/buy", "4.1", "Buy airtime", airtime.buy, "AirtimePurchase",
        body=requests.BuyAirtime, spends=True, deprecated=True,
    ),
    Operation(
        "send_email", "POST", "/email/send", "4.2", "Send an email", messages.send_email, "EmailMessage",
        body=requests.SendEmail, texts="email", spends=True,
    ),
    Operation(
        "send_sms", "POST", "/sms/send", "4.3", "Send an SMS", messages.send_sms, "SmsMessage",
        body=requests.SendSms, texts="sms", spends=True,
    ),
    Operation(
        "request_otp", "POST", "/otp/request_token", "4.4", "Request an OTP", otp.request_token, "Token",
        body=requests.RequestOtp, spends=True,
    ),
    Operation(
        "verify_otp", "POST", "/otp/verify", "4.5", "Verify an OTP", otp.verify, "Token", body=requests.VerifyOtp,
    ),
    Operation(
        "find_otps", "GET", "/otp/get-by-recipient", "4.7", "Find OTPs by recipient", otp.find, "Tokens",
        query=requests.FindOtps,
    ),
    Operation("get_otp", "GET", "/otp/{id}", "4.6", "Fetch an OTP", otp.get, "Token"),
    Operation(
        "revoke_otp", "DELETE", "/otp/{id}", "4.8", "Revoke an OTP", otp.revoke, "Deleted",
        deletes="The OTP token was revoked",
    ),
    Operation(
        "get_contact_table", "GET", "/lists/contact", "4.9", "Fetch the contact table", contacts.get_table,
        "ContactTable",
    ),
    Operation(
        "get_contact_row", "GET", "/lists/contact/row/{row_id}", "4.10", "Fetch a contact row", contacts.get_row,
        "RowAndTable", alias="/lists/contact/rows/{row_id}",
    ),
    Operation(
        "create_contact_row", "POST", "/lists/contact/rows", "4.11", "Create a contact row", contacts.create_row,
        "RowAndTable", body=requests.row_body,
    ),
    Operation(
        "update_contact_row", "PATCH", "/lists/contact/rows/{row_id}", "4.12", "Update a contact row",
        contacts.update_row, "RowAndTable", body=requests.row_body,
    ),
    Operation(
        "delete_contact_row", "DELETE", "/lists/contact/rows/{row_id}", "4.13", "Delete a contact row",
        contacts.delete_row, "Deleted", deletes="The contact row was deleted",
    ),
    Operation(
        "lookup_phone", "GET", "/lookup/phone", "4.14", "Look a phone number up", lookup.look_up, "PhoneLookup",
        body=requests.LookupPhone, spends=True,
    ),
)  # fmt: skip

NAMES: tuple[str, ...] = tuple(operation.name for operation in OPERATIONS)

# path, or what comes before the id in it -> method -> operation
_EXACT: dict[str, dict[str, Operation]] = {}
_BY_ID: dict[str, dict[str, Operation]] = {}
for _operation in OPERATIONS:
    for _path in filter(None, (_operation.path, _operation.alias)):
        _paths, _key = (_BY_ID, _path.rpartition("/")[0]) if _operation.by_id else (_EXACT, _path)
        _paths.setdefault(_key, {})[_operation.method] = _operation


def route(method: str, raw_path: str) -> tuple[Operation, tuple[str, ...]]:
    """Return the operation and the ids in its path; 404 and 405 come in the documented shape."""
    methods, ids = _EXACT.get(raw_path), tuple[str, ...]()
    if methods is None:
        parent, _, last = raw_path.rpartition("/")
        methods, ids = _BY_ID.get(parent) if last else None, (unquote(last),)
    if methods is None:
        message = "There is no such path"
        raise ServiceError(404, message, [FieldError("path", message, "not_found")])
    if method not in methods:
        message = f"Method {method} is not allowed here"
        allowed = {"Allow": ", ".join(sorted(methods))}
        raise ServiceError(405, message, [FieldError("method", message, "method_not_allowed")], allowed)
    return methods[method], ids
