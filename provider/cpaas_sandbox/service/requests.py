"""The request bodies of contract.md 4: each type checks a body, and its JSON schema is in the document."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NotRequired

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    WithJsonSchema,
    with_config,
)
from pydantic_core import CoreSchema, PydanticCustomError, core_schema
from typing_extensions import TypedDict

from cpaas_sandbox.core.context import Column
from cpaas_sandbox.core.errors import FieldError
from cpaas_sandbox.core.validation import EMAIL, MSISDN, EmailAddress, Msisdn, WebAddress, Written

Schema = dict[str, Any]
Network = Literal["Airtel", "MTN", "Glo", "9mobile", "NTEL"]
Channel = Literal["sms", "whatsapp"]
Callback = Annotated[WebAddress, Field(description="URL that receives delivery reports")]
Reference = Annotated[str, Field(max_length=500, description="The caller's own reference", examples=["order-1001"])]
Content = Annotated[
    str, Field(min_length=1, description="Text; required where no template_id is given", examples=["Hello {name}"])
]
TemplateId = Annotated[str, Field(description="Template to send; required where no content is given")]

_NUMBERS = Written(
    f"{MSISDN}(?:, ?{MSISDN})*",
    "must be numbers in international format, 7 to 15 digits without plus sign, separated by commas",
    "2348030000001,2348030000002",
)
_ADDRESSES = Written(
    f"{EMAIL}(?:, ?{EMAIL})*", "must be email addresses separated by commas", "ada@example.com,bayo@example.com"
)
_SENDER = Written(
    "[0-9]{1,15}|[A-Za-z0-9][A-Za-z0-9 ._&-]{0,10}", "must be a number, or at most 11 letters and digits", "Acme"
)


class Personalisation(TypedDict):
    """The values of the placeholders for one recipient."""

    to: Annotated[str, Field(description="Recipient")]
    substitutions: Annotated[dict[str, Any], Field(description="Placeholder name to value")]


class BuyAirtime(TypedDict):
    """Body of POST /airtime/buy."""

    network: Annotated[Network, Field(description="Network carrier")]
    amount: Annotated[float, Field(ge=50, le=500_000, description="Airtime amount to recharge")]
    recipient: Annotated[Msisdn, Field(description="Recipient number")]
    callback: NotRequired[Callback]
    external_ref: NotRequired[Reference]


class SendEmail(TypedDict):
    """Body of POST /email/send."""

    recipients: Annotated[str, _ADDRESSES, Field(min_length=4, description="Comma-separated list of email addresses")]
    sender_id: Annotated[EmailAddress, Field(description="Sender ID, an email address")]
    content: NotRequired[Content]
    template_id: NotRequired[TemplateId]
    from_name: NotRequired[Annotated[str, Field(description="Sender name")]]
    subject: NotRequired[Annotated[str, Field(description="Subject")]]
    reply_to: NotRequired[Annotated[EmailAddress, Field(description="Address replies go to")]]
    external_ref: NotRequired[Reference]
    callback: NotRequired[Callback]
    personalisation: NotRequired[list[Personalisation]]


class SendSms(TypedDict):
    """Body of POST /sms/send."""

    channel: NotRequired[Annotated[Channel, Field(description="How the message travels; sms by default")]]
    recipients: Annotated[str, _NUMBERS, Field(description="Comma-separated list of numbers without plus sign")]
    sender_id: Annotated[str, _SENDER, Field(description="A number, or at most 11 alphanumeric characters")]
    content: NotRequired[Content]
    template_id: NotRequired[TemplateId]
    personalisation: NotRequired[list[Personalisation]]
    external_ref: NotRequired[Reference]
    is_trackable: NotRequired[Annotated[bool, Field(description="Whether links are tracked; false by default")]]
    callback: NotRequired[Callback]


def _whole(value: Any) -> Any:
    """Return 4 for 4.0: JSON has one number type."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


class RequestOtp(TypedDict):
    """Body of POST /otp/request_token."""

    recipient: Annotated[Msisdn, Field(description="Recipient number")]
    length: NotRequired[
        Annotated[int, Field(ge=4, le=8, description="Digits of the code; 4 by default"), BeforeValidator(_whole)]
    ]
    expires_in: NotRequired[Annotated[float, Field(ge=1, le=60, description="Minutes; 15 by default")]]
    token: NotRequired[Annotated[str, Field(min_length=1, max_length=64, description="The code; generated if omitted")]]
    channel: NotRequired[Annotated[Channel, Field(description="How the code travels")]]


class VerifyOtp(TypedDict):
    """Body of POST /otp/verify."""

    token: Annotated[str, Field(description="The code to verify")]
    id: Annotated[str, Field(description="ID of the OTP token")]


class FindOtps(TypedDict):
    """Query of GET /otp/get-by-recipient."""

    recipient: Annotated[Msisdn, Field(description="Recipient whose tokens are listed")]


class LookupPhone(TypedDict):
    """Body of GET /lookup/phone."""

    phone: Annotated[Msisdn, Field(description="Number to look up")]


def text_errors(body: Mapping[str, Any], templates: Collection[str]) -> list[FieldError]:
    """Return the errors of a message's text: content or template_id is required, and the template must exist."""
    if "content" not in body and (not templates or "template_id" not in body):
        names = ("content", "template_id") if templates else ("content",)
        return [FieldError(name, f"{' or '.join(names)} is required", "missing") for name in names]
    if isinstance(body.get("template_id"), str) and body["template_id"] not in templates:
        return [FieldError("template_id", "is not a template of this account", "enum")]
    return []


def describe_text(schema: Schema, templates: Iterable[str]) -> Schema:
    """Add to a message's schema the rules that ``text_errors`` checks."""
    known = sorted(templates)
    if not known:  # without a template, content is required
        properties = schema["properties"] | {"template_id": False}
        return schema | {"required": [*schema["required"], "content"], "properties": properties}
    template_id = schema["properties"]["template_id"] | {"enum": known, "examples": known[:1]}
    either = [{"required": ["content"]}, {"required": ["template_id"]}]
    return schema | {"properties": schema["properties"] | {"template_id": template_id}, "anyOf": either}


def _check_date(text: str) -> str:
    with suppress(ValueError):
        if dt.date.fromisoformat(text).isoformat() == text:
            return text
    raise PydanticCustomError("format", "must be an ISO 8601 date such as 2026-01-31")


Date = Annotated[
    str,
    AfterValidator(_check_date),
    WithJsonSchema({"type": "string", "format": "date", "examples": ["1990-05-17"]}),
]


def _choice(options: tuple[str, ...]) -> Any:
    return Literal[options] if options else str


# column type -> type of its cells, from the column's options (contract.md 2.5)
COLUMN_TYPES: dict[str, Callable[[tuple[str, ...]], Any]] = {
    "TEXT": lambda _: str,
    "NUMBER": lambda _: float,
    "DATE": lambda _: Date,
    "PHONE NUMBER": lambda _: Msisdn,
    "EMAIL": lambda _: EmailAddress,
    "URL": lambda _: WebAddress,
    "SELECT": _choice,
    "MULTI SELECT": lambda options: list[_choice(options)],  # type: ignore[misc] # a type made at run time
}
_DIGITS = "-?[0-9]{1,18}(?:\\.[0-9]{1,9})?"


@dataclass(frozen=True)
class _Cell:
    """Annotation of a cell: null or an empty string clears it; with ``digits``, a number may be a string."""

    digits: bool

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        def read(value: Any, check: Callable[[Any], Any]) -> Any:
            if value is None or value == "":
                return None
            if self.digits and isinstance(value, str) and re.fullmatch(_DIGITS, value):
                return float(value) if "." in value else int(value)
            check(value)
            return value

        return core_schema.no_info_wrap_validator_function(read, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> Schema:
        digits = [{"type": "string", "pattern": f"^(?:{_DIGITS})$"}] if self.digits else []
        return {"anyOf": [handler(schema), *digits, {"enum": ["", None]}]}


def row_body(columns: Iterable[Column], number_cells: str) -> Any:
    """Return the type of the body that creates or updates a row: one optional cell for each column."""
    typed_dict: Any = TypedDict
    cells = {
        column.id: NotRequired[
            Annotated[
                COLUMN_TYPES[column.type](column.options),
                _Cell(digits=column.type == "NUMBER" and number_cells == "number_or_string"),
                Field(title=column.name, description=column.type),
            ]
        ]
        for column in columns
    }
    named = with_config(ConfigDict(extra="forbid"))(typed_dict("Columns", cells))
    return typed_dict("ContactRowBody", {"columns": named})
