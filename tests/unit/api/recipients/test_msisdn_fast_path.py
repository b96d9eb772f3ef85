"""The short way for plain numbers against the long one, which every number could take."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Iterator

import phonenumbers
import pytest
from hypothesis import given
from hypothesis import strategies as st
from phonenumbers import COUNTRY_CODE_TO_REGION_CODE, PhoneMetadata, PhoneNumberType

from cpaas_provider.api.recipients import _numbering_plans
from cpaas_provider.api.recipients.invalid import InvalidMsisdnError
from cpaas_provider.api.recipients.msisdn import PLAIN, NumberCheck, NumberReader, normalise_msisdn, parse_plain

REGIONS = sorted(phonenumbers.SUPPORTED_REGIONS)
CODES = sorted(COUNTRY_CODE_TO_REGION_CODE)
KINDS = sorted(PhoneNumberType.values())


def by_the_library(value: object, region: str | None) -> str:
    try:
        return NumberReader(region).read_slowly(value)
    except InvalidMsisdnError as error:
        return str(error)


def outcome(value: object, region: str | None) -> str:
    try:
        return normalise_msisdn(value, region)
    except InvalidMsisdnError as error:
        return str(error)


def differences(samples: Iterator[tuple[object, str | None]]) -> list[tuple[object, str | None]]:
    return [sample for sample in samples if outcome(*sample) != by_the_library(*sample)]


def examples() -> Iterator[tuple[str, str, str]]:
    """Region, country code and national number of every kind of number the library gives an example of."""
    for region in REGIONS:
        for kind in KINDS:
            if example := phonenumbers.example_number_for_type(region, kind):
                yield region, str(example.country_code), phonenumbers.national_significant_number(example)


EXAMPLES = sorted(set(examples()))
ABROAD = [
    (str(code), phonenumbers.national_significant_number(phonenumbers.example_number_for_non_geo_entity(code)))
    for code in CODES
    if COUNTRY_CODE_TO_REGION_CODE[code] == (phonenumbers.REGION_CODE_FOR_NON_GEO_ENTITY,)
]


def of_every_length() -> Iterator[tuple[object, str | None]]:
    chance = random.Random(1)
    for code in CODES:
        home = COUNTRY_CODE_TO_REGION_CODE[code][0]
        region = home if home in phonenumbers.SUPPORTED_REGIONS else None
        for length in range(5, 18):
            for front in ("", "0", "1", "00", "8"):
                body = front + "".join(chance.choices("0123456789", k=length))
                digits = (str(code) + body)[:length]
                yield "+" + digits, None
                yield digits, chance.choice([None, region, "NG"])


def test_every_country_code_and_length() -> None:
    assert differences(of_every_length()) == []


def in_every_writing() -> Iterator[tuple[object, str | None]]:
    chance = random.Random(2)
    for region, code, national in EXAMPLES:
        prefix = PhoneMetadata.metadata_for_region(region).national_prefix or "0"
        for written in (national, prefix + national, "0" + national, code + national, code + prefix + national):
            yield written, region
            yield written, None
            yield written, chance.choice(REGIONS)
        yield f"+{code}{national}", region
        yield f"+{code}{prefix}{national}", region
        yield f"00{code}{national}", region
        if national[0] != "0":
            yield int(code + national), region
            yield int(national), region


def test_every_region_and_kind_of_number_in_every_plain_writing() -> None:
    assert differences(in_every_writing()) == []


@pytest.mark.parametrize(("code", "national"), ABROAD)
def test_numbers_of_no_country(code: str, national: str) -> None:
    assert outcome(f"+{code}{national}", None) == by_the_library(f"+{code}{national}", None) == code + national


@given(
    st.from_regex(r"\+?[0-9]{5,17}", fullmatch=True) | st.integers(0, 10**17) | st.booleans(),
    st.sampled_from([None, *REGIONS, "ng", "Nigeria", ""]),
)
def test_fast_path_equals_the_library_for_any_digits(value: object, region: str | None) -> None:
    assert outcome(value, region) == by_the_library(value, region)


@pytest.mark.parametrize("value", ["990697472", "00497555646", "0803 123 4567", 35629478, True, "000+2416055"])
@pytest.mark.parametrize("region", ["", "Nigeria"])
def test_fast_path_equals_the_library_for_a_region_that_is_empty_or_unknown(value: object, region: str) -> None:
    assert outcome(value, region) == by_the_library(value, region)


def test_empty_region_is_no_region() -> None:
    for value in ("990697472", "00497555646", "0803 123 4567", "2348031234567", 35629478):
        assert outcome(value, "") == outcome(value, None)


ADA = "2348031234567"
ARABIC_INDIC = str.maketrans({str(digit): chr(0x660 + digit) for digit in range(10)})
FULL_WIDTH = str.maketrans({str(digit): chr(0xFF10 + digit) for digit in range(10)})


@pytest.mark.parametrize(
    "written",
    [
        *(ADA.translate(ARABIC_INDIC), "+" + ADA.translate(FULL_WIDTH), ADA + "\n", f" +{ADA} ", ADA + "\x00"),
        *("\xb9" + ADA, "+" + ADA[:-1] + "\xb2", "0" + ADA.translate(ARABIC_INDIC)),
    ],
)
def test_fast_path_equals_the_library_for_other_scripts_and_blanks(written: str) -> None:
    for region in (None, "NG"):
        assert outcome(written, region) == by_the_library(written, region)


@pytest.mark.parametrize(
    ("written", "region"),
    [
        ("+2348031234567", None),
        ("2348031234567", None),
        ("2348031234567", "NG"),
        ("08031234567", "NG"),
        ("8031234567", "NG"),
        ("+390612345678", "IT"),
        ("+12025550123", "US"),
        ("2025550123", "US"),
        ("07400123456", "GB"),
        ("+5491123456789", "AR"),
    ],
)
def test_ordinary_numbers_take_the_short_way(written: str, region: str | None) -> None:
    assert PLAIN.fullmatch(written)
    assert parse_plain(written, region) == by_the_library(written, region)


def generated(count: int) -> Iterator[tuple[object, str | None]]:
    """Texts near real numbers: of every region, with digits changed, lost, added or in front."""
    chance = random.Random(4)
    for _ in range(count):
        region, code, national = chance.choice(EXAMPLES)
        digits = list(chance.choice(["", "0", "00", code, code + code, "+" + code, "+"]) + national)
        for _ in range(chance.choice([0, 1, 1, 2, 4])):
            place = chance.randrange(len(digits))
            match chance.randrange(3):
                case 0:
                    digits[place] = chance.choice("0123456789")
                case 1:
                    digits.insert(place, chance.choice("0123456789"))
                case _ if len(digits) > 1:
                    del digits[place]
        for _ in range(chance.choice([0, 0, 1, 2, 3])):
            digits.insert(chance.randrange(1, len(digits) + 1), chance.choice([" ", " ", "-", ".", "/", " (", ") "]))
        yield "".join(digits), chance.choice([region, region, None, chance.choice(REGIONS)])


@pytest.mark.parametrize("number_check", ["valid", "possible"])
def test_generated_texts_read_the_same_either_way(number_check: NumberCheck) -> None:
    count = 500_000 if os.environ.get("TORTURE") else 5_000
    different = []
    for text, region in generated(count):
        reader = NumberReader(region, number_check)
        results = []
        for read in (reader.read, reader.read_slowly):
            try:
                results.append(str(read(text)))
            except InvalidMsisdnError as error:
                results.append(str(error))
        if results[0] != results[1]:
            different.append((text, region, *results))
    assert different == []


def test_plain_number_is_read_without_loading_the_library() -> None:
    program = (
        "import sys\n"
        "from cpaas_provider.api.recipients.msisdn import normalise_msisdn as read\n"
        "from cpaas_provider.api.settings import ClientSettings\n"
        "ClientSettings('http://127.0.0.1:1', 'key', default_region='NG')\n"
        "print(read('0803 123 4567', 'NG'), read('+2348031234567', 'NG'), 'phonenumbers' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["2348031234567", "2348031234567", "False"]


def test_plans_are_those_of_the_library_where_its_modules_cannot_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_numbering_plans, "__path__", [])
    monkeypatch.delitem(sys.modules, f"{_numbering_plans.__name__}.data")
    assert _numbering_plans._load() == (PhoneMetadata, COUNTRY_CODE_TO_REGION_CODE)
