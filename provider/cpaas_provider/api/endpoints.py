"""The 14 operations of the service as data (INTERFACE.md section 4).

The request's fields fill the ``{placeholders}`` of the same name in the path. The other fields go into the query or
the JSON body.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Generic, TypeVar

from pydantic import TypeAdapter

from cpaas_provider.api import errors
from cpaas_provider.api.models.airtime import AirtimePurchase, BuyAirtimeRequest
from cpaas_provider.api.models.base import WireRequest
from cpaas_provider.api.models.contacts import (
    ContactRowRecord,
    ContactTable,
    CreateRowRequest,
    RowReference,
    UpdateRowRequest,
)
from cpaas_provider.api.models.email import EmailMessage, SendEmailRequest
from cpaas_provider.api.models.lookup import LookupPhoneRequest, PhoneLookup
from cpaas_provider.api.models.otp import (
    FindOtpsRequest,
    OtpReference,
    OtpToken,
    RequestOtpRequest,
    VerifyOtpRequest,
)
from cpaas_provider.api.models.sms import SendSmsRequest, SmsMessage

T_co = TypeVar("T_co", covariant=True)


class RetrySafety(Enum):
    """When a request may be retried, by what it does (docs: concepts/outcomes-and-errors)."""

    SAFE = "safe"
    """Changes nothing: retried after everything but a rejection."""
    IDEMPOTENT = "idempotent"
    """Has the same effect twice as once (update, delete, revoke): retried like a read."""
    BILLED_READ = "billed read"
    """Changes nothing but is charged: retried unless the response was a success, readable or not."""
    UNSAFE = "unsafe"
    """Reaches a person or creates something: retried only if the service certainly did nothing."""
    PURCHASE = "purchase"
    """Spends money at once: retried like an unsafe request, but not after a 503 or a 425."""


class NoBody(WireRequest):
    """A request without fields."""


@dataclass(frozen=True)
class Endpoint(Generic[T_co]):
    """One operation: its request, its response, and when it may be retried."""

    operation: str
    method: str
    path: str
    request: type[WireRequest]
    resource: TypeAdapter[Any]
    retry_safety: RetrySafety
    query_params: bool = False
    allows_empty_response: bool = False
    rejections: Mapping[int | None, type[errors.CpaasRejectedError]] = field(default_factory=dict)
    """The error class of a rejection by its status; ``None`` stands for every status that is not listed."""


_GONE = (404, 405, 410)

SEND_SMS: Endpoint[SmsMessage] = Endpoint(
    "send_sms", "POST", "/sms/send", SendSmsRequest, TypeAdapter(SmsMessage), RetrySafety.UNSAFE
)
SEND_EMAIL: Endpoint[EmailMessage] = Endpoint(
    "send_email", "POST", "/email/send", SendEmailRequest, TypeAdapter(EmailMessage), RetrySafety.UNSAFE
)
REQUEST_OTP: Endpoint[OtpToken] = Endpoint(
    "request_otp", "POST", "/otp/request_token", RequestOtpRequest, TypeAdapter(OtpToken), RetrySafety.UNSAFE
)
VERIFY_OTP: Endpoint[OtpToken] = Endpoint(
    "verify_otp",
    "POST",
    "/otp/verify",
    VerifyOtpRequest,
    TypeAdapter(OtpToken),
    RetrySafety.UNSAFE,
    rejections={None: errors.CpaasNotVerifiedError},
)
GET_OTP: Endpoint[OtpToken] = Endpoint(
    "get_otp", "GET", "/otp/{id}", OtpReference, TypeAdapter(OtpToken), RetrySafety.SAFE
)
FIND_OTPS: Endpoint[list[OtpToken]] = Endpoint(
    "find_otps",
    "GET",
    "/otp/get-by-recipient",
    FindOtpsRequest,
    TypeAdapter(list[OtpToken]),
    RetrySafety.SAFE,
    query_params=True,
)
REVOKE_OTP: Endpoint[None] = Endpoint(
    "revoke_otp",
    "DELETE",
    "/otp/{id}",
    OtpReference,
    TypeAdapter(Any),
    RetrySafety.IDEMPOTENT,
    allows_empty_response=True,
)
BUY_AIRTIME: Endpoint[AirtimePurchase] = Endpoint(
    "buy_airtime",
    "POST",
    "/airtime/buy",
    BuyAirtimeRequest,
    TypeAdapter(AirtimePurchase),
    RetrySafety.PURCHASE,
    rejections=dict.fromkeys(_GONE, errors.CpaasOperationRemovedError),
)
GET_CONTACT_TABLE: Endpoint[ContactTable] = Endpoint(
    "get_contact_table", "GET", "/lists/contact", NoBody, TypeAdapter(ContactTable), RetrySafety.SAFE
)
GET_CONTACT_ROW: Endpoint[ContactRowRecord] = Endpoint(
    "get_contact_row",
    "GET",
    "/lists/contact/row/{row_id}",
    RowReference,
    TypeAdapter(ContactRowRecord),
    RetrySafety.SAFE,
)
CREATE_CONTACT_ROW: Endpoint[ContactRowRecord] = Endpoint(
    "create_contact_row",
    "POST",
    "/lists/contact/rows",
    CreateRowRequest,
    TypeAdapter(ContactRowRecord),
    RetrySafety.UNSAFE,
)
UPDATE_CONTACT_ROW: Endpoint[ContactRowRecord] = Endpoint(
    "update_contact_row",
    "PATCH",
    "/lists/contact/rows/{row_id}",
    UpdateRowRequest,
    TypeAdapter(ContactRowRecord),
    RetrySafety.IDEMPOTENT,
)
DELETE_CONTACT_ROW: Endpoint[None] = Endpoint(
    "delete_contact_row",
    "DELETE",
    "/lists/contact/rows/{row_id}",
    RowReference,
    TypeAdapter(Any),
    RetrySafety.IDEMPOTENT,
    allows_empty_response=True,
)
LOOKUP_PHONE: Endpoint[PhoneLookup] = Endpoint(
    "lookup_phone", "GET", "/lookup/phone", LookupPhoneRequest, TypeAdapter(PhoneLookup), RetrySafety.BILLED_READ
)

ENDPOINTS: tuple[Endpoint[Any], ...] = (
    SEND_SMS,
    SEND_EMAIL,
    REQUEST_OTP,
    VERIFY_OTP,
    GET_OTP,
    FIND_OTPS,
    REVOKE_OTP,
    BUY_AIRTIME,
    GET_CONTACT_TABLE,
    GET_CONTACT_ROW,
    CREATE_CONTACT_ROW,
    UPDATE_CONTACT_ROW,
    DELETE_CONTACT_ROW,
    LOOKUP_PHONE,
)
