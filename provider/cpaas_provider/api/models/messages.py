"""The common fields of SMS and email: recipients, personalisation, and content or template."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BeforeValidator, Field, PrivateAttr, field_serializer, model_validator

from cpaas_provider.api.models.base import (
    CallbackUrl,
    EmailAddress,
    Identifier,
    Msisdn,
    OptionalTimestamp,
    Reference,
    Text,
    WireRequest,
    WireResource,
    split_list,
    unique,
)
from cpaas_provider.api.models.meta import MessageMeta


def _substitutions(value: object) -> object:
    """Accept any JSON value for a placeholder, but not ``None``."""
    # Called for each recipient of a campaign: comparing the type first, and a plain loop, are faster.
    if type(value) is dict or isinstance(value, Mapping):
        for substitution in value.values():
            if substitution is None:
                raise ValueError("has a placeholder without a value (None)")
        return dict(value)
    return value


Substitutions = Annotated[dict[str, Any], BeforeValidator(_substitutions)]
MsisdnList = Annotated[list[Msisdn], Field(min_length=1), BeforeValidator(split_list), AfterValidator(unique)]
EmailList = Annotated[list[EmailAddress], Field(min_length=1), BeforeValidator(split_list), AfterValidator(unique)]


class SmsPersonalisation(WireRequest):
    """The substitutions of one SMS recipient."""

    to: Msisdn
    substitutions: Substitutions


class EmailPersonalisation(WireRequest):
    """The substitutions of one email recipient."""

    to: EmailAddress
    substitutions: Substitutions


class MessageRequest(WireRequest):
    """The fields and rules of both kinds of message (INTERFACE.md 4.2, 4.3)."""

    recipients: list[str]
    sender_id: str
    content: Text | None = None
    template_id: Reference | None = None
    external_ref: Reference | None = None
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


class PersonalisationOfMessage(WireResource):
    """A personalisation entry as the service returns it."""

    to: str | None = None
    substitutions: dict[str, Any] | None = None


class Message(WireResource):
    """The common fields of SMS and email messages in a response (INTERFACE.md 2.2, 2.3).

    Without an ``id`` there is no proof that the service accepted the message, so that field is required.
    """

    id: Identifier
    external_ref: str | None = None
    callback: str | None = None
    template_id: str | None = None
    personalisation: list[PersonalisationOfMessage] | None = None
    created_datetime: OptionalTimestamp = None
    updated_datetime: OptionalTimestamp = None
    meta: MessageMeta | None = None

    _rejected_recipients: tuple[str, ...] = PrivateAttr(default=())
    _rejection: str | None = PrivateAttr(default=None)

    @property
    def rejected_recipients(self) -> tuple[str, ...]:
        """The recipients in ``errors`` of a response that also has an id, in the form that the request had them.

        The service accepted the message for all other recipients.
        """
        return self._rejected_recipients

    @property
    def rejection(self) -> str | None:
        """The errors of a message that the service accepted, without numbers and addresses."""
        return self._rejection

    def record_rejected(self, recipients: tuple[str, ...], reason: str) -> None:
        """Store the recipients in ``errors`` of a response that also has an id."""
        self._rejected_recipients, self._rejection = recipients, reason
