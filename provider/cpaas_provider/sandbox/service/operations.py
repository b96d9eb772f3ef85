"""The fourteen operations of INTERFACE.md section 4 as data: name, place, what they take, who answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cpaas_provider.sandbox.core.context import Sandbox
from cpaas_provider.sandbox.service import requests
from cpaas_provider.sandbox.service.cells import cell_schema
from cpaas_provider.sandbox.service.exchange import Request
from cpaas_provider.sandbox.service.handlers import airtime, contacts, lookup, messages, otp
from cpaas_provider.sandbox.service.schema import Schema

Handler = Callable[["Sandbox", Request], Any]
# What a body may be depends on the present templates and columns.
BodySchema = Callable[["Sandbox"], Schema]


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
    body: BodySchema | None = None
    query: Schema | None = None
    spends: bool = False
    deprecated: bool = False
    alias: str | None = None
    deletes: str | None = None
    """What a DELETE says was done, where it returns a message."""

    @property
    def by_id(self) -> bool:
        """Whether the path names one resource."""
        return "{" in self.path


def _templates(sandbox: Sandbox, channel: str) -> list[str]:
    return [id_ for id_, template in sandbox.templates.items() if template["channel"] in (channel, "any")]


def _row_body(sandbox: Sandbox) -> Schema:
    number_cells = sandbox.settings["number_cells"]
    cells = {id_: cell_schema(column, number_cells) for id_, column in sandbox.table.columns.items()}
    return requests.row_columns(cells)


_RECIPIENT_QUERY: Schema = {
    "type": "object",
    "required": ["recipient"],
    "properties": {"recipient": requests.msisdn("Recipient whose tokens are listed")},
}

OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "buy_airtime", "POST", "/airtime/buy", "4.1", "Buy airtime", airtime.buy, "AirtimePurchase",
        body=lambda _: requests.BUY_AIRTIME, spends=True, deprecated=True,
    ),
    Operation(
        "send_email", "POST", "/email/send", "4.2", "Send an email", messages.send_email, "EmailMessage",
        body=lambda sandbox: requests.send_email(_templates(sandbox, "email")), spends=True,
    ),
    Operation(
        "send_sms", "POST", "/sms/send", "4.3", "Send an SMS", messages.send_sms, "SmsMessage",
        body=lambda sandbox: requests.send_sms(_templates(sandbox, "sms")), spends=True,
    ),
    Operation(
        "request_otp", "POST", "/otp/request_token", "4.4", "Request an OTP", otp.request_token, "Token",
        body=lambda _: requests.REQUEST_OTP, spends=True,
    ),
    Operation(
        "verify_otp", "POST", "/otp/verify", "4.5", "Verify an OTP", otp.verify, "Token",
        body=lambda _: requests.VERIFY_OTP,
    ),
    Operation(
        "find_otps", "GET", "/otp/get-by-recipient", "4.7", "Find OTPs by recipient", otp.find, "Tokens",
        query=_RECIPIENT_QUERY,
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
        "RowAndTable", body=_row_body,
    ),
    Operation(
        "update_contact_row", "PATCH", "/lists/contact/rows/{row_id}", "4.12", "Update a contact row",
        contacts.update_row, "RowAndTable", body=_row_body,
    ),
    Operation(
        "delete_contact_row", "DELETE", "/lists/contact/rows/{row_id}", "4.13", "Delete a contact row",
        contacts.delete_row, "Deleted", deletes="The contact row was deleted",
    ),
    Operation(
        "lookup_phone", "GET", "/lookup/phone", "4.14", "Look a phone number up", lookup.look_up, "PhoneLookup",
        body=lambda _: requests.LOOKUP_PHONE, spends=True,
    ),
)  # fmt: skip

NAMES: tuple[str, ...] = tuple(operation.name for operation in OPERATIONS)
