"""What is sent once: its checks and its spec, without Airflow and without a socket."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from cpaas_provider.api.settings import ClientSettings
from cpaas_provider.sending.errors import (
    InvalidRequestError,
    MissingValuesError,
    NoRecipientsError,
    NoSenderError,
    TooManyRecipientsError,
)
from cpaas_provider.sending.requests.message import EMAIL, SMS, MessageKind, MessageRequest
from cpaas_provider.sending.requests.phone import INVALID_NUMBER, AirtimeRequest, OtpRequest
from cpaas_provider.sending.requests.request import SingleRequest, SuppressionScope

ADA, OBI = "+2348031234567", "+2348031234568"


def settings(**options: Any) -> ClientSettings:
    return ClientSettings("https://service.example.com", "sk_test_key", **options)


@dataclass
class Connection:
    """A connection as a request sees it."""

    settings: ClientSettings = field(default_factory=settings)
    sender_id: str | None = None
    email_sender_id: str | None = None
    recipients_per_request: int = 2
    placeholder_format: str = "{name}"


def message(*recipients: str, kind: MessageKind = SMS, sender: str | None = "Shop", **body: Any) -> MessageRequest:
    return MessageRequest(kind, list(recipients), sender, {"content": "Hello", **body})


@pytest.mark.parametrize(
    ("kind", "recipient", "option"), [(SMS, ADA, "sender_id"), (EMAIL, "ada@example.com", "email_sender_id")]
)
def test_missing_sender_names_the_setting_that_has_the_default(kind: MessageKind, recipient: str, option: str) -> None:
    with pytest.raises(NoSenderError) as raised:
        message(recipient, kind=kind, sender=None).build_spec(Connection())
    assert raised.value.option == option
    sender = "shop@example.com"
    spec = message(recipient, kind=kind, sender=None).build_spec(Connection(**{option: sender}))
    assert spec.body["sender_id"] == sender


def test_too_many_recipients_are_counted_beside_the_limit() -> None:
    with pytest.raises(TooManyRecipientsError) as raised:
        message(ADA, OBI).build_spec(Connection(recipients_per_request=1))
    assert (raised.value.recipients, raised.value.most) == (2, 1)


def test_placeholders_without_a_value_are_named_in_order() -> None:
    with pytest.raises(MissingValuesError) as raised:
        message(ADA, content="{name}, your {code}").build_spec(Connection())
    assert raised.value.placeholders == ["code", "name"]


@pytest.mark.parametrize(
    "request_to_ada", [message(ADA), OtpRequest(ADA), AirtimeRequest(ADA, "MTN", 5)], ids=["message", "otp", "airtime"]
)
def test_recipient_that_is_not_allowed_leaves_nothing_to_send(request_to_ada: SingleRequest) -> None:
    connection = Connection(settings(allowed_recipients=[OBI]))
    with pytest.raises(NoRecipientsError, match=r"allowed_recipients.*Nothing was sent"):
        request_to_ada.build_spec(connection)


def test_recipients_that_are_not_allowed_are_left_out_and_counted() -> None:
    spec = message(ADA, OBI).build_spec(Connection(settings(allowed_recipients=[OBI])))
    assert (spec.recipients, spec.not_allowed) == ((OBI.removeprefix("+"),), 1)


@pytest.mark.parametrize("error", [NoSenderError, TooManyRecipientsError, MissingValuesError])
def test_request_that_cannot_be_sent_is_not_retried(error: type[InvalidRequestError]) -> None:
    assert issubclass(error, InvalidRequestError)
    assert error.permanent
    assert not NoRecipientsError.permanent


def test_only_numbers_that_cannot_be_reached_hold_back_a_passcode() -> None:
    assert OtpRequest(ADA).suppression_scope == SuppressionScope("sms", (INVALID_NUMBER,))
    assert message(ADA, channel="whatsapp").suppression_scope == SuppressionScope("whatsapp")
    assert AirtimeRequest(ADA, "MTN", 5).suppression_scope is None
