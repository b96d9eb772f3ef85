"""Every example number of the phonenumbers library, in the ways in which people and programs write numbers."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from typing import NamedTuple

import phonenumbers
import pytest
from phonenumbers import PhoneMetadata, PhoneNumber, PhoneNumberFormat, PhoneNumberType

from cpaas_provider.api.recipients.invalid import InvalidMsisdnError
from cpaas_provider.api.recipients.msisdn import NumberReader
from tests.tiers import few

REGIONS = few(sorted(phonenumbers.SUPPORTED_REGIONS), 8)
KINDS = sorted(PhoneNumberType.values())


class Written(NamedTuple):
    """A number in one notation, with the regions in which it reads as the same number."""

    notation: str
    text: str
    regions: tuple[str | None, ...]


def examples(region: str) -> Iterator[PhoneNumber]:
    """The library's valid examples of a region, of all kinds."""
    for kind in KINDS:
        example = phonenumbers.example_number_for_type(region, kind)
        if example is not None and phonenumbers.is_valid_number(example):
            yield example


def digits_of(number: PhoneNumber) -> str:
    return phonenumbers.format_number(number, PhoneNumberFormat.E164).removeprefix("+")


def exit_code_of(region: str) -> str:
    plan = PhoneMetadata.metadata_for_region(region)
    if plan.preferred_international_prefix:
        return re.sub(r"\D", "", plan.preferred_international_prefix)
    return plan.international_prefix if plan.international_prefix.isdigit() else "00"


def notations(number: PhoneNumber, region: str) -> Iterator[Written]:
    digits, code = digits_of(number), str(number.country_code)
    spaced = phonenumbers.format_number(number, PhoneNumberFormat.INTERNATIONAL)
    national = phonenumbers.format_number(number, PhoneNumberFormat.NATIONAL)
    anywhere, at_home, without_region = (None, region, "NG", "US"), (region,), (None, region)
    yield Written("E.164", f"+{digits}", anywhere)
    yield Written("international", spaced, anywhere)
    yield Written("RFC 3966", phonenumbers.format_number(number, PhoneNumberFormat.RFC3966), anywhere)
    yield Written("WhatsApp", f"whatsapp:+{digits}", anywhere)
    yield Written("apostrophe", f"'+{digits}", anywhere)
    yield Written("dots", re.sub(r"[\s-]", ".", spaced), anywhere)
    yield Written("no-break blanks", spaced.replace(" ", "\u00a0"), anywhere)
    yield Written("directional marks", f"\u202a{spaced}\u202c", anywhere)
    yield Written("bracketed code", f"(+{code}) {spaced[len(code) + 2 :]}", anywhere)
    yield Written("00", f"00{digits}", without_region)
    yield Written("no plus", digits, without_region)
    yield Written("no plus, spaced", spaced.removeprefix("+"), without_region)
    yield Written("spreadsheet", f"{digits}.0", without_region)
    yield Written("exit code", f"{exit_code_of(region)} {spaced.removeprefix('+')}", at_home)
    yield Written("national", national, at_home)
    yield Written("national, digits", re.sub(r"\D", "", national), at_home)
    yield Written("no national prefix", phonenumbers.national_significant_number(number), at_home)


@pytest.mark.parametrize("region", REGIONS)
def test_every_notation_reads_as_the_same_number(region: str) -> None:
    wrong = []
    for number in examples(region):
        for written in notations(number, region):
            for reading_region in written.regions:
                try:
                    read = str(NumberReader(reading_region).read(written.text))
                except InvalidMsisdnError as error:
                    read = str(error)
                if read != digits_of(number):
                    wrong.append((written, reading_region, read))
    assert wrong == []


def mistyped(chance: random.Random, digits: str) -> Iterator[str]:
    """A digit lost, a digit too many, two neighbours exchanged."""
    place = chance.randrange(1, len(digits))
    yield digits[:place] + digits[place + 1 :]
    yield digits[:place] + chance.choice("0123456789") + digits[place:]
    yield digits[: place - 1] + digits[place] + digits[place - 1] + digits[place + 1 :]


@pytest.mark.parametrize("region", REGIONS)
def test_mistyped_number_is_refused_or_of_its_own_country(region: str) -> None:
    chance, reader, abroad = random.Random(region), NumberReader(region), []
    for number in examples(region):
        code, national = str(number.country_code), phonenumbers.national_significant_number(number)
        dialled = re.sub(r"\D", "", phonenumbers.format_number(number, PhoneNumberFormat.NATIONAL))
        for digits in (national, dialled, code + national):
            for text in (text for _ in range(4) for text in mistyped(chance, digits)):
                try:
                    read = reader.read(text)
                except InvalidMsisdnError:
                    continue
                # Digits after an exit code are meant as a number abroad.
                if not read.startswith(code) and not text.startswith(("00", exit_code_of(region))):
                    abroad.append((text, read))
    assert abroad == []


@pytest.mark.parametrize("separator", [" ", "/", ", ", ";", "-", " / ", " or ", " x", " ext. ", "#", ".", "\n"])
@pytest.mark.parametrize("second", ["7", "000", "123", "0803 123 4568", "+2348031234568"])
@pytest.mark.parametrize("first", ["+234 803 123 4567", "0803 123 4567", "2348031234567"])
def test_second_number_or_extension_after_a_number_is_refused(first: str, second: str, separator: str) -> None:
    with pytest.raises(InvalidMsisdnError, match=r"is followed by a second number or an extension|contains letters"):
        NumberReader("NG").read(first + separator + second)
