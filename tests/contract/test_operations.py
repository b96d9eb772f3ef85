"""Every operation and every field, client against sandbox over HTTP: two readings of one contract."""

from __future__ import annotations

from typing import Any

import pendulum
import pytest

from cpaas_provider.api import (
    CpaasAuthenticationError,
    CpaasInsufficientBalanceError,
    CpaasNotFoundError,
    CpaasNotVerifiedError,
    CpaasRejectedError,
    OtpOutcome,
)
from tests.contract.speaking import ADDRESS, OPERATIONS, PHONE, SENDER, Operation, Speaker


def recent(moment: pendulum.DateTime | None) -> bool:
    return moment is not None and moment.tzinfo is not None and abs(moment.diff(pendulum.now()).in_minutes()) < 5


@pytest.mark.parametrize("operation", OPERATIONS, ids=str)
def test_operation_is_accepted_once(speak: Speaker, operation: Operation) -> None:
    args, kwargs = operation.prepare(speak)
    before = speak.sandbox.counters()["accepted"].get(operation.name, 0)
    speak(operation.name, *args, **kwargs)
    assert speak.sandbox.counters()["accepted"][operation.name] == before + 1


def test_object_and_list_are_read_in_an_envelope(speak: Speaker) -> None:
    speak.sandbox.control("PUT", "settings", {"envelope": True})
    record = speak("request_otp", PHONE)
    assert [found.id for found in speak("find_otps", PHONE)] == [record.id]


def test_wrong_key_is_an_authentication_error(speak: Speaker) -> None:
    speak.api_key = "sk_test_wrong"
    with pytest.raises(CpaasAuthenticationError) as caught:
        speak("send_sms", [PHONE], "ACME", "Hello")
    assert "sk_test_wrong" not in str(caught.value)
    assert speak.sandbox.counters()["accepted"] == {}


def test_empty_auth_scheme_sends_the_raw_key(speak: Speaker) -> None:
    speak.sandbox.control("PUT", "settings", {"auth_scheme": "raw"})
    with pytest.raises(CpaasAuthenticationError):
        speak("get_contact_table")
    speak.options["auth_scheme"] = ""
    assert speak("get_contact_table").columns


def test_send_sms_carries_every_field(speak: Speaker) -> None:
    message = speak(
        "send_sms",
        ["+234 803 123 4567", "2348031234568"],
        "ACME",
        "Dear {name}, € 5",
        personalisation=[{"to": PHONE, "substitutions": {"name": "Ada"}}],
        channel="whatsapp",
        is_trackable=True,
        external_ref="order-1",
        callback="http://127.0.0.1:9/callback",
    )
    assert message.recipients == [PHONE, "2348031234568"]
    assert (message.sender_id, message.is_trackable, message.external_ref) == ("ACME", True, "order-1")
    assert message.callback == "http://127.0.0.1:9/callback"
    assert message.personalisation[0].to == PHONE
    assert recent(message.created_datetime)
    assert message.meta.method == "POST"
    assert message.meta.estimate.encoding
    assert message.meta.estimate.pages == 1
    counters = speak.sandbox.counters()
    assert counters["sms"]["recipients"] == 2
    assert message.meta.estimate.charge == counters["charged"]
    assert message.meta.estimate.available_balance == counters["balance"]
    texts = {item["recipient"]: item for item in speak.sandbox.inbox("sms")["items"]}
    assert texts[PHONE]["text"] == "Dear Ada, € 5"
    assert texts[PHONE]["channel"] == "whatsapp"


def test_send_sms_from_a_template(speak: Speaker) -> None:
    speak.sandbox.control(
        "POST", "seed", {"templates": [{"id": "welcome", "channel": "sms", "content": "Welcome {name}"}]}
    )
    message = speak(
        "send_sms",
        PHONE,
        "ACME",
        template_id="welcome",
        personalisation=[{"to": PHONE, "substitutions": {"name": "Ada"}}],
    )
    assert message.template_id == "welcome"
    assert speak.sandbox.inbox("sms")["items"][0]["text"] == "Welcome Ada"


def test_send_email_carries_every_field(speak: Speaker) -> None:
    message = speak(
        "send_email",
        [ADDRESS, "bea@example.com"],
        SENDER,
        "Dear {name}",
        subject="News for {name}",
        from_name="The Shop",
        reply_to="help@example.com",
        personalisation=[{"to": ADDRESS, "substitutions": {"name": "Ada"}}],
        external_ref="mail-1",
        callback="http://127.0.0.1:9/callback",
    )
    assert message.recipients == [ADDRESS, "bea@example.com"]
    assert (message.sender_id, message.from_name, message.external_ref) == (SENDER, "The Shop", "mail-1")
    assert recent(message.created_datetime)
    assert message.meta.estimate.charge == speak.sandbox.counters()["charged"]
    mails = {item["recipient"]: item for item in speak.sandbox.inbox("email")["items"]}
    assert "Dear Ada" in mails[ADDRESS]["text"]
    assert mails[ADDRESS]["reply_to"] == "help@example.com"


def test_otp_is_requested_found_verified_and_read(speak: Speaker) -> None:
    record = speak("request_otp", "+234 803 123 4567", length=8, expires_in=5, channel="whatsapp")
    code = speak.code()
    assert record.recipient == PHONE
    assert record.outcome() is OtpOutcome.PENDING
    assert recent(record.created_datetime)
    assert len(code) == 8
    assert code not in repr(record.model_dump())
    assert [found.id for found in speak("find_otps", PHONE)] == [record.id]
    with pytest.raises(CpaasNotVerifiedError) as caught:
        speak("verify_otp", id=record.id, token="0" * 8 if code != "0" * 8 else "1" * 8)
    assert caught.value.status == 404
    assert speak("verify_otp", id=record.id, token=code).outcome() is OtpOutcome.VERIFIED
    assert speak("get_otp", record.id).outcome() is OtpOutcome.VERIFIED


def test_otp_with_a_given_token_is_verified(speak: Speaker) -> None:
    record = speak("request_otp", PHONE, token="4821")
    assert speak("verify_otp", id=record.id, token="4821").id == record.id


def test_otp_expires_by_the_clock_of_the_service(speak: Speaker) -> None:
    record = speak("request_otp", PHONE, expires_in=1)
    speak.sandbox.control("POST", "clock/advance", {"seconds": 61})
    assert speak("get_otp", record.id).outcome() is OtpOutcome.EXPIRED
    with pytest.raises(CpaasNotVerifiedError):
        speak("verify_otp", id=record.id, token=speak.code())


def test_revoked_otp_has_the_outcome_revoked(speak: Speaker) -> None:
    record = speak("request_otp", PHONE)
    assert speak("revoke_otp", record.id) is None
    assert speak("get_otp", record.id).outcome() is OtpOutcome.REVOKED


def test_otp_status_may_stay_sent_after_verification(speak: Speaker) -> None:
    speak.sandbox.control("PUT", "settings", {"otp_status_mode": "sent"})
    record = speak("request_otp", PHONE)
    assert speak("verify_otp", id=record.id, token=speak.code()).status_desc == "SENT"
    assert speak("get_otp", record.id).outcome() is OtpOutcome.PENDING


def test_airtime_is_bought_and_charged(speak: Speaker) -> None:
    purchase = speak("buy_airtime", "mtn", 150.5, "0803 123 4567", external_ref="gift-1", **_in_nigeria(speak))
    assert (purchase.recipient, purchase.network, purchase.external_ref) == (PHONE, "MTN", "gift-1")
    assert purchase.status == "pending"
    assert purchase.meta.charge.amount == 150.5
    assert purchase.meta.charge.refunded is False
    assert purchase.meta.charge.balance_before - purchase.meta.charge.available_balance == pytest.approx(150.5)


def _in_nigeria(speak: Speaker) -> dict[str, Any]:
    speak.options["default_region"] = "NG"
    return {}


def test_row_is_created_read_updated_and_deleted(speak: Speaker) -> None:
    table = speak("get_contact_table")
    assert {column.type for column in table.columns} == {
        "TEXT",
        "NUMBER",
        "DATE",
        "PHONE NUMBER",
        "EMAIL",
        "URL",
        "SELECT",
        "MULTI SELECT",
    }
    name, phone = (next(c.id for c in table.columns if c.type == kind) for kind in ("TEXT", "PHONE NUMBER"))
    created = speak("create_contact_row", {name: "Ada", phone: PHONE})
    assert created.table.id == table.id
    row_id = created.row.id
    updated = speak("update_contact_row", row_id, {name: "Bea"})
    assert (updated.row.columns[name], updated.row.columns[phone]) == ("Bea", PHONE)
    assert speak("update_contact_row", row_id, {phone: None}).row.columns[phone] is None
    assert speak("get_contact_row", row_id).row.columns[name] == "Bea"
    assert speak("delete_contact_row", row_id) is None
    for operation, args in (
        ("get_contact_row", (row_id,)),
        ("update_contact_row", (row_id, {name: "Cyd"})),
        ("delete_contact_row", (row_id,)),
    ):
        with pytest.raises(CpaasNotFoundError):
            speak(operation, *args)


@pytest.mark.parametrize("answer", ["message", "record", "empty"])
def test_deletion_with_any_response_body_succeeds(speak: Speaker, answer: str) -> None:
    row_id, otp_id = speak.new_row(), speak.new_otp()
    speak.sandbox.control("PUT", "settings", {"delete_body": answer})
    assert speak("delete_contact_row", row_id) is None
    assert speak("revoke_otp", otp_id) is None


def test_repeated_lookup_returns_the_same_result(speak: Speaker) -> None:
    first, second = speak("lookup_phone", PHONE), speak("lookup_phone", "+" + PHONE)
    assert first == second
    assert first.msisdn == PHONE
    assert first.country == "NG"
    assert isinstance(first.dnd, bool)


@pytest.mark.parametrize("style", ["402", "under_200"])
def test_insufficient_balance_is_a_rejection_in_both_styles(speak: Speaker, style: str) -> None:
    speak.sandbox.control("PUT", "settings", {"insufficient_balance": style})
    speak.sandbox.control("PUT", "balance", {"balance": 0})
    with pytest.raises(CpaasRejectedError) as caught:
        speak("send_sms", PHONE, "ACME", "Hello")
    if style == "402":
        assert isinstance(caught.value, CpaasInsufficientBalanceError)
    assert speak.sandbox.counters()["sms"]["recipients"] == 0


def test_errors_name_several_fields_and_show_no_value(speak: Speaker) -> None:
    with pytest.raises(CpaasRejectedError) as caught:
        speak("create_contact_row", {"no-such-column": "Ada Lovelace", "nor-this": "x"})
    assert {item.field for item in caught.value.items} >= {"columns.no-such-column", "columns.nor-this"} or len(
        caught.value.items
    ) == 2
    assert "Ada Lovelace" not in str(caught.value)


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize(
    ("operation", "sender", "recipients"),
    [
        ("send_sms", "Clinic", ["2348031234567", "2348031234568", "2348031234569"]),
        ("send_email", SENDER, ["ada@example.com", "Bob.O@example.com", "eve@example.com"]),
    ],
)
def test_rejected_message_names_its_recipients_if_the_service_does(
    speak: Speaker, operation: str, sender: str, recipients: list[str], named: bool
) -> None:
    speak.sandbox.control("PUT", "settings", {"name_refused_recipients": named})
    speak.sandbox.control("POST", "seed", {"refused_recipients": recipients[1:]})
    with pytest.raises(CpaasRejectedError) as caught:
        speak(operation, recipients, sender, "Hello")
    assert caught.value.rejected_recipients == (tuple(recipients[1:]) if named else ())
    assert not caught.value.is_message_error
    assert all(one not in str(caught.value) + repr(caught.value) for one in recipients)


def test_rejected_sender_is_a_message_error(speak: Speaker) -> None:
    with pytest.raises(CpaasRejectedError) as caught:
        speak("send_sms", [PHONE], "A@B", "Hello")
    assert (caught.value.rejected_recipients, caught.value.is_message_error) == ((), True)
