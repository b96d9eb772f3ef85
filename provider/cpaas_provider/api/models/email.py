"""Email (contract.md 2.2, 4.2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from cpaas_provider.api.models.base import EmailAddress, GivenText, WireRequest, no_line_breaks, unique
from cpaas_provider.api.models.messages import Message, MessageRequest, Substitutions
from cpaas_provider.api.recipients.reader import split_list
from cpaas_provider.api.text import has_control_character, may_be_placeholder_in

_SHORTEST_EMAIL_RECIPIENTS = 4


def _has_line_break(value: object) -> bool:
    """Return whether a value has a line break, at any depth."""
    if isinstance(value, str):
        return has_control_character(value)
    if isinstance(value, Mapping):
        return any(map(_has_line_break, (*value, *value.values())))
    return isinstance(value, (list, tuple)) and any(map(_has_line_break, value))


EmailList = Annotated[list[EmailAddress], Field(min_length=1), BeforeValidator(split_list), AfterValidator(unique)]
HeaderLine = Annotated[GivenText, AfterValidator(no_line_breaks)]


class EmailPersonalisation(WireRequest):
    """The substitutions of one email recipient."""

    to: EmailAddress
    substitutions: Substitutions


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


class EmailMessage(Message):
    """An email request the service accepted; ``meta.estimate`` shows what it cost."""

    from_name: str | None = None
