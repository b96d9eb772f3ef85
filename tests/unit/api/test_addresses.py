from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpaas_provider.api.addresses import InvalidEmailAddressError, mask_email, normalise_email


@pytest.mark.parametrize(
    ("written", "normal"),
    [
        ("ada@example.com", "ada@example.com"),
        (" Ada.L@EXAMPLE.com\n", "Ada.L@example.com"),
        ("ada+tag@mail.example.co.uk", "ada+tag@mail.example.co.uk"),
        ("ada@service.test", "ada@service.test"),
    ],
)
def test_addresses_are_trimmed_and_their_domain_is_lower_case(written: str, normal: str) -> None:
    assert normalise_email(written) == normal


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("", "is empty"),
        ("  ", "is empty"),
        (None, "must be text"),
        (5, "must be text"),
        ("ada", "is not an email address"),
        ("ada@", "is not an email address"),
        ("@example.com", "is not an email address"),
        ("Ada <ada@example.com>", "is not an email address"),
        ("ada@example.com,bob@example.com", "is not an email address"),
        ("ada@example.com\r\nBcc: bob@example.com", "is not an email address"),
    ],
)
def test_what_is_no_address_is_refused_with_a_reason_and_without_the_value(value: object, reason: str) -> None:
    with pytest.raises(InvalidEmailAddressError) as caught:
        normalise_email(value)
    assert str(caught.value) == reason


@given(st.emails() | st.text())
def test_normalising_twice_is_normalising_once(written: str) -> None:
    try:
        once = normalise_email(written)
    except InvalidEmailAddressError:
        return
    assert normalise_email(once) == once
    assert "," not in once, "recipients travel separated by commas"


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("ada@example.com", "a****@example.com"),
        ("ad@example.com", "a****@example.com"),
        ("a@example.com", "****@example.com"),
        ("nonsense", "****"),
        ("", "****"),
    ],
)
def test_a_mask_never_shows_all(address: str, shown: str) -> None:
    assert mask_email(address) == shown
