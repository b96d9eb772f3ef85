"""Base classes and field types of the models. Requests are checked strictly, responses are read leniently."""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal, Self, get_origin

import pendulum
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    ModelWrapValidatorHandler,
    SerializationInfo,
    SerializerFunctionWrapHandler,
    StringConstraints,
    ValidationError,
    ValidationInfo,
    model_serializer,
    model_validator,
)

from cpaas_provider.api.amounts import known_cost, known_figure
from cpaas_provider.api.bounds import LONGEST_ID, OTP_DIGITS, is_nothing, to_number
from cpaas_provider.api.recipients.email_address import normalise_email
from cpaas_provider.api.recipients.msisdn import INTERNATIONAL, NumberReader
from cpaas_provider.api.recipients.reader import recipient_key
from cpaas_provider.api.redact import service_word
from cpaas_provider.api.text import has_control_character
from cpaas_provider.api.values import no_value_reason

Number = int | float
Channel = Literal["sms", "whatsapp"]

_HTTP_URL = re.compile(r"https?://[^\s/?#]+\S*", re.IGNORECASE)
_DATE_AND_TIME = re.compile(r"\d{4}-?\d{2}-?\d{2}[T ]\d{2}")

# The fields that repr() may show in a log. Recipients, texts and cells are private. Of the texts of the service, only
# those that are redacted when they are read.
_LOGGED_FIELDS = frozenset(
    {
        "id",
        "name",
        "type",
        "status",
        "status_desc",
        "network",
        "channel",
        "meta",
        "estimate",
        "charge",
        "amount",
        "available_balance",
        "balance_before",
        "refunded",
        "message_length",
        "pages",
        "created_datetime",
        "updated_datetime",
        "operator",
        "country",
        "ported",
        "dnd",
        "row",
        "table",
    }
)


_HIDDEN: dict[Any, Any] = {str: "***", dict: {}, list: []}
"""What stands in JSON for a required field that is private, by its type."""

UNKNOWN_ZONE = pendulum.FixedTimezone(0, name="UTC")
"""The zone of times that the service writes without one. They count as UTC, except where an hour matters."""

_build_lock = threading.RLock()


class _RedactedModel(BaseModel):
    """A model whose ``repr()`` and ``str()`` leave out personal data.

    Its validator is built at first use: a task uses two or three of the models, and building all takes 20 ms.
    """

    model_config = ConfigDict(defer_build=True)

    @classmethod
    def model_rebuild(cls, *, _parent_namespace_depth: int = 2, **options: Any) -> bool | None:
        """Build the validator. Pydantic before 2.14 cannot do that in two threads at once."""
        with _build_lock:
            return super().model_rebuild(_parent_namespace_depth=_parent_namespace_depth + 1, **options)

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        shown = _LOGGED_FIELDS.intersection(type(self).model_fields)
        return ((name, value) for name, value in super().__repr_args__() if name in shown)


class WireRequest(_RedactedModel):
    """The fields of a request, for its body, path or query. Unknown fields are refused, and ``None`` is never sent."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        hide_input_in_errors=True,
        allow_inf_nan=False,
        # Not as null, which would clear a cell. The JSON encoder then refuses these values.
        ser_json_inf_nan="constants",
    )


class WireResource(_RedactedModel):
    """A resource that the service returns. Extra fields are retained, and unknown enum values are plain text."""

    model_config = ConfigDict(
        extra="allow",
        frozen=True,
        hide_input_in_errors=True,
        coerce_numbers_to_str=True,
        arbitrary_types_allowed=True,
    )

    STORED: ClassVar[frozenset[str]] = frozenset()
    """Fields that JSON has, too, although ``repr()`` leaves them out."""

    @model_serializer(mode="wrap")
    def _leave_out_private_fields(self, dump: SerializerFunctionWrapHandler, info: SerializationInfo) -> dict[str, Any]:
        """Leave personal data out of JSON, which Airflow stores as XCom if a task returns a resource.

        A required field has a placeholder there, so that the next task can read the resource.
        """
        fields: dict[str, Any] = dump(self)
        if info.mode != "json":
            return fields
        model_fields = type(self).model_fields
        stored = _LOGGED_FIELDS | self.STORED
        hidden = {
            name: _HIDDEN[get_origin(field.annotation) or field.annotation]
            for name, field in model_fields.items()
            if field.is_required() and name not in stored
        }
        return {name: value for name, value in fields.items() if name in stored and name in model_fields} | hidden

    @model_validator(mode="wrap")
    @classmethod
    def _drop_unreadable_optional_fields(cls, data: Any, read: ModelWrapValidatorHandler[Self]) -> Self:
        """Treat an optional field that cannot be read as absent. Only the required fields must be valid."""
        try:
            return read(data)
        except ValidationError as error:
            unreadable = {str(part["loc"][0]) for part in error.errors(include_input=False) if part["loc"]}
            optional = {name for name, field in cls.model_fields.items() if not field.is_required()}
            if not isinstance(data, dict) or not unreadable <= optional:
                raise
            return read({name: value for name, value in data.items() if name not in unreadable})


def _msisdn(value: object, info: ValidationInfo) -> str:
    numbers: NumberReader = (info.context or {}).get(NUMBERS) or INTERNATIONAL
    return numbers.read(value)


def _timestamp(value: object) -> object:
    """Read an ISO 8601 timestamp into an aware datetime; one without offset is taken as UTC, in ``UNKNOWN_ZONE``."""
    if not isinstance(value, str):
        return value
    text = value.strip()
    # pendulum also accepts "now" and times of day.
    if not _DATE_AND_TIME.match(text):
        raise ValueError("is not a timestamp")
    try:
        moment = pendulum.parse(text, tz=UNKNOWN_ZONE)
        if isinstance(moment, pendulum.DateTime):
            # Raises for an offset of a day or more, which parse() accepts.
            moment.utcoffset()
    except (ValueError, OverflowError):
        raise ValueError("is not a timestamp") from None
    return moment


def unique(values: list[str]) -> list[str]:
    """Drop duplicates and keep the order, so that a recipient who is listed twice gets one message.

    The first spelling of an address stays.
    """
    spellings: dict[str, str] = {}
    for value in values:
        spellings.setdefault(recipient_key(value), value)
    return list(spellings.values())


def _http_url(value: str) -> str:
    if not _HTTP_URL.fullmatch(value):
        raise ValueError("must be an http or https URL")
    return value


def no_line_breaks(value: str) -> str:
    """Refuse line breaks, which could add a header to an email, and other control characters."""
    if has_control_character(value):
        raise ValueError("must not contain line breaks or other control characters")
    return value


def _figure(value: object) -> Any:
    """Read a figure, as a number or as text; ``None`` for any other value, such as NaN or a boolean."""
    return known_figure(to_number(value) if isinstance(value, str) else value)


def _given(text: str) -> str:
    """Refuse a text without a value, such as the word that a template makes of a missing one."""
    if reason := no_value_reason(text):
        raise ValueError(reason)
    return text


def _resource_id(value: object) -> object:
    """Return an id that means something, as text: no blanks, word for no value, or number below 1."""
    if isinstance(value, bool) or not isinstance(value, (str, int, float)) or is_nothing(value) or value == math.inf:
        raise ValueError("is no id")
    text = str(value).strip() if isinstance(value, (str, int)) else str(int(value) if value.is_integer() else value)
    if len(text) > LONGEST_ID:
        raise ValueError(f"is longer than {LONGEST_ID} characters")
    return text


def _service_word(value: str, info: ValidationInfo) -> str:
    return service_word(value, (info.context or {}).get(PRIVATE, ()))


def _status_word(value: str, info: ValidationInfo) -> str:
    return service_word(value, (info.context or {}).get(PRIVATE, ()), shortest_number=OTP_DIGITS[0])


NUMBERS = "numbers"
"""The key, in the context of a request's validation, of the ``NumberReader`` of its client."""
PRIVATE = "private"
"""The key, in the context of a response's validation, of the values of its request that must not reach a log."""

Msisdn = Annotated[str, BeforeValidator(_msisdn)]
EmailAddress = Annotated[str, BeforeValidator(normalise_email)]
Timestamp = Annotated[pendulum.DateTime, BeforeValidator(_timestamp)]
OptionalTimestamp = Timestamp | None
Text = Annotated[str, StringConstraints(min_length=1)]
GivenText = Annotated[str, StringConstraints(min_length=1), AfterValidator(_given)]
"""A text of a request. A response may have any."""
ResourceId = Annotated[str, BeforeValidator(_resource_id)]
"""The id of what the service made. An id that means nothing proves nothing."""
ServiceWord = Annotated[str, AfterValidator(_service_word)]
"""A status or a name that the service gives. It is logged and returned, so it goes through ``redact.service_word``."""
PasscodeStatus = Annotated[str, AfterValidator(_status_word)]
"""The same for a passcode, which a request may not know: every figure that is long enough to be one is hidden."""
CallbackUrl = Annotated[str, AfterValidator(_http_url)]
Figure = Annotated[Number | None, BeforeValidator(_figure)]
Cost = Annotated[Number | None, BeforeValidator(known_cost)]
"""What the service says a request cost, see ``amounts.known_cost``."""
