from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cpaas_provider.api.recipients import email_address
from cpaas_provider.api.recipients.email_address import InvalidEmailAddressError, mask_email, normalise_email


@pytest.mark.parametrize(
    ("written", "normal"),
    [
        ("ada@example.com", "ada@example.com"),
        (" Ada.L@EXAMPLE.com\n", "Ada.L@example.com"),
        ("ada+tag@mail.example.co.uk", "ada+tag@mail.example.co.uk"),
        ("ada@service.test", "ada@service.test"),
        ("\u202aada@example.com\u202c", "ada@example.com"),
        ("\ufeff ada\u200b@example.com\u200e", "ada@example.com"),
    ],
)
def test_addresses_are_trimmed_and_their_domain_is_lower_case(written: str, normal: str) -> None:
    assert normalise_email(written) == normal


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("", "is empty"),
        ("  ", "is empty"),
        ("\u200e", "is empty"),
        (None, "is empty"),
        (5, "must be text"),
        ("ada", "is not an email address"),
        ("ada@", "is not an email address"),
        ("@example.com", "is not an email address"),
        ("Ada <ada@example.com>", "is not an email address"),
        ("ada@example.com,bob@example.com", "is not an email address"),
        ("ada@example.com\r\nBcc: bob@example.com", "is not an email address"),
    ],
)
def test_invalid_address_is_refused_with_a_reason_and_without_the_value(value: object, reason: str) -> None:
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
def test_mask_never_shows_the_whole_address(address: str, shown: str) -> None:
    assert mask_email(address) == shown


def by_the_library(written: str) -> str:
    try:
        return email_address._validated(written.strip())
    except InvalidEmailAddressError as error:
        return str(error)


def outcome(written: str) -> str:
    try:
        return normalise_email(written)
    except InvalidEmailAddressError as error:
        return str(error)


WORDS = ["ada", "Ada", "ada.l", "Ada.L", "a+b", "o'neil", "postmaster", "Postmaster", "INFO", "a..b", ".a"]
words = st.sampled_from([*WORDS, "x" * 64, "x" * 65])
LABELS = ["example", "EXAMPLE", "mail1", "1", "a--b", "xn--a", "ab--c", "-a", "a-", "a_b", "é", "\uff45", ""]
labels = st.sampled_from([*LABELS, "x" * 63, "x" * 64])
tops = st.sampled_from(["com", "COM", "c", "c1", "test", "local", "Invalid", "onion", "arpa", "localhost", "xn--p1ai"])
plain_addresses = st.builds(
    lambda word, domain, top: f"{word}@{'.'.join([*domain, top])}",
    words | st.from_regex(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,12}", fullmatch=True),
    st.lists(labels | st.from_regex(r"[A-Za-z0-9-]{1,12}", fullmatch=True), max_size=5),
    tops,
)


@given(plain_addresses | st.emails())
@settings(max_examples=2000 if settings().max_examples >= 50 else 200)
def test_fast_path_for_plain_addresses_equals_the_library(written: str) -> None:
    assert outcome(written) == by_the_library(written)


@pytest.mark.parametrize("tail", ["\n", "\x00", "\u017f", "\u212a", "@example.com", " x", ".", "-"])
@pytest.mark.parametrize("written", ["ada@example.com", "Ada.L@Mail.Example.com"])
def test_fast_path_equals_the_library_for_addresses_with_odd_characters(written: str, tail: str) -> None:
    for changed in (written + tail, tail + written, written.replace("@", tail + "@"), written.replace("@", "@" + tail)):
        assert outcome(changed) == by_the_library(changed)


@pytest.mark.parametrize("size", [253, 254, 255, 256])
def test_fast_path_equals_the_library_at_the_maximum_length(size: int) -> None:
    domain = ".".join(["a" * 60] * 4)
    for written in (f"{'b' * (size - 5 - len(domain))}@{domain}.com", f"a@{('c.' * 200)[: size - 6]}.com"):
        assert outcome(written) == by_the_library(written)


@pytest.mark.parametrize("written", ["ada@example.com", "ada.l+tag@mail-1.example.co.uk", "Ada.L@Example.COM"])
def test_ordinary_addresses_take_the_short_way(written: str) -> None:
    assert email_address._plain(written) == by_the_library(written)
