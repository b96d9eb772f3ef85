"""The fourteen operations of contract.md 4 as data, and the routing of a method and path to one of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from cpaas_sandbox.core.context import Sandbox
from cpaas_sandbox.core.errors import FieldError, ServiceError, not_found
from cpaas_sandbox.service import requests
from cpaas_sandbox.service.handlers import airtime, contacts, lookup, messages, otp
from cpaas_sandbox.service.http import Request


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of the service; ``section`` is that of contract.md, ``result`` the schema of the response."""

    name: str
    method: str
    path: str
    section: str
    summary: str
    handler: Callable[[Sandbox, Request], Any]
    result: str
    body: Any = None
    """Type of the body, or ``row_body``, which builds the type from the current columns."""
    query: Any = None
    texts: str | None = None
    """The channel whose templates may replace ``content``; None for operations without a text."""
    spends: bool = False
    deprecated: bool = False
    alias: str | None = None
    deletes: str | None = None
    """The message of a DELETE, if the setting ``delete_body`` is ``message``."""

    @property
    def by_id(self) -> bool:
        """Whether the path ends with the id of a resource."""
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

# path, without its parameter and with the slash before it -> method -> operation
_ROUTES: dict[str, dict[str, Operation]] = {}
for _operation in OPERATIONS:
    for _path in filter(None, (_operation.path, _operation.alias)):
        _ROUTES.setdefault(_path.partition("{")[0], {})[_operation.method] = _operation


def route(method: str, raw_path: str) -> tuple[Operation, str]:
    """Return the operation and the id in its path, if any; raise the 404 or the 405."""
    parent, _, last = raw_path.rpartition("/")
    id_ = "" if raw_path in _ROUTES else unquote(last)
    methods = _ROUTES.get(f"{parent}/" if id_ else raw_path) if last else None
    if methods is None:
        raise not_found("path", "There is no such path")
    if method not in methods:
        message = f"Method {method} is not allowed here"
        allowed = {"Allow": ", ".join(sorted(methods))}
        raise ServiceError(405, message, [FieldError("method", message, "method_not_allowed")], allowed)
    return methods[method], id_
