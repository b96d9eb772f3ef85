"""SMS and email (contract.md 2.2, 2.3, 4.2, 4.3).

The contract marks some fields of a response required that are read leniently all the same: with an ``id``, the service
accepted the message, and a missing figure must not turn that into an unknown outcome.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    StringConstraints,
    field_serializer,
    model_validator,
)

from cpaas_provider.api.models.base import (
    CallbackUrl,
    Channel,
    Cost,
    EmailAddress,
    Figure,
    GivenText,
    Msisdn,
    OptionalTimestamp,
    ResourceId,
    ServiceWord,
    WireRequest,
    WireResource,
    no_line_breaks,
    unique,
)
from cpaas_provider.api.recipients.reader import split_list
from cpaas_provider.api.text import has_control_character, has_invisible_or_emoji, may_be_placeholder_in
from cpaas_provider.api.values import no_value_reason

_ALPHANUMERIC_SENDER_ID = 11
_NUMERIC_SENDER_ID = 16
_SHORTEST_EMAIL_RECIPIENTS = 4
_OWN_FIELDS = frozenset({"rejected_recipients", "rejection"})


def _substitutions(value: object) -> object:
    """Accept any JSON value for a placeholder, but not ``None``: the service's template decides how it is written."""
    # Called for each recipient of a campaign: comparing the type first, and a plain loop, are faster.
    if type(value) is dict or isinstance(value, Mapping):
        for substitution in value.values():
            if substitution is None:
                raise ValueError("has a placeholder without a value (None)")
        return dict(value)
    return value


def _sms_sender_id(value: str) -> str:
    longest = _NUMERIC_SENDER_ID if value.lstrip("+").isdigit() else _ALPHANUMERIC_SENDER_ID
    if reason := no_value_reason(value):
        raise ValueError(reason)
    if has_invisible_or_emoji(value):
        raise ValueError("must not contain control characters, zero-width characters or emoji")
    if len(value) > longest:
        raise ValueError(f"must have at most {longest} characters")
    return value


def _has_line_break(value: object) -> bool:
    """Return whether a value has a line break, at any depth."""
    if isinstance(value, str):
        return has_control_character(value)
    if isinstance(value, Mapping):
        return any(map(_has_line_break, (*value, *value.values())))
    return isinstance(value, (list, tuple)) and any(map(_has_line_break, value))


Substitutions = Annotated[dict[str, Any], BeforeValidator(_substitutions)]
MsisdnList = Annotated[list[Msisdn], Field(min_length=1), BeforeValidator(split_list), AfterValidator(unique)]
EmailList = Annotated[list[EmailAddress], Field(min_length=1), BeforeValidator(split_list), AfterValidator(unique)]
SmsSenderId = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1), AfterValidator(_sms_sender_id)]
HeaderLine = Annotated[GivenText, AfterValidator(no_line_breaks)]


class SmsPersonalisation(WireRequest):
    """The substitutions of one SMS recipient."""

    to: Msisdn
    substitutions: Substitutions


class EmailPersonalisation(WireRequest):
    """The substitutions of one email recipient."""

    to: EmailAddress
    substitutions: Substitutions


class MessageRequest(WireRequest):
    """The fields and rules of both kinds of message (contract.md 4.2, 4.3)."""

    recipients: list[str]
    sender_id: str
    content: GivenText | None = None
    template_id: GivenText | None = None
    external_ref: GivenText | None = None
    callback: CallbackUrl | None = None
    personalisation: Any = None

    @field_serializer("recipients")
    def _comma_separated(self, recipients: list[str]) -> str:
        return ",".join(recipients)

    @model_validator(mode="after")
    def _has_content_or_template(self) -> Self:
        if self.content is None and self.template_id is None:
            raise ValueError("needs content or template_id")
        return self

    @model_validator(mode="after")
    def _personalises_recipients_once(self) -> Self:
        personalised = [entry.to for entry in self.personalisation or ()]
        if len(set(personalised)) < len(personalised):
            raise ValueError("personalisation names a recipient twice")
        if not set(personalised) <= set(self.recipients):
            raise ValueError("personalisation names a recipient that is not in recipients")
        return self


class SendSmsRequest(MessageRequest):
    """Body of ``POST /sms/send``."""

    channel: Channel = "sms"
    recipients: MsisdnList
    sender_id: SmsSenderId
    is_trackable: bool | None = None
    personalisation: list[SmsPersonalisation] | None = None


class SendEmailRequest(MessageRequest):
    """Body of ``POST /email/send``."""

    recipients: EmailList
    sender_id: EmailAddress
    from_name: HeaderLine | None = None
    subject: HeaderLine | None = None
    reply_to: EmailAddress | None = None
    personalisation: list[EmailPersonalisation] | None = None

    @model_validator(mode="after")
    def _recipients_long_enough(self) -> Self:
        if len(",".join(self.recipients)) < _SHORTEST_EMAIL_RECIPIENTS:
            raise ValueError(f"recipients must have at least {_SHORTEST_EMAIL_RECIPIENTS} characters")
        return self

    @model_validator(mode="after")
    def _subject_stays_one_line(self) -> Self:
        """Refuse a line break in a value that the service may put into the subject."""
        if self.subject is not None:
            for entry in self.personalisation or ():
                for name, value in entry.substitutions.items():
                    if _has_line_break(value) and may_be_placeholder_in(self.subject, name):
                        raise ValueError(
                            "personalisation has a line break or another control character in a value of the subject"
                        )
        return self


class Estimate(WireResource):
    """Cost of a message request; ``encoding``, ``message_length`` and ``pages`` only for SMS."""

    available_balance: Figure = None
    charge: Cost = None
    encoding: ServiceWord | None = None
    message_length: Figure = None
    pages: Figure = None


class MessageMeta(WireResource):
    """``meta`` of an SMS or email message."""

    method: str | None = None
    resource: str | None = None
    estimate: Estimate | None = None


class PersonalisationOfMessage(WireResource):
    """A personalisation entry as the service returns it."""

    to: str | None = None
    substitutions: dict[str, Any] | None = None


class Message(WireResource):
    """The common fields of SMS and email messages in a response (contract.md 2.2, 2.3).

    Without an ``id`` there is no proof that the service accepted the message, so that field is required.
    """

    id: ResourceId
    recipients: Annotated[list[str], BeforeValidator(split_list)] | None = None
    sender_id: str | None = None
    external_ref: str | None = None
    callback: str | None = None
    template_id: str | None = None
    personalisation: list[PersonalisationOfMessage] | None = None
    created_datetime: OptionalTimestamp = None
    updated_datetime: OptionalTimestamp = None
    meta: MessageMeta | None = None

    # Set by the provider alone, see _drop_own_fields. Private attributes would take as long as all other fields.
    rejected_recipients: tuple[str, ...] = Field((), exclude=True)
    """The recipients in ``errors`` of a response that also has an id, in the form that the request had them.

    The service accepted the message for all other recipients.
    """
    rejection: str | None = Field(None, exclude=True)
    """The errors of a message that the service accepted, without numbers and addresses."""

    @model_validator(mode="before")
    @classmethod
    def _drop_own_fields(cls, data: Any) -> Any:
        """Leave out fields of the service that have the names of ours."""
        if isinstance(data, dict) and not _OWN_FIELDS.isdisjoint(data):
            return {name: value for name, value in data.items() if name not in _OWN_FIELDS}
        return data


class SmsMessage(Message):
    """An SMS request the service accepted; ``meta.estimate`` shows what it cost."""

    is_trackable: bool | None = None
    content: str | None = None


class EmailMessage(Message):
    """An email request the service accepted; ``meta.estimate`` shows what it cost."""

    from_name: str | None = None
