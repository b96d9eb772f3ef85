"""What leaves: every request's fields, checked before anything is sent (contract.md 4 and 10)."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from typing import Any

import pytest

from cpaas_provider.api import operations as ask
from cpaas_provider.api.core import Call
from cpaas_provider.api.errors import CpaasInvalidRequestError
from cpaas_provider.api.settings import ClientSettings

ADA, BOB = "2348031234567", "2348031234568"
TO_ADA = {"to": ADA, "substitutions": {"first": "Ada"}}

Body = Callable[[Call[Any]], dict[str, Any]]
Refusal = Callable[[Call[Any]], CpaasInvalidRequestError]


@pytest.fixture
def body(settings: ClientSettings) -> Body:
    def built(call: Call[Any]) -> dict[str, Any]:
        request, _ = call.build(settings)
        return dict(json.loads(request.body or b"{}"))

    return built


@pytest.fixture
def refusal(settings: ClientSettings) -> Refusal:
    def refused(call: Call[Any]) -> CpaasInvalidRequestError:
        with pytest.raises(CpaasInvalidRequestError) as caught:
            call.build(settings)
        assert str(caught.value).startswith(f"{call.endpoint.operation}: ")
        assert str(caught.value).endswith("Nothing was sent.")
        assert not caught.value.retryable
        assert not caught.value.maybe_sent
        return caught.value

    return refused


def sms(**fields: Any) -> Call[Any]:
    return ask.send_sms(**{"recipients": ADA, "sender_id": "Clinic", "content": "Hello", **fields})


def email(**fields: Any) -> Call[Any]:
    given = {"recipients": "ada@example.com", "sender_id": "clinic@example.com", "content": "Hello"}
    return ask.send_email(**{**given, **fields})


LINE_BREAKS = "\r\n\t\x00\x0b\x0c\x1c\x1d\x1e\x7f\x85\u2028\u2029"
NOT_SHOWN = "must not contain control characters, zero-width characters or emoji"
NO_SENDER_CHARACTERS = [
    "\u200bX",
    "\u25fe",
    "\u203c",
    "\u3030",
    "\u200dX",
    "\ufeffX",
    "\xadX",
    "\u202eX",
    "\u2060X",
    "\U0001f600",
    "\u2764\ufe0f",
    "1\u20e3",
]


def values(**substitutions: Any) -> list[dict[str, Any]]:
    """Return the personalisation of one recipient of an email."""
    return [{"to": "ada@example.com", "substitutions": substitutions}]


class Row:
    """A sequence that is none of Python's own, as a mapped task's results are."""

    def __iter__(self) -> Iterator[str]:
        return iter([ADA, BOB])


@pytest.mark.parametrize(
    "call",
    [
        email(subject="Hello", personalisation=values(address="Lane 1\nLagos")),
        email(subject="Your new address", personalisation=values(address="Lane 1\nLagos")),
        email(subject="Hi {first}", personalisation=values(first="Ada", firstborn="A\nB")),
        email(content="Two\nlines\u2028three"),
        sms(content="Two\nlines", personalisation=[{"to": ADA, "substitutions": {"first": "A\nB"}}]),
        sms(sender_id="Café & Co"),
        sms(sender_id="N°1 Shop"),
    ],
)
def test_line_breaks_outside_of_headers_and_letters_of_any_kind_are_taken(call: Call[Any], body: Body) -> None:
    assert body(call)


# What is sent -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "method", "target", "body"),
    [
        (
            ask.send_sms([ADA, BOB], "Clinic", "Hello"),
            "POST",
            "/sms/send",
            {"channel": "sms", "recipients": f"{ADA},{BOB}", "sender_id": "Clinic", "content": "Hello"},
        ),
        (
            ask.send_sms(
                ADA,
                "Clinic",
                template_id="t-1",
                personalisation=[TO_ADA],
                channel="whatsapp",
                is_trackable=False,
                external_ref="ref-1",
                callback="https://example.com/report?x=1",
            ),
            "POST",
            "/sms/send",
            {
                "channel": "whatsapp",
                "recipients": ADA,
                "sender_id": "Clinic",
                "template_id": "t-1",
                "personalisation": [TO_ADA],
                "is_trackable": False,
                "external_ref": "ref-1",
                "callback": "https://example.com/report?x=1",
            },
        ),
        (
            ask.send_email(
                ["ada@example.com", "bob@EXAMPLE.com"],
                "clinic@example.com",
                "<p>Hello</p>",
                subject="Results",
                from_name="The clinic",
                reply_to="desk@example.com",
                external_ref="ref-2",
                callback="http://example.com",
                personalisation=[{"to": "ada@example.com", "substitutions": {"n": 1}}],
            ),
            "POST",
            "/email/send",
            {
                "recipients": "ada@example.com,bob@example.com",
                "sender_id": "clinic@example.com",
                "content": "<p>Hello</p>",
                "subject": "Results",
                "from_name": "The clinic",
                "reply_to": "desk@example.com",
                "external_ref": "ref-2",
                "callback": "http://example.com",
                "personalisation": [{"to": "ada@example.com", "substitutions": {"n": 1}}],
            },
        ),
        (ask.request_otp(ADA), "POST", "/otp/request_token", {"recipient": ADA}),
        (
            ask.request_otp(ADA, length=6, expires_in=5, token="123456", channel="whatsapp"),
            "POST",
            "/otp/request_token",
            {"recipient": ADA, "length": 6, "expires_in": 5, "token": "123456", "channel": "whatsapp"},
        ),
        (ask.verify_otp("otp-1", "0042"), "POST", "/otp/verify", {"id": "otp-1", "token": "0042"}),
        (ask.get_otp("otp-1"), "GET", "/otp/otp-1", None),
        (ask.find_otps("0803 123 4567"), "GET", f"/otp/get-by-recipient?recipient={ADA}", None),
        (ask.revoke_otp("otp-1"), "DELETE", "/otp/otp-1", None),
        (
            ask.buy_airtime("mtn", 100, ADA, callback="https://example.com", external_ref="ref-3"),
            "POST",
            "/airtime/buy",
            {
                "network": "MTN",
                "amount": 100,
                "recipient": ADA,
                "callback": "https://example.com",
                "external_ref": "ref-3",
            },
        ),
        (ask.get_contact_table(), "GET", "/lists/contact", None),
        (ask.get_contact_row("row-1"), "GET", "/lists/contact/row/row-1", None),
        (ask.create_contact_row({"c-1": "Ada"}), "POST", "/lists/contact/rows", {"columns": {"c-1": "Ada"}}),
        (
            ask.update_contact_row("row-1", {"c-1": None}),
            "PATCH",
            "/lists/contact/rows/row-1",
            {"columns": {"c-1": None}},
        ),
        (ask.delete_contact_row("row-1"), "DELETE", "/lists/contact/rows/row-1", None),
        (ask.lookup_phone("+234 803 123 4567"), "GET", "/lookup/phone", {"phone": ADA}),
    ],
    ids=lambda value: value.endpoint.operation if isinstance(value, Call) else "",
)
def test_each_operation_has_its_method_target_and_body(
    settings: ClientSettings, call: Call[Any], method: str, target: str, body: dict[str, Any] | None
) -> None:
    request, _ = call.build(settings)
    assert request.method == method
    assert request.url == settings.base_url + target
    assert (json.loads(request.body) if request.body else None) == body
    assert request.headers.get("Content-Type") == ("application/json" if body else None)


@pytest.mark.parametrize(
    "recipients",
    [
        f"{ADA},{BOB}",
        f" {ADA} , 0803 123 4568 ,,",
        [ADA, BOB],
        (ADA, BOB, "0803 123 4567"),
        [int(ADA), float(BOB)],
        {ADA: 1, BOB: 2}.keys(),
        iter([ADA, BOB]),
        (number for number in (ADA, BOB)),
        Row(),
    ],
    ids=["text", "loose text", "list", "tuple with a repeat", "numbers", "keys", "iterator", "generator", "iterable"],
)
def test_recipients_in_any_form_travel_once_each_separated_by_commas(recipients: Iterable[Any], body: Body) -> None:
    assert body(sms(recipients=recipients))["recipients"] == f"{ADA},{BOB}"


def test_mailbox_in_two_spellings_is_one_recipient_in_its_first_spelling(body: Body) -> None:
    mails = ask.send_email(
        ["Ada@example.com", "bob@example.com", "ada@Example.com"], "clinic@example.com", content="Hi"
    )
    assert body(mails)["recipients"] == "Ada@example.com,bob@example.com"


def test_single_number_is_a_list_of_one(body: Body) -> None:
    assert body(sms(recipients=int(ADA)))["recipients"] == ADA


def test_absent_value_is_never_sent(body: Body) -> None:
    for call in (
        sms(template_id=None, callback=None, is_trackable=None, channel=None, personalisation=None),
        email(subject=None, reply_to=None),
        ask.request_otp(ADA, length=None, token=None),
        ask.buy_airtime("MTN", 100, ADA, callback=None),
    ):
        assert None not in body(call).values()


def test_text_travels_as_it_is(body: Body) -> None:
    content = 'Ẹ káàárọ̀ 😀\n\t"quoted" \\ {first} {{name}} </script>'
    assert body(sms(content=content))["content"] == content


def test_personalisation_is_matched_by_normal_form(body: Body) -> None:
    call = sms(
        recipients="0803 123 4567", personalisation=[{"to": "+2348031234567", "substitutions": {"first": "Ada"}}]
    )
    assert body(call)["personalisation"] == [TO_ADA]


@pytest.mark.parametrize("value", ["Ada", 5, 5.5, True, [1], {"a": "b"}, ""])
def test_any_json_value_may_be_a_substitution(value: Any, body: Body) -> None:
    call = sms(personalisation=[{"to": ADA, "substitutions": {"x": value}}])
    assert body(call)["personalisation"][0]["substitutions"] == {"x": value}


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ("Ada", "Ada"),
        (5, 5),
        (5.5, 5.5),
        (True, True),
        (None, None),
        (["a", "b"], ["a", "b"]),
        (datetime.date(2024, 3, 1), "2024-03-01"),
        (Decimal("1.50"), "1.50"),
    ],
)
def test_cell_is_sent_in_its_json_form(given: Any, sent: Any, body: Body) -> None:
    assert body(ask.create_contact_row({"c-1": given})) == {"columns": {"c-1": sent}}


@pytest.mark.parametrize(("given", "sent"), [(50, 50), ("100", 100), (100.0, 100), ("75.5", 75.5), (Decimal("60"), 60)])
def test_amount_is_sent_as_a_number(given: Any, sent: float, body: Body) -> None:
    amount = body(ask.buy_airtime("MTN", given, ADA))["amount"]
    assert amount == sent
    assert type(amount) is type(sent)


@pytest.mark.parametrize(
    ("given", "sent"),
    [("mtn", "MTN"), (" AIRTEL ", "Airtel"), ("glo", "Glo"), ("9Mobile", "9mobile"), ("ntel", "NTEL")],
)
def test_networks_in_any_spelling(given: str, sent: str, body: Body) -> None:
    assert body(ask.buy_airtime(given, 100, ADA))["network"] == sent


@pytest.mark.parametrize(("given", "sent"), [(4, 4), (8, 8), ("6", 6), (6.0, 6)])
def test_lengths_of_a_code(given: Any, sent: int, body: Body) -> None:
    assert body(ask.request_otp(ADA, length=given))["length"] == sent


@pytest.mark.parametrize(("given", "sent"), [(1, 1), (60, 60), ("15", 15)])
def test_lifetimes_of_a_code(given: Any, sent: int, body: Body) -> None:
    assert body(ask.request_otp(ADA, expires_in=given))["expires_in"] == sent


@pytest.mark.parametrize("sender_id", ["A", "ElevenChars", "32811", "+2348031234567", "1234567890123456"])
def test_sender_id_is_stripped(sender_id: str, body: Body) -> None:
    assert body(sms(sender_id=f" {sender_id} "))["sender_id"] == sender_id


# What is refused ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (sms(recipients=None), "recipients: Field required"),
        (sms(recipients=[]), "recipients: List should have at least 1 item"),
        (sms(recipients=" , "), "recipients: List should have at least 1 item"),
        (sms(recipients=[ADA, "0803", BOB]), "recipients.1: is not a phone number"),
        (sms(recipients=[ADA, None]), "recipients.1: is empty"),
        (sms(recipients={"a": ADA}), "recipients.0: must be text or a whole number"),
        (sms(recipients=True), "recipients.0: must be text or a whole number"),
        (sms(recipients=b"2348031234567"), "recipients.0: must be text or a whole number"),
        (sms(sender_id=None), "sender_id: Field required"),
        (sms(sender_id=" "), "sender_id: String should have at least 1 character"),
        (sms(sender_id="TwelveChars!"), "sender_id: must have at most 11 characters"),
        (sms(sender_id="12345678901234567"), "sender_id: must have at most 16 characters"),
        (sms(content=None), "needs content or template_id"),
        (sms(content=""), "content: String should have at least 1 character"),
        (sms(content=5), "content: Input should be a valid string"),
        (sms(template_id=""), "template_id: String should have at least 1 character"),
        (sms(channel="voice"), "channel: Input should be 'sms' or 'whatsapp'"),
        (sms(is_trackable="perhaps"), "is_trackable: Input should be a valid boolean"),
        (sms(external_ref=""), "external_ref: String should have at least 1 character"),
        (sms(callback="example.com/report"), "callback: must be an http or https URL"),
        (sms(callback="ftp://example.com"), "callback: must be an http or https URL"),
        (sms(callback="https://"), "callback: must be an http or https URL"),
        (sms(callback="https://example.com/a b"), "callback: must be an http or https URL"),
        (sms(callback="https://example.com/a\r\nb"), "callback: must be an http or https URL"),
        (sms(callback="https://example.com/a\u2028b"), "callback: must be an http or https URL"),
        (sms(personalisation=[TO_ADA, TO_ADA]), "names a recipient twice"),
        (sms(personalisation=[{"to": BOB, "substitutions": {}}]), "names a recipient that is not in recipients"),
        (sms(personalisation=[{"to": ADA}]), "personalisation.0.substitutions: Field required"),
        (sms(personalisation=[{"substitutions": {}}]), "personalisation.0.to: Field required"),
        (sms(personalisation=[{**TO_ADA, "name": "Ada"}]), "personalisation.0.name: Extra inputs are not permitted"),
        (sms(personalisation=[{"to": ADA, "substitutions": {"x": None}}]), "a placeholder without a value"),
        (sms(personalisation=[{"to": ADA, "substitutions": "x"}]), "personalisation.0.substitutions"),
        (email(recipients="ada@example.com,bob"), "recipients.1: is not an email address"),
        (email(recipients=[]), "recipients: List should have at least 1 item"),
        (email(sender_id="Clinic"), "sender_id: is not an email address"),
        (email(content=None), "needs content or template_id"),
        (email(reply_to="desk"), "reply_to: is not an email address"),
        (email(subject="Hi\r\nBcc: x@example.com"), "subject: must not contain line breaks"),
        (email(from_name="Clinic\n"), "from_name: must not contain line breaks"),
        *(
            (email(**{field: f"Clinic{mark}X"}), f"{field}: must not contain line breaks or other control characters")
            for field in ("subject", "from_name")
            for mark in LINE_BREAKS
        ),
        *((email(sender_id=f"a@ex{mark}ample.com"), "sender_id: is not an email address") for mark in LINE_BREAKS),
        *((email(reply_to=f"a{mark}b@example.com"), "reply_to: is not an email address") for mark in LINE_BREAKS),
        *((sms(sender_id=f"Cli{mark}nic"), f"sender_id: {NOT_SHOWN}") for mark in LINE_BREAKS),
        *((sms(sender_id=f"Cli{mark}"), f"sender_id: {NOT_SHOWN}") for mark in NO_SENDER_CHARACTERS),
        *(
            (email(subject=subject, personalisation=values(first=value)), "a line break or another control character")
            for subject in ("Hi {first}", "Hi {{ first }}", "Hi %first%", "Hi $first", "[first]", "<%first%>")
            for value in ("A\nB", "A\u2028B", ["A\x85B"], {"x": "A\rB"})
        ),
        (ask.request_otp(ADA, length=3), "length: Input should be greater than or equal to 4"),
        (ask.request_otp(ADA, length=9), "length: Input should be less than or equal to 8"),
        (ask.request_otp(ADA, length="six"), "length: Input should be a valid integer"),
        (ask.request_otp(ADA, length="4.5"), "length: Input should be a valid integer"),
        (ask.request_otp(ADA, expires_in=0), "expires_in: Input should be greater than or equal to 1"),
        (ask.request_otp(ADA, expires_in=61), "expires_in: Input should be less than or equal to 60"),
        (ask.request_otp(ADA, token=""), "token: String should have at least 1 character"),
        (ask.request_otp(ADA, channel="email"), "channel: Input should be 'sms' or 'whatsapp'"),
        (ask.request_otp(f"{ADA},{BOB}"), "recipient: is followed by a second number or an extension"),
        (ask.verify_otp("otp-1", 123456), "token: Input should be a valid string"),  # type: ignore[arg-type]
        (ask.verify_otp("", "1234"), "id: String should have at least 1 character"),
        (ask.verify_otp(None, "1234"), "id: Field required"),  # type: ignore[arg-type]
        (ask.get_otp(""), "id: String should have at least 1 character"),
        (ask.find_otps("ada"), "recipient: contains letters"),
        (ask.buy_airtime("Orange", 100, ADA), "network: Input should be 'Airtel', 'MTN', 'Glo', '9mobile' or 'NTEL'"),
        (ask.buy_airtime("MTN", 49, ADA), "amount: Input should be greater than or equal to 50"),
        (ask.buy_airtime("MTN", 49.99, ADA), "amount: Input should be greater than or equal to 50"),
        (ask.buy_airtime("MTN", -100, ADA), "amount: Input should be greater than or equal to 50"),
        *(
            (ask.buy_airtime("MTN", bad, ADA), "amount: must be a number")
            for bad in ("a lot", "", True, float("inf"), float("nan"), "1e999", 10**400, [100])
        ),
        (ask.create_contact_row({}), "columns: Dictionary should have at least 1 item"),
        (ask.create_contact_row({"": "Ada"}), "columns"),
        (ask.create_contact_row("Ada"), "columns: Input should be a valid dictionary"),  # type: ignore[arg-type]
        (ask.update_contact_row("", {"c": 1}), "row_id: String should have at least 1 character"),
        (ask.delete_contact_row(None), "row_id: Field required"),  # type: ignore[arg-type]
        (ask.lookup_phone("12"), "phone: is not a phone number"),
    ],
    ids=lambda value: value.endpoint.operation if isinstance(value, Call) else None,
)
def test_field_that_breaks_the_contract_is_named(call: Call[Any], reason: str, refusal: Refusal) -> None:
    assert reason in str(refusal(call))


@pytest.mark.parametrize(
    "value",
    [object(), float("nan"), float("inf"), b"\xff", "\ud800"],
    ids=["object", "NaN", "infinity", "bytes", "half a character"],
)
def test_value_that_json_cannot_carry_is_refused(value: Any, refusal: Refusal) -> None:
    assert "JSON cannot carry" in str(refusal(ask.update_contact_row("row-1", {"c-1": value})))
    assert "JSON cannot carry" in str(refusal(sms(personalisation=[{"to": ADA, "substitutions": {"x": value}}])))


def test_value_that_contains_itself_is_refused(refusal: Refusal) -> None:
    cells: dict[str, Any] = {}
    cells["c-1"] = cells
    assert "JSON cannot carry" in str(refusal(ask.create_contact_row(cells)))


def test_unknown_field_is_refused(refusal: Refusal) -> None:
    call = Call(sms().endpoint, {**sms().fields, "priority": "high"})
    assert "priority: Extra inputs are not permitted" in str(refusal(call))


def test_error_lists_all_faults_up_to_ten(refusal: Refusal) -> None:
    error = refusal(sms(recipients=["12"] * 30, sender_id="much too long", channel="voice"))
    assert len(error.items) == 32
    assert "recipients.9" in str(error) or "sender_id" in str(error)
    assert "; and 22 more." in str(error)


def test_error_of_an_invalid_request_shows_no_value(refusal: Refusal) -> None:
    secrets = ("0803123456789012", "secret-code", "ada@nowhere")
    for call in (
        sms(recipients=[secrets[0], f"+{secrets[0]}"], content=[secrets[1]]),
        email(recipients=secrets[2], subject=f"{secrets[1]}\n"),
        ask.verify_otp("", [secrets[1]]),  # type: ignore[arg-type]
        ask.create_contact_row({"c-1": secrets[1].encode() + b"\xff"}),
    ):
        error = refusal(call)
        chain = [str(error), repr(error), repr(error.items), str(error.__cause__)]
        assert not [secret for secret in secrets for words in chain if secret in words]


def test_repr_of_call_and_request_shows_no_value(settings: ClientSettings) -> None:
    call = ask.verify_otp("otp-1", "4711-secret")
    request, _ = call.build(settings)
    found, _ = ask.find_otps(ADA).build(settings)
    shown = f"{call!r} {request!r} {found!r} {ask.find_otps(ADA)!r}"
    for secret in ("4711-secret", ADA, settings.api_key):
        assert secret not in shown


# Where an id stands in a path ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("identifier", "segment"),
    [
        ("3fa85f64-5717", "3fa85f64-5717"),
        ("a b", "a%20b"),
        ("a/b", "a%2Fb"),
        ("a?b#c", "a%3Fb%23c"),
        ("../otp", "..%2Fotp"),
        ("a%2Fb", "a%252Fb"),
        ("%2e%2e", "%252e%252e"),
        ("ẹ", "%E1%BA%B9"),
        ("a\r\nb", "a%0D%0Ab"),
        ("a.b", "a.b"),
        ("...a", "...a"),
    ],
)
@pytest.mark.parametrize(
    ("operation", "prefix"),
    [
        (ask.get_otp, "/otp/"),
        (ask.revoke_otp, "/otp/"),
        (ask.get_contact_row, "/lists/contact/row/"),
        (ask.delete_contact_row, "/lists/contact/rows/"),
    ],
)
def test_id_stays_one_segment_of_the_path(
    settings: ClientSettings, operation: Callable[[str], Call[Any]], prefix: str, identifier: str, segment: str
) -> None:
    request, _ = operation(identifier).build(settings)
    assert request.url == settings.base_url + prefix + segment


@pytest.mark.parametrize("identifier", [".", "..", "..."])
def test_ids_of_dots_are_refused(identifier: str, refusal: Refusal) -> None:
    for call in (ask.get_otp(identifier), ask.revoke_otp(identifier), ask.update_contact_row(identifier, {"c": 1})):
        assert "is not an id" in str(refusal(call))


def test_path_of_the_revoke_operation_is_configurable() -> None:
    elsewhere = ClientSettings("https://cpaas.example.com", "key", otp_revoke_path="/otp/{id}/revoke")
    request, _ = ask.revoke_otp("a/b").build(elsewhere)
    assert request.url == "https://cpaas.example.com/otp/a%2Fb/revoke"
    assert ask.get_otp("x").build(elsewhere)[0].url == "https://cpaas.example.com/otp/x"


# The staging guard --------------------------------------------------------------------------------------------------


@pytest.fixture
def staging() -> ClientSettings:
    return ClientSettings("https://cpaas.example.com", "key", allowed_recipients=[ADA, "@example.com"])


@pytest.mark.parametrize(
    "call",
    [
        sms(recipients=[ADA, BOB]),
        email(recipients=["ada@example.com", "eve@elsewhere.org"]),
        ask.request_otp(BOB),
        ask.buy_airtime("MTN", 100, BOB),
    ],
    ids=lambda call: call.endpoint.operation,
)
def test_recipients_outside_allowed_recipients_are_refused(call: Call[Any], staging: ClientSettings) -> None:
    with pytest.raises(CpaasInvalidRequestError, match=r"1 of . recipients are not in allowed_recipients") as caught:
        call.build(staging)
    assert BOB not in str(caught.value)


@pytest.mark.parametrize(
    "call",
    [
        sms(),
        email(),
        ask.request_otp(ADA),
        ask.buy_airtime("MTN", 100, ADA),
        ask.verify_otp("otp-1", "1234"),
        ask.create_contact_row({"c-1": BOB}),
        ask.find_otps(BOB),
        ask.lookup_phone(BOB),
    ],
    ids=lambda call: call.endpoint.operation,
)
def test_allowed_recipients_and_calls_without_one_are_sent(call: Call[Any], staging: ClientSettings) -> None:
    assert call.build(staging)[0].url.startswith(staging.base_url)
