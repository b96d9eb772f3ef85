"""What SMS and email have in common (contract.md 2.2, 2.3, 4.2, 4.3).

The contract marks some fields of a response required that are read leniently all the same: with an ``id``, the service
accepted the message, and a missing figure must not turn that into an unknown outcome.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import (
    BeforeValidator,
    Field,
    field_serializer,
    model_validator,
)

from cpaas_provider.api.models.base import (
    CallbackUrl,
    Cost,
    Figure,
    GivenText,
    OptionalTimestamp,
    ResourceId,
    ServiceWord,
    WireRequest,
    WireResource,
)
from cpaas_provider.api.recipients.reader import split_list

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


Substitutions = Annotated[dict[str, Any], BeforeValidator(_substitutions)]


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
