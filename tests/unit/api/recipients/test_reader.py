from __future__ import annotations

from typing import Any

import pytest

from cpaas_provider.api.recipients.email_address import EmailAddress
from cpaas_provider.api.recipients.invalid import InvalidRecipientError
from cpaas_provider.api.recipients.msisdn import Msisdn, NumberReader
from cpaas_provider.api.recipients.reader import (
    AllowedRecipients,
    RecipientKind,
    RecipientReader,
    recipient_key,
    split_list,
)

NIGERIAN = NumberReader("NG")


def reader(kind: RecipientKind = "any", allowed: str | None = None) -> RecipientReader:
    listed = None if allowed is None else AllowedRecipients(allowed, RecipientReader("any", NIGERIAN).read)
    return RecipientReader(kind, NIGERIAN, listed)


def test_list_is_divided_into_allowed_not_allowed_duplicate_and_invalid_recipients() -> None:
    found = reader("phone", "08031200000").read_list(
        ["0803 120 0000", "+2348031200000", "08031200001", "12", None, "+234 803 120 0001"]
    )
    assert found.allowed == ["2348031200000"]
    assert found.not_allowed == ["2348031200001"]
    assert found.duplicates == 2
    assert [place for place, _ in found.invalid] == [4, 5]
    assert found.describe_invalid().endswith("; recipient 5 is empty")


def test_address_in_two_spellings_is_read_as_the_first() -> None:
    found = reader("email").read_list("Ada@Example.org, ada@example.ORG")
    assert (found.allowed, found.duplicates) == (["Ada@example.org"], 1)


def test_only_the_first_invalid_entries_are_described() -> None:
    described = reader("phone").read_list(["1"] * 13).describe_invalid()
    assert described.startswith("recipient 1 is not a phone number of NG")
    assert described.endswith("; and 3 more")


@pytest.mark.parametrize("value", [Msisdn("6592345678"), EmailAddress("ada@example.org")])
def test_recipient_that_was_read_is_returned_unchanged(value: Any) -> None:
    assert reader().read(value) is value


def test_reader_of_any_kind_reads_a_value_with_an_at_sign_as_an_address() -> None:
    assert type(reader().read("0803 120 0000")) is Msisdn
    assert type(reader().read(" ada@example.org")) is EmailAddress
    with pytest.raises(InvalidRecipientError, match="is not an email address"):
        reader().read("ada@")


@pytest.mark.parametrize(
    ("values", "parts"),
    [
        ("a, b,,c ", ["a", "b", "c"]),
        ("", []),
        (None, []),
        (2348031200000, [2348031200000]),
        (("a", "b"), ["a", "b"]),
        ({"a": 1}, [{"a": 1}]),
        (b"ab", [b"ab"]),
    ],
)
def test_recipients_are_split_at_commas_or_returned_unchanged(values: Any, parts: list[Any]) -> None:
    assert split_list(values) == parts


@pytest.mark.parametrize(
    ("recipient", "key"),
    [("2348031200000", "2348031200000"), ("+2348031200000", "2348031200000"), ("+Ada@Example.org", "+ada@example.org")],
)
def test_recipients_are_compared_without_plus_and_case(recipient: str, key: str) -> None:
    assert recipient_key(recipient) == key


def test_allowed_address_in_other_case_is_the_same_recipient() -> None:
    found = reader("email", "Ada@example.org").read_list("ada@Example.org, ADA.B@example.org")
    assert (found.allowed, found.not_allowed) == (["ada@example.org"], ["ADA.B@example.org"])
