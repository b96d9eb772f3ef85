"""Reads phone numbers by the phonenumbers library: every number that the fast path does not take."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import phonenumbers
from phonenumbers import CountryCodeSource, NumberParseException, PhoneMetadata, PhoneNumber, ValidationResult

from cpaas_provider.api.recipients._written_number import SEVERAL, SHORTEST, WrittenNumber
from cpaas_provider.api.recipients.invalid import InvalidMsisdnError


def read_by_library(written: WrittenNumber, region: str | None, *, only_possible: bool) -> str:
    """Return the international digits of a written number.

    :param region: a region that the library knows; its national numbers are read, too
    :param only_possible: whether a number counts that has a length of its country's numbering plan
    :raises InvalidMsisdnError: when it is no number, or can be read in two ways
    """
    forms = [written] if written.optional_zero is None else [written, written.without_zero()]
    readings = [number for form in forms for number in _readings(form, region)]
    numbers = {_digits_of(number): number for number in readings if phonenumbers.is_valid_number(number)}
    if not numbers and only_possible and not any(any(_ends_at(form, region)) for form in forms):
        numbers = {_digits_of(number): number for number in readings if _is_possible(number, written)}
    if len(numbers) > 1 and written.optional_zero is not None:
        raise InvalidMsisdnError("can be read as two phone numbers, with and without its zero in parentheses")
    if len(numbers) > 1:
        raise InvalidMsisdnError(
            "can be read as two phone numbers, a national and an international one; put a plus before a country code"
        )
    for digits, number in numbers.items():
        if digits is None:
            continue
        if any(_is_cut(form, region, number.country_code or 0) for form in forms):
            raise InvalidMsisdnError(SEVERAL)
        return digits
    raise InvalidMsisdnError(_refusal(forms[-1], region))


def _readings(written: WrittenNumber, region: str | None) -> Iterator[PhoneNumber]:
    """Yield the numbers that a text can mean, valid or not.

    Without a plus, a separator within the country code means that the digits before it are something else.
    """
    if written.has_plus:
        yield from _parsed(f"+{written.digits}", None)
        return
    for exit_code in _exit_codes(written.digits, region):
        yield from _international(written, len(exit_code), region)
    if region is None:
        if not written.digits.startswith("0"):
            yield from (number for number in _international(written, 0, None) if _begins_with_code(written, number))
        return
    plan = _plan_of(region)
    own = [number for number in _international(written, 0, region) if number.country_code == plan.country_code]
    national = [
        number
        for number in _parsed(written.digits, region)
        if number.country_code_source == CountryCodeSource.FROM_DEFAULT_COUNTRY
    ]
    yield from own
    # Digits that begin with the country's own code and are valid so are international: as a national number they
    # would lack the prefix that is dialled before it. Without such a prefix, both can be meant.
    if plan.national_prefix is None or not any(map(phonenumbers.is_valid_number, own)):
        yield from national


def _plan_of(region: str) -> PhoneMetadata:
    """Return the numbering plan of a region that the library knows."""
    plan: PhoneMetadata | None = PhoneMetadata.metadata_for_region(region)
    if plan is None:
        raise InvalidMsisdnError("cannot be read: the phonenumbers library has no numbering plan of its region")
    return plan


def _exit_codes(digits: str, region: str | None) -> Iterable[str]:
    """Return what may be dialled before a country code at the start of the digits: 00, and the region's own code."""
    codes = {"00"} if digits.startswith("00") else set()
    prefix = region and _plan_of(region).international_prefix
    if prefix and (match := re.match(prefix, digits)):
        codes.add(match[0])
    return codes


def _international(written: WrittenNumber, start: int, region: str | None) -> Iterator[PhoneNumber]:
    plan = _plan_of(region) if region else None
    for number in _parsed(f"+{written.digits[start:]}", None):
        code = str(number.country_code)
        # At home, a zero at the end of the code is often written as the national prefix: 38 067 in Ukraine.
        joins_zero = plan is not None and code == f"{plan.country_code}" and code[-1] == plan.national_prefix == "0"
        if not written.has_separator_within(start, start + len(code) - joins_zero):
            yield number


def _begins_with_code(written: WrittenNumber, number: PhoneNumber) -> bool:
    """Return whether the first group is no more than the country code. Otherwise it can be an area code."""
    return not written.separators or written.separators[0] == len(str(number.country_code))


def _parsed(text: str, region: str | None) -> Iterator[PhoneNumber]:
    try:
        yield phonenumbers.parse(text, region, keep_raw_input=True)
    except NumberParseException:
        return


def _digits_of(number: PhoneNumber) -> str | None:
    """Return the international digits; ``None`` if they are not read as the same number again.

    The library removes one extra zero with each parse, so one phone could get several numbers.
    """
    written = phonenumbers.format_number(number, phonenumbers.PhoneNumberFormat.E164)
    again = [
        phonenumbers.format_number(number, phonenumbers.PhoneNumberFormat.E164) for number in _parsed(written, None)
    ]
    return written.removeprefix("+") if again == [written] else None


def _is_possible(number: PhoneNumber, written: WrittenNumber) -> bool:
    """Return whether a number has a length of its plan, and is written so that it is meant as a number of it."""
    if phonenumbers.is_possible_number_with_reason(number) != ValidationResult.IS_POSSIBLE:
        return False
    if number.country_code_source != CountryCodeSource.FROM_DEFAULT_COUNTRY:
        return True
    plan = _plan_of(phonenumbers.region_code_for_country_code(number.country_code or 0))
    lengths = plan.general_desc.possible_length if plan.general_desc is not None else ()
    # Where numbers have several lengths, digits without the prefix may be any number with a typing error.
    return written.digits.startswith(plan.national_prefix or "") or len(lengths) == 1


def _is_complete(written: WrittenNumber, region: str | None) -> bool:
    return any(map(phonenumbers.is_valid_number, _readings(written, region)))


def _ends_at(written: WrittenNumber, region: str | None) -> Iterator[int]:
    """Yield the separators at which a valid number ends."""
    for position in written.separators:
        if position >= SHORTEST and _is_complete(written.before(position), region):
            yield position


def _is_cut(written: WrittenNumber, region: str | None, code: int) -> bool:
    """Return whether a number that is valid as a whole is more likely two, or one with an extension.

    :param code: its country code
    """
    for position in written.separators:
        if position < SHORTEST or not (position in written.slashes or _begins_number(written.digits[position:], code)):
            continue
        if _is_complete(written.before(position), region):
            return True
    return False


def _begins_number(digits: str, code: int) -> bool:
    """Return whether digits are a number of a country as it is dialled there, or in international form."""
    if len(digits) < SHORTEST or not digits.startswith(("0", str(code))):
        return False
    return _is_complete(WrittenNumber(digits, has_plus=False), phonenumbers.region_code_for_country_code(code))


def _refusal(written: WrittenNumber, region: str | None) -> str:
    if any(_ends_at(written, region)):
        return SEVERAL
    if written.has_plus or (region and any(_exit_codes(written.digits, region))):
        return "is not a phone number in international form"
    if region:
        return f"is not a phone number of {region}. A number of another country needs a plus before its country code"
    return "is not a phone number in international form; a national number needs default_region"
