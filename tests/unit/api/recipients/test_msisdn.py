from __future__ import annotations

from decimal import Decimal

import phonenumbers
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpaas_provider.api.recipients.invalid import InvalidMsisdnError
from cpaas_provider.api.recipients.msisdn import mask_msisdn, normalise_msisdn

REGIONS = sorted(phonenumbers.SUPPORTED_REGIONS)


def example_numbers() -> list[str]:
    """A number of every region, fixed and mobile, with a plus."""
    kinds = (phonenumbers.PhoneNumberType.FIXED_LINE, phonenumbers.PhoneNumberType.MOBILE)
    found = (phonenumbers.example_number_for_type(region, kind) for region in REGIONS for kind in kinds)
    return [phonenumbers.format_number(one, phonenumbers.PhoneNumberFormat.E164) for one in found if one]


@pytest.mark.parametrize(
    "written",
    [
        "+2348031234567",
        "+234 803 123 4567",
        "+234 (0) 803-123-4567",
        "2348031234567",
        "234 803 123 4567",
        "234-803-123-4567",
        "002348031234567",
        " 2348031234567\n",
        "'2348031234567",
        "2348031234567.0",
        "2348031234567.00",
        2348031234567,
        2348031234567.0,
        Decimal(2348031234567),
        Decimal("2348031234567.00"),
        Decimal("234803123456700E-2"),
        "\u202a+234 803 123 4567\u202c",
        "\u200e+2348031234567",
        "\ufeff2348031234567",
        "234\u200b803\u2060123\u200d4567",
        "\u2066+234 803 123 4567\u2069",
    ],
)
def test_international_numbers_in_any_writing(written: object) -> None:
    assert normalise_msisdn(written) == "2348031234567"
    assert normalise_msisdn(written, "NG") == "2348031234567"


@pytest.mark.parametrize(
    "written",
    ["08031234567", "0803 123 4567", "0803.123.4567", "8031234567", 8031234567, "0803/1234567", Decimal(8031234567)],
)
def test_national_numbers_where_the_region_is_known(written: object) -> None:
    assert normalise_msisdn(written, "NG") == "2348031234567"
    assert normalise_msisdn(written, "ng") == "2348031234567"


def test_international_number_of_another_region_is_read() -> None:
    assert normalise_msisdn("+447911123456", "NG") == "447911123456"
    assert normalise_msisdn("0044 7911 123456", "NG") == "447911123456"
    with pytest.raises(
        InvalidMsisdnError, match=r"not a phone number of NG\. A number of another country needs a plus"
    ):
        normalise_msisdn("447911123456", "NG")


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("", "is empty"),
        ("  ", "is empty"),
        ("'", "is empty"),
        (Decimal("2348031234567.5"), "must be text or a whole number"),
        (Decimal("NaN"), "is empty"),
        (Decimal("Infinity"), "must be text or a whole number"),
        ("\u202a\u200e", "is empty"),
        (None, "is empty"),
        ("None", "is the word 'None': the template or task it came from had no value"),
        (" nan ", "is the word 'nan': the template or task it came from had no value"),
        ("null", "is the word 'null': the template or task it came from had no value"),
        (True, "must be text or a whole number"),
        (b"2348031234567", "must be text or a whole number"),
        (2348031234567.5, "must be text or a whole number"),
        (float("nan"), "is empty"),
        (float("inf"), "must be text or a whole number"),
        ("2.34803E+12", "spreadsheet"),
        ("2,34803E+12", "spreadsheet"),
        (2.34803e22, "spreadsheet"),
        ("0803-CALL-ME", "contains letters"),
        ("0803 abc 4567", "contains letters"),
        ("0803*1234567", "it contains a character that no phone number has"),
        ("+2348031234567 ext 5", "is followed by a second number or an extension"),
        ("+2348031234567 #5", "is followed by a second number or an extension"),
        ("+2348031234567,,5", "is followed by a second number or an extension"),
        ("+4479111234561234567", "is not a phone number"),
        ("2348031234567 2348031234568", "is followed by a second number or an extension"),
        ("+999123456789", "is not a phone number"),
        ("12", "is not a phone number"),
        ("200000000000", "is not a phone number"),
        ("+", "is not a phone number"),
        ("803123.0000", "is not a phone number"),
    ],
)
def test_invalid_number_is_refused_with_a_reason(value: object, reason: str) -> None:
    with pytest.raises(InvalidMsisdnError, match=reason):
        normalise_msisdn(value)


def test_national_number_without_a_region_is_refused() -> None:
    with pytest.raises(InvalidMsisdnError, match="needs default_region"):
        normalise_msisdn("08031234567")
    with pytest.raises(InvalidMsisdnError) as caught:
        normalise_msisdn("080312345", "NG")
    assert "needs default_region" not in str(caught.value)


def test_number_that_is_valid_as_a_national_and_as_an_international_one_is_refused() -> None:
    # In Italy, a mobile number and, after its country code, a landline of Rome.
    with pytest.raises(InvalidMsisdnError, match="a national and an international one"):
        normalise_msisdn("3906123456", "IT")
    assert normalise_msisdn("+3906123456", "IT") == "3906123456"
    # In Nigeria, a national number would begin with the zero that is dialled before it.
    assert normalise_msisdn("2348031234567", "NG") == "2348031234567"


def test_unknown_region_is_refused() -> None:
    with pytest.raises(InvalidMsisdnError, match="ISO 3166"):
        normalise_msisdn("08031234567", "Nigeria")


@given(
    st.text() | st.integers() | st.floats() | st.from_regex(r"\+?[0-9 ().-]{6,18}", fullmatch=True),
    st.sampled_from([None, "NG", "US", "GB", "IT", "BR"]),
)
def test_any_value_gives_digits_or_a_reason_without_the_value(value: object, region: str | None) -> None:
    try:
        outcome = normalise_msisdn(value, region)
    except InvalidMsisdnError as error:
        outcome = str(error)
        written = str(value).strip()
        hidden = len(written) < 5 or written not in outcome
    else:
        hidden = outcome.isascii() and outcome.isdigit() and len(outcome) <= 17
    assert hidden


@given(st.from_regex(r"\+?[1-9][0-9 ().-]{6,18}", fullmatch=True) | st.sampled_from(example_numbers()))
def test_normalising_twice_is_normalising_once(written: str) -> None:
    try:
        once = normalise_msisdn(written)
    except InvalidMsisdnError:
        return
    assert normalise_msisdn(once) == once


@given(st.sampled_from(example_numbers()), st.sampled_from(REGIONS))
def test_number_with_a_plus_is_read_the_same_in_any_region(number: str, region: str) -> None:
    # Without the plus, 6592345678 is a phone in Singapore, and to an American one in Alabama.
    once = normalise_msisdn(number, region)
    assert normalise_msisdn("+" + once, region) == once


@given(st.from_regex(r"\+?0{0,2}[1-9][0-9]{5,14}", fullmatch=True), st.sampled_from(REGIONS), st.sampled_from(REGIONS))
def test_normalised_number_with_a_plus_is_stable_in_any_region(number: str, region: str, another: str) -> None:
    try:
        once = normalise_msisdn(number, region)
    except InvalidMsisdnError:
        return
    assert normalise_msisdn("+" + once, another) == normalise_msisdn("+" + once) == once


@pytest.mark.parametrize(
    ("number", "shown"),
    [
        ("2348031234567", "23480****567"),
        ("447911123456", "44791****456"),
        ("12025550123", "1202****123"),
        ("4512345678", "451****678"),
        ("29012345", "2****345"),
        ("2901234", "****"),
        ("", "****"),
    ],
)
def test_mask_shows_enough_to_recognise_and_hides_four_digits_or_more(number: str, shown: str) -> None:
    assert mask_msisdn(number) == shown


@pytest.mark.parametrize("typed", ["0803 12", "0803 123 456", "0803 123 45678"])
def test_mistyped_national_number_is_refused(typed: str) -> None:
    with pytest.raises(InvalidMsisdnError, match=r"is not a phone number of NG|is followed by a second number"):
        normalise_msisdn(typed, "NG")


@pytest.mark.parametrize(
    "written",
    ["(495) 123-45-67", "(201) 555-0123", "201-555-0123", "131 2345 6789", "321 1234567", "(917) 555-0100 22"],
)
def test_area_code_is_not_read_as_a_country_code(written: str) -> None:
    with pytest.raises(InvalidMsisdnError, match="a national number needs default_region"):
        normalise_msisdn(written)


def test_zero_in_parentheses_is_dropped_if_the_number_has_none() -> None:
    assert normalise_msisdn("+34 (0)612 345 678") == "34612345678"
    assert normalise_msisdn("0045 (0) 34 41 23 45", "NG") == "4534412345"
    assert normalise_msisdn("+44 (0)20 7946 0018") == "442079460018"
    assert normalise_msisdn("+39 (0)6 69812345") == "390669812345"
    assert normalise_msisdn("+39 (0)347 123 4567") == "393471234567"
    assert normalise_msisdn("(0)803 123 4567", "NG") == "2348031234567"


def test_zero_in_parentheses_that_decides_between_two_phones_is_refused() -> None:
    with pytest.raises(InvalidMsisdnError, match="with and without its zero"):
        normalise_msisdn("+39 (0)331 123456")
    with pytest.raises(InvalidMsisdnError, match="a second number or an extension"):
        normalise_msisdn("+34 (0)612 345 678 / 612 345 679")


@pytest.mark.parametrize(
    ("written", "region", "digits"),
    [
        ("38 (067) 123-45-67", "UA", "380671234567"),
        ("88 01712-345678", "BD", "8801712345678"),
        ("002 010 1234 5678", "EG", "201012345678"),
        ("6 012-345 6789", "MY", "60123456789"),
        ("9 0532 123 45 67", "TR", "905321234567"),
    ],
)
def test_country_code_that_shares_its_zero_with_the_national_prefix(written: str, region: str, digits: str) -> None:
    assert normalise_msisdn(written, region) == digits
    if not written.startswith("00"):
        with pytest.raises(InvalidMsisdnError):
            normalise_msisdn(written, "NG")


@pytest.mark.parametrize("sign", ["\u30fc", "\uff70", "\uff0d", "\u2212"])
def test_signs_that_japanese_keyboards_type_as_a_hyphen(sign: str) -> None:
    assert normalise_msisdn(f"090{sign}1234{sign}5678", "JP") == "819012345678"
