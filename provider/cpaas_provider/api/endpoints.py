"""The 14 operations of the service as data (contract.md 4).

The request's fields fill the ``{placeholders}`` of the same name in the path. The other fields go into the query or
the JSON body.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import NoneType
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
from cpaas_provider.api.models.lookup import LookupPhoneRequest, PhoneLookup
from cpaas_provider.api.models.messages import EmailMessage, SendEmailRequest, SendSmsRequest, SmsMessage
from cpaas_provider.api.models.otp import (
    FindOtpsRequest,
    OtpReference,
    OtpToken,
    RequestOtpRequest,
    VerifyOtpRequest,
)

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


@dataclass(frozen=True)
class Echo:
    """A field of the response that repeats one of the request (``responses.echo`` compares them).

    :param response: the field of the response, with the names of the objects around it
    :param request: the field of the request
    :param is_number: whether it is a phone number, which may have another notation
    :param is_required: whether a response without it counts for nothing
    :param is_id: whether it is an id of the service. Two ids that differ in capitals are two, unless they are UUIDs
    """

    response: str
    request: str
    is_number: bool = False
    is_required: bool = False
    is_id: bool = False


@dataclass(frozen=True)
class Endpoint(Generic[T_co]):
    """One operation: its request, its response, and when it may be retried."""

    operation: str
    method: str
    path: str
    request: type[WireRequest]
    resource: type[T_co]
    retry_safety: RetrySafety
    query_params: bool = False
    rejections: Mapping[int | None, type[errors.CpaasRejectedError]] = field(default_factory=dict)
    """The error class of a rejection by its status; ``None`` stands for every other one with an error as its body."""
    echoes: tuple[Echo, ...] = ()
    absent_field: str | None = None
    """The field of the response that is null if what the request names does not exist."""

    @property
    def allows_empty_response(self) -> bool:
        """Whether a response without a resource means success."""
        return self.resource is NoneType

    @functools.cached_property
    def reader(self) -> TypeAdapter[Any]:
        """Reads the resource from the JSON values of a response."""
        return TypeAdapter(self.resource)


_GONE = (404, 405, 410)
REFERENCE = Echo("external_ref", "external_ref")
"""The author's or the provider's own reference, which an envelope may repeat beside the resource."""
_RECIPIENT = Echo("recipient", "recipient", is_number=True)
_OTP_ID = Echo("id", "id", is_id=True)
_ROW_ID = Echo("row.id", "row_id", is_id=True)

SEND_SMS = Endpoint(
    "send_sms", "POST", "/sms/send", SendSmsRequest, SmsMessage, RetrySafety.UNSAFE, echoes=(REFERENCE,)
)
SEND_EMAIL = Endpoint(
    "send_email", "POST", "/email/send", SendEmailRequest, EmailMessage, RetrySafety.UNSAFE, echoes=(REFERENCE,)
)
REQUEST_OTP = Endpoint(
    "request_otp",
    "POST",
    "/otp/request_token",
    RequestOtpRequest,
    OtpToken,
    RetrySafety.UNSAFE,
    echoes=(_RECIPIENT,),
)
VERIFY_OTP = Endpoint(
    "verify_otp",
    "POST",
    "/otp/verify",
    VerifyOtpRequest,
    OtpToken,
    RetrySafety.UNSAFE,
    rejections=dict.fromkeys((404, None), errors.CpaasNotVerifiedError),
    echoes=(_OTP_ID,),
)
GET_OTP = Endpoint(
    "get_otp",
    "GET",
    "/otp/{id}",
    OtpReference,
    OtpToken,
    RetrySafety.SAFE,
    rejections={None: errors.CpaasNotFoundError},
    echoes=(_OTP_ID,),
)
FIND_OTPS = Endpoint(
    "find_otps",
    "GET",
    "/otp/get-by-recipient",
    FindOtpsRequest,
    list[OtpToken],
    RetrySafety.SAFE,
    query_params=True,
    echoes=(_RECIPIENT,),
)
REVOKE_OTP = Endpoint("revoke_otp", "DELETE", "/otp/{id}", OtpReference, NoneType, RetrySafety.IDEMPOTENT)
BUY_AIRTIME = Endpoint(
    "buy_airtime",
    "POST",
    "/airtime/buy",
    BuyAirtimeRequest,
    AirtimePurchase,
    RetrySafety.PURCHASE,
    rejections=dict.fromkeys(_GONE, errors.CpaasOperationRemovedError),
    echoes=(REFERENCE, _RECIPIENT),
)
GET_CONTACT_TABLE = Endpoint("get_contact_table", "GET", "/lists/contact", WireRequest, ContactTable, RetrySafety.SAFE)
GET_CONTACT_ROW = Endpoint(
    "get_contact_row",
    "GET",
    "/lists/contact/row/{row_id}",
    RowReference,
    ContactRowRecord,
    RetrySafety.SAFE,
    echoes=(_ROW_ID,),
    absent_field="row",
)
CREATE_CONTACT_ROW = Endpoint(
    "create_contact_row", "POST", "/lists/contact/rows", CreateRowRequest, ContactRowRecord, RetrySafety.UNSAFE
)
UPDATE_CONTACT_ROW = Endpoint(
    "update_contact_row",
    "PATCH",
    "/lists/contact/rows/{row_id}",
    UpdateRowRequest,
    ContactRowRecord,
    RetrySafety.IDEMPOTENT,
    echoes=(_ROW_ID,),
)
DELETE_CONTACT_ROW = Endpoint(
    "delete_contact_row", "DELETE", "/lists/contact/rows/{row_id}", RowReference, NoneType, RetrySafety.IDEMPOTENT
)
LOOKUP_PHONE = Endpoint(
    "lookup_phone",
    "GET",
    "/lookup/phone",
    LookupPhoneRequest,
    PhoneLookup,
    RetrySafety.BILLED_READ,
    echoes=(Echo("msisdn", "phone", is_number=True, is_required=True),),
)
