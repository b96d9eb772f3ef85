"""SMS (contract.md 2.3, 4.3)."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints

from cpaas_provider.api.models.base import Channel, Msisdn, WireRequest, unique
from cpaas_provider.api.models.messages import Message, MessageRequest, Substitutions
from cpaas_provider.api.recipients.reader import split_list
from cpaas_provider.api.text import has_invisible_or_emoji
from cpaas_provider.api.values import no_value_reason

_ALPHANUMERIC_SENDER_ID = 11
_NUMERIC_SENDER_ID = 16


def _sms_sender_id(value: str) -> str:
    longest = _NUMERIC_SENDER_ID if value.lstrip("+").isdigit() else _ALPHANUMERIC_SENDER_ID
    if reason := no_value_reason(value):
        raise ValueError(reason)
    if has_invisible_or_emoji(value):
        raise ValueError("must not contain control characters, zero-width characters or emoji")
    if len(value) > longest:
        raise ValueError(f"must have at most {longest} characters")
    return value


MsisdnList = Annotated[list[Msisdn], Field(min_length=1), BeforeValidator(split_list), AfterValidator(unique)]
SmsSenderId = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1), AfterValidator(_sms_sender_id)]


class SmsPersonalisation(WireRequest):
    """The substitutions of one SMS recipient."""

    to: Msisdn
    substitutions: Substitutions


class SendSmsRequest(MessageRequest):
    """Body of ``POST /sms/send``."""

    channel: Channel = "sms"
    recipients: MsisdnList
    sender_id: SmsSenderId
    is_trackable: bool | None = None
    personalisation: list[SmsPersonalisation] | None = None


class SmsMessage(Message):
    """An SMS request the service accepted; ``meta.estimate`` shows what it cost."""

    is_trackable: bool | None = None
    content: str | None = None
