from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpaas_provider.api.errors import ErrorItem
from cpaas_provider.api.responses.error_items import is_message_error, rejected_recipients

ADA, BOB, EVE = "2348031234567", "2348031234568", "2348031234569"
SMS: dict[str, Any] = {
    "recipients": f"{ADA},{BOB},{EVE}",
    "content": "Hello",
    "personalisation": [{"to": EVE, "substitutions": {}}, {"to": ADA, "substitutions": {}}],
}
EMAIL: dict[str, Any] = {"recipients": "Ada@example.com,bob@example.com"}


@pytest.mark.parametrize(
    ("field", "message", "named"),
    [
        ("recipients", f"{BOB} is not a valid recipient", (BOB,)),
        ("recipients", f"+{BOB} is not a valid recipient", (BOB,)),
        ("recipients", "+234 803 123 4568 is not valid.", (BOB,)),
        ("recipients", f"{EVE}, {BOB}", (BOB, EVE)),
        ("recipients", f"{EVE} {BOB}", (BOB, EVE)),
        ("recipients", f"recipient 1 {EVE}", (EVE,)),
        ("recipients", "2348030000000 is not valid", ()),
        ("recipients", "a recipient is not valid", ()),
        ("recipients", None, ()),
        ("recipients.1", "is not valid", (BOB,)),
        ("recipients[1]", None, (BOB,)),
        ("body.recipients.1", None, (BOB,)),
        ("/recipients/1", None, (BOB,)),
        ("Recipients['1']", None, (BOB,)),
        ("recipients.3", None, ()),
        ("recipients.-1", None, ()),
        ("recipients.1", f"{BOB} is not valid", (BOB,)),
        # Counted from 1.
        ("recipients.1", f"{ADA} is not valid", (ADA,)),
        # Somebody else is only compared with.
        ("recipients.1", f"is the same subscriber as {EVE}", (BOB,)),
        ("recipients.1", f"shares a line with {EVE}", ()),
        ("recipients.1", f"is the same subscriber as {ADA}", (BOB,)),
        ("recipients", f"{BOB} is a duplicate of +{ADA}", (BOB,)),
        ("recipients", f"a duplicate of {ADA}; {EVE} is not valid", (EVE,)),
        ("recipients.0", f"{ADA} is the same subscriber as {EVE}", (ADA,)),
        ("recipients", f"+{BOB} 2 times", (BOB,)),
        ("personalisation.0.to", "is not valid", (EVE,)),
        ("personalisation[1].substitutions.first", "is missing", (ADA,)),
        ("personalization.1", None, (ADA,)),
        ("personalisation.2.to", None, ()),
        ("personalisation", "is wrong", ()),
        ("to", f"{BOB} cannot be reached", (BOB,)),
        (BOB, "cannot be reached", (BOB,)),
        (None, f"{BOB} cannot be reached", (BOB,)),
        ("numbers", f"{BOB} cannot be reached", (BOB,)),
    ],
)
def test_recipients_that_an_item_names(field: str | None, message: str | None, named: tuple[str, ...]) -> None:
    items = (ErrorItem(field, message, "invalid"),)
    assert rejected_recipients(items, SMS) == named
    assert not is_message_error(items, SMS)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("+1 2025550123 is not valid", ("12025550123",)),
        ("2025550123 is not valid", ("2025550123",)),
        ("12025550123 2025550123", ("12025550123", "2025550123")),
    ],
)
def test_number_within_a_longer_one_is_not_named(text: str, named: tuple[str, ...]) -> None:
    fields = {"recipients": "12025550123,2025550123"}
    assert rejected_recipients((ErrorItem("recipients", text),), fields) == named
    if text.startswith("+"):
        assert rejected_recipients((ErrorItem("recipients", text),), {"recipients": "2025550123,2348031234567"}) == ()


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("o'brien@example.com bounces", ("o'brien@example.com",)),
        ("O'Brien@example.com bounces.", ("o'brien@example.com",)),
        ("'brien@example.com' bounces", ("brien@example.com",)),
        ("+brien@example.com bounces", ("+brien@example.com",)),
        ("x'brien@example.com bounces", ()),
        ("mcbrien@example.com bounces", ()),
    ],
)
def test_address_within_a_longer_one_is_not_named(text: str, named: tuple[str, ...]) -> None:
    fields = {"recipients": "o'brien@example.com,brien@example.com,+brien@example.com"}
    assert rejected_recipients((ErrorItem("recipients", text),), fields) == named


@pytest.mark.parametrize("message", ["<ADA@Example.com>: no such mailbox", "cannot reach ada@example.com."])
def test_rejected_addresses_match_in_any_case_and_are_returned_as_sent(message: str) -> None:
    assert rejected_recipients((ErrorItem("recipients", message),), EMAIL) == ("Ada@example.com",)


@pytest.mark.parametrize(
    "field",
    [
        "sender_id",
        "content",
        "template_id",
        "callback",
        "body.content",
        "subject",
        "reply_to",
        "message_text",
        "Sender_ID",
    ],
)
def test_items_about_the_message(field: str) -> None:
    assert is_message_error((ErrorItem(field, "is wrong"),), SMS)
    assert rejected_recipients((ErrorItem(field, "is wrong"),), SMS) == ()


@pytest.mark.parametrize("field", ["content", "sender_id"])
def test_number_in_an_error_of_the_text_names_no_recipient(field: str) -> None:
    items = (ErrorItem(field, f"must not hold {BOB}"),)
    assert rejected_recipients(items, SMS) == ()
    assert is_message_error(items, SMS)


@pytest.mark.parametrize("field", [None, "", "body", "request", "non_field_errors"])
def test_items_that_name_no_field_leave_the_others_to_decide(field: str | None) -> None:
    assert not is_message_error((ErrorItem(field, "is wrong"),), SMS)
    assert is_message_error((ErrorItem("content", "is wrong"), ErrorItem(field, "is wrong")), SMS)


@pytest.mark.parametrize("field", ["recipients", "to"])
def test_items_about_recipients_do_not_blame_the_message(field: str) -> None:
    assert not is_message_error((ErrorItem(field, "is wrong"),), SMS)
    assert not is_message_error((ErrorItem("content", "is wrong"), ErrorItem(field, "is wrong")), SMS)


def test_no_error_items_name_neither_message_nor_recipients() -> None:
    assert not is_message_error((), SMS)
    assert rejected_recipients((), SMS) == ()


def test_request_without_recipients_has_no_rejected_recipients() -> None:
    assert rejected_recipients((ErrorItem("recipients.0", ADA),), {"recipient": ADA}) == ()


@given(
    st.lists(st.builds(ErrorItem, *[st.none() | st.text() | st.sampled_from(["recipients.1", f"a {BOB}"])] * 3)),
    st.sampled_from([SMS, EMAIL, {}]),
)
def test_only_recipients_of_the_request_are_named(items: list[ErrorItem], fields: dict[str, Any]) -> None:
    assert set(rejected_recipients(items, fields)) <= set(fields.get("recipients", "").split(","))
    assert not (is_message_error(items, fields) and rejected_recipients(items, fields))


@pytest.mark.parametrize("text", ["a" * 300_000, "same " * 60_000 + f"{BOB} " * 500, f"duplicate {ADA}, " * 15_000])
def test_long_message_takes_no_more_than_its_length(text: str) -> None:
    # In quadratic time each of them would take minutes.
    assert set(rejected_recipients((ErrorItem("recipients", text),), SMS)) <= {BOB}
