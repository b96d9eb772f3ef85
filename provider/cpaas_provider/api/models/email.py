"""Email (INTERFACE.md 2.2, 4.2)."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import AfterValidator, BeforeValidator, model_validator

from cpaas_provider.api.models.base import EmailAddress, no_line_breaks, split_list
from cpaas_provider.api.models.messages import EmailList, EmailPersonalisation, Message, MessageRequest

_SHORTEST_RECIPIENTS = 4

HeaderLine = Annotated[str, AfterValidator(no_line_breaks)]


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
        if len(",".join(self.recipients)) < _SHORTEST_RECIPIENTS:
            raise ValueError(f"recipients must have at least {_SHORTEST_RECIPIENTS} characters")
        return self


class EmailMessage(Message):
    """An email request the service accepted; ``meta.estimate`` shows what it cost.

    The contract marks recipients and sender required. They are read leniently all the same: with an ``id``, the
    message was accepted.
    """

    recipients: Annotated[list[str], BeforeValidator(split_list)] | None = None
    sender_id: str | None = None
    from_name: str | None = None
