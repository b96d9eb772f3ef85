"""The 14 operations of the service as data (contract.md 4).

The request's fields fill the ``{placeholders}`` of the same name in the path. The other fields go into the query or
the JSON body. Each endpoint names its models, and loads them when it is first used: a task uses those of one operation,
and the models of all take as long to load as its request takes.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Mapping
from enum import Enum
from types import GenericAlias
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from msgspec import Struct, field

from cpaas_provider.api import errors
from cpaas_provider.api.bounds import NETWORKS

if TYPE_CHECKING:
    from pydantic import TypeAdapter

    from cpaas_provider.api.models.airtime import AirtimePurchase
    from cpaas_provider.api.models.base import WireRequest
    from cpaas_provider.api.models.contacts import ContactRowRecord, ContactTable
    from cpaas_provider.api.models.email import EmailMessage
    from cpaas_provider.api.models.lookup import PhoneLookup
    from cpaas_provider.api.models.otp import OtpToken
    from cpaas_provider.api.models.sms import SmsMessage

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


class Echo(NamedTuple):
    """A field of the response that repeats one of the request (``responses.echo`` compares them).

    :param response: the field of the response, with the names of the objects around it
    :param request: the field of the request
    :param is_number: whether it is a phone number, which may have another notation
    :param is_required: whether a response without it counts for nothing
    :param is_id: whether it is an id of the service. Two ids that differ in capitals are two, unless they are UUIDs
    :param words: the words of the contract, in lower case, if only these count; empty if every text does
    """

    response: str
    request: str
    is_number: bool = False
    is_required: bool = False
    is_id: bool = False
    words: frozenset[str] = frozenset()


class Endpoint(Struct, Generic[T_co], frozen=True, dict=True):
    """One operation: its request, its response, and when it may be retried.

    :param request_model: the model of the request, as ``module.name`` in ``api.models``
    :param resource_model: the model of the response, in the same way, or ``list[module.name]``. ``None`` if it has no
        resource. The type of the constant says the same, and a test compares both
    :param rejections: the error class of a rejection by its status; ``None`` stands for every other one with an error
        as its body
    :param absent_field: the field of the response that is null if what the request names does not exist
    :param sends_message: whether it sends a message, so that the resource names recipients
    """

    operation: str
    method: str
    path: str
    request_model: str
    resource_model: str | None
    retry_safety: RetrySafety
    query_params: bool = False
    rejections: Mapping[int | None, type[errors.CpaasRejectedError]] = field(default_factory=dict)
    echoes: tuple[Echo, ...] = ()
    absent_field: str | None = None
    sends_message: bool = False

    @property
    def allows_empty_response(self) -> bool:
        """Whether a response without a resource means success."""
        return self.resource_model is None

    @functools.cached_property
    def request(self) -> type[WireRequest]:
        """The model that checks the request."""
        model: type[WireRequest] = _load_model(self.request_model)
        return model

    @functools.cached_property
    def reader(self) -> TypeAdapter[Any]:
        """Reads the resource from the JSON values of a response."""
        from pydantic import TypeAdapter

        name = self.resource_model
        if name is None:
            return TypeAdapter(type(None))
        model = _load_model(name.removeprefix("list[").removesuffix("]"))
        resource: Any = GenericAlias(list, model) if name.startswith("list[") else model
        return TypeAdapter(resource)


def _load_model(name: str) -> Any:
    module, _, model = name.partition(".")
    return getattr(importlib.import_module(f"cpaas_provider.api.models.{module}"), model)


_GONE = (404, 405, 410)
REFERENCE = Echo("external_ref", "external_ref")
"""The author's or the provider's own reference, which an envelope may repeat beside the resource."""
_RECIPIENT = Echo("recipient", "recipient", is_number=True)
_NETWORK = Echo("network", "network", words=frozenset(name.lower() for name in NETWORKS))
_OTP_ID = Echo("id", "id", is_id=True)
_ROW_ID = Echo("row.id", "row_id", is_id=True)

SEND_SMS: Endpoint[SmsMessage] = Endpoint(
    "send_sms",
    "POST",
    "/sms/send",
    "sms.SendSmsRequest",
    "sms.SmsMessage",
    RetrySafety.UNSAFE,
    echoes=(REFERENCE,),
    sends_message=True,
)
SEND_EMAIL: Endpoint[EmailMessage] = Endpoint(
    "send_email",
    "POST",
    "/email/send",
    "email.SendEmailRequest",
    "email.EmailMessage",
    RetrySafety.UNSAFE,
    echoes=(REFERENCE,),
    sends_message=True,
)
REQUEST_OTP: Endpoint[OtpToken] = Endpoint(
    "request_otp",
    "POST",
    "/otp/request_token",
    "otp.RequestOtpRequest",
    "otp.OtpToken",
    RetrySafety.UNSAFE,
    echoes=(_RECIPIENT,),
)
VERIFY_OTP: Endpoint[OtpToken] = Endpoint(
    "verify_otp",
    "POST",
    "/otp/verify",
    "otp.VerifyOtpRequest",
    "otp.OtpToken",
    RetrySafety.UNSAFE,
    rejections=dict.fromkeys((404, None), errors.CpaasNotVerifiedError),
    echoes=(_OTP_ID,),
)
GET_OTP: Endpoint[OtpToken] = Endpoint(
    "get_otp",
    "GET",
    "/otp/{id}",
    "otp.OtpReference",
    "otp.OtpToken",
    RetrySafety.SAFE,
    rejections={None: errors.CpaasNotFoundError},
    echoes=(_OTP_ID,),
)
FIND_OTPS: Endpoint[list[OtpToken]] = Endpoint(
    "find_otps",
    "GET",
    "/otp/get-by-recipient",
    "otp.FindOtpsRequest",
    "list[otp.OtpToken]",
    RetrySafety.SAFE,
    query_params=True,
    echoes=(_RECIPIENT,),
)
REVOKE_OTP: Endpoint[None] = Endpoint(
    "revoke_otp", "DELETE", "/otp/{id}", "otp.OtpReference", None, RetrySafety.IDEMPOTENT
)
BUY_AIRTIME: Endpoint[AirtimePurchase] = Endpoint(
    "buy_airtime",
    "POST",
    "/airtime/buy",
    "airtime.BuyAirtimeRequest",
    "airtime.AirtimePurchase",
    RetrySafety.PURCHASE,
    rejections=dict.fromkeys(_GONE, errors.CpaasOperationRemovedError),
    echoes=(REFERENCE, _RECIPIENT, _NETWORK),
)
GET_CONTACT_TABLE: Endpoint[ContactTable] = Endpoint(
    "get_contact_table", "GET", "/lists/contact", "base.WireRequest", "contacts.ContactTable", RetrySafety.SAFE
)
GET_CONTACT_ROW: Endpoint[ContactRowRecord] = Endpoint(
    "get_contact_row",
    "GET",
    "/lists/contact/row/{row_id}",
    "contacts.RowReference",
    "contacts.ContactRowRecord",
    RetrySafety.SAFE,
    echoes=(_ROW_ID,),
    absent_field="row",
)
CREATE_CONTACT_ROW: Endpoint[ContactRowRecord] = Endpoint(
    "create_contact_row",
    "POST",
    "/lists/contact/rows",
    "contacts.CreateRowRequest",
    "contacts.ContactRowRecord",
    RetrySafety.UNSAFE,
)
UPDATE_CONTACT_ROW: Endpoint[ContactRowRecord] = Endpoint(
    "update_contact_row",
    "PATCH",
    "/lists/contact/rows/{row_id}",
    "contacts.UpdateRowRequest",
    "contacts.ContactRowRecord",
    RetrySafety.IDEMPOTENT,
    echoes=(_ROW_ID,),
)
DELETE_CONTACT_ROW: Endpoint[None] = Endpoint(
    "delete_contact_row",
    "DELETE",
    "/lists/contact/rows/{row_id}",
    "contacts.RowReference",
    None,
    RetrySafety.IDEMPOTENT,
)
LOOKUP_PHONE: Endpoint[PhoneLookup] = Endpoint(
    "lookup_phone",
    "GET",
    "/lookup/phone",
    "lookup.LookupPhoneRequest",
    "lookup.PhoneLookup",
    RetrySafety.BILLED_READ,
    echoes=(Echo("msisdn", "phone", is_number=True, is_required=True),),
)
