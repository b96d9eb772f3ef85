"""SMS (INTERFACE.md 2.3, 4.3)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, StringConstraints

from cpaas_provider.api.models.base import split_list
from cpaas_provider.api.models.messages import Message, MessageRequest, MsisdnList, SmsPersonalisation

_ALPHANUMERIC_SENDER_ID = 11
_NUMERIC_SENDER_ID = 16

Channel = Literal["sms", "whatsapp"]


def _sender_id(value: str) -> str:
    longest = _NUMERIC_SENDER_ID if value.lstrip("+").isdigit() else _ALPHANUMERIC_SENDER_ID
    if len(value) > longest:
        raise ValueError(f"must have at most {longest} characters")
    return value


SmsSenderId = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1), AfterValidator(_sender_id)]


class SendSmsRequest(MessageRequest):
    """Body of ``POST /sms/send``."""

    channel: Channel = "sms"
    recipients: MsisdnList
    sender_id: SmsSenderId
    is_trackable: bool | None = None
    personalisation: list[SmsPersonalisation] | None = None


class SmsMessage(Message):
    """An SMS request the service accepted; ``meta.estimate`` shows what it cost."""

    recipients: Annotated[list[str], BeforeValidator(split_list)] | None = None
    sender_id: str | None = None
    is_trackable: bool | None = None
    content: str | None = None
