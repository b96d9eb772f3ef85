"""Phone numbers as the service wants them: international digits without a plus (contract.md 4.1).

A number is taken only if it can be read in one way, and that number is in the numbering plan of its country.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

import phonenumbers
from phonenumbers import CountryCodeSource, NumberParseException, PhoneMetadata, PhoneNumber, ValidationResult

from cpaas_provider.api.bounds import missing_value_reason
from cpaas_provider.api.recipients._msisdn_fast_path import PLAIN, parse_plain
from cpaas_provider.api.recipients.invalid import InvalidRecipientError
from cpaas_provider.api.recipients.notation import SIGNS, with_decimal_digits
from cpaas_provider.api.text import strip_invisible
from cpaas_provider.api.values import is_blank, plain

NumberCheck = Literal["valid", "possible"]

_LONGEST_TEXT = 100
_SCHEME = re.compile(r"(?:tel|whatsapp|sms|p):(?://)?\s*", re.IGNORECASE)
_SCIENTIFIC = re.compile(r"[+-]?\d+(?:[.,]\d+)?[eE][+-]?\d+")
_WHOLE_FLOAT = re.compile(r"(\d+)\.00?")
_WRITTEN = re.compile(rf"\(?\s?(?P<plus>\+?)(?P<number>[(\s]*[0-9][0-9\s{re.escape(SIGNS)}]*)")
_GROUP = re.compile(r"[0-9]+")
_OPTIONAL_ZERO = re.compile(r"[(\s]*[0-9]+[^0-9(]*\(\s*0\s*\)")
_ABOVE_PLAIN = 10**17
_VISIBLE_HEAD, _VISIBLE_TAIL, _HIDDEN = 5, 3, 4
_LONGEST_COUNTRY_CODE = 3
# Fewer digits are no whole number.
_SHORTEST = 6
_SEVERAL = "is followed by a second number or an extension"


class InvalidMsisdnError(InvalidRecipientError):
    """The value cannot be read as one phone number. The message gives the reason, never the value."""


class Msisdn(str):
    """The international digits of a phone number that was read. They are never read again."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class NumberReader:
    """Reads phone numbers as the settings of a connection have it.

    :param default_region: two-letter ISO 3166 region of national numbers, such as NG; without it only international
        numbers are accepted
    :param number_check: ``valid`` accepts a number that its country's numbering plan has. ``possible`` also accepts one
        of the right length, for plans that are newer than the phonenumbers library
    """

    default_region: str | None = None
    number_check: NumberCheck = "valid"

    def read(self, value: object) -> Msisdn:
        """Return a phone number as international digits, see ``normalise_msisdn``."""
        if type(value) is str:
            text = value.strip()
        elif type(value) is Msisdn:
            return value
        else:
            text = str(value) if type(value) is int and 0 < value < _ABOVE_PLAIN else ""
        region = _known_region(self.default_region) if self.default_region else None
        if PLAIN.fullmatch(text) and (digits := parse_plain(text, region)) is not None:
            return Msisdn(digits)
        written = _Written.of(value)
        plain = f"{'+' if written.has_plus else ''}{written.digits}"
        if (
            written.is_one_number(region)
            and PLAIN.fullmatch(plain)
            and (digits := parse_plain(plain, region)) is not None
        ):
            return Msisdn(digits)
        return self._read_by_library(written, region)

    def read_slowly(self, value: object) -> Msisdn:
        """Return the same, by the phonenumbers library for every number."""
        region = _known_region(self.default_region)
        return self._read_by_library(_Written.of(value), region)

    def _read_by_library(self, written: _Written, region: str | None) -> Msisdn:
        forms = [written] if written.optional_zero is None else [written, written.without_zero()]
        readings = [number for form in forms for number in _readings(form, region)]
        numbers = {_digits_of(number): number for number in readings if phonenumbers.is_valid_number(number)}
        if not numbers and self.number_check == "possible" and not any(any(_ends_at(form, region)) for form in forms):
            numbers = {_digits_of(number): number for number in readings if _is_possible(number, written)}
        if len(numbers) > 1 and written.optional_zero is not None:
            raise InvalidMsisdnError("can be read as two phone numbers, with and without its zero in parentheses")
        if len(numbers) > 1:
            raise InvalidMsisdnError(
                "can be read as two phone numbers, a national and an international one; put a plus before a country "
                "code"
            )
        for digits, number in numbers.items():
            if digits is None:
                continue
            if any(_is_cut(form, region, number.country_code or 0) for form in forms):
                raise InvalidMsisdnError(_SEVERAL)
            return Msisdn(digits)
        raise InvalidMsisdnError(_refusal(forms[-1], region))


INTERNATIONAL = NumberReader()
"""Reads international numbers only."""


def normalise_msisdn(value: object, default_region: str | None = None, number_check: NumberCheck = "valid") -> Msisdn:
    """Return a phone number as international digits without a plus.

    Accepts the usual written forms: ``+234 803 123 4567``, ``00234...`` and ``2348031234567``, also after ``tel:``,
    ``sms:``, ``whatsapp:`` or ``p:``. Accepts national numbers such as ``0803 123 4567`` if ``default_region`` names
    the country. Then digits without a plus are a number of that country, with or without its country code; a number of
    another country needs a plus or an exit code. Accepts what spreadsheets make of numbers (an integer,
    ``2348031234567.0``, a leading apostrophe). Invisible marks, which come along when a number is copied, are removed.

    :param value: the number, as text or as a number
    :param default_region: two-letter ISO 3166 region of national numbers, e.g. ``"NG"``; without it only
        international numbers are accepted
    :param number_check: ``valid`` or ``possible``, see ``NumberReader``
    :return: the digits; to read them again, put a plus before them, because the digits alone can be a national number
        of another country
    :raises InvalidMsisdnError: when the value is empty, lost digits in a spreadsheet (``2.348E+12``), can be read in
        two ways, holds more than one number, or is a number that its country does not have
    """
    return NumberReader(default_region, number_check).read(value)


def mask_msisdn(number: str) -> str:
    """Return a number masked for logs, such as ``23480****789``."""
    head = min(_VISIBLE_HEAD, len(number) - _VISIBLE_TAIL - _HIDDEN)
    return f"{number[:head]}****{number[-_VISIBLE_TAIL:]}" if head > 0 else "****"


@dataclass(frozen=True, slots=True)
class _Written:
    """A written number: its digits, whether a plus is before them, and how many digits each separator follows.

    :param slashes: the same for those separators that have a slash, which can also separate two numbers
    :param optional_zero: the digits before a zero in parentheses that follows the first of them, as in ``+44 (0)20``
    """

    digits: str
    has_plus: bool
    separators: tuple[int, ...] = ()
    slashes: tuple[int, ...] = ()
    optional_zero: int | None = None

    @classmethod
    def of(cls, value: object) -> _Written:
        """Take the number from a value.

        :raises InvalidMsisdnError: when it does not have the form of one
        """
        text = _text_of(value)
        match = _WRITTEN.fullmatch(text)
        if match is None:
            raise InvalidMsisdnError(_misshapen(text))
        groups = list(_GROUP.finditer(match["number"]))
        read, separators, slashes = 0, [], []
        for group, following in zip(groups, [*groups[1:], None], strict=True):
            read += len(group[0])
            if following is not None:
                separators.append(read)
                if "/" in match["number"][group.end() : following.start()]:
                    slashes.append(read)
        zero = _OPTIONAL_ZERO.match(match["number"])
        return cls(
            digits="".join(group[0] for group in groups),
            has_plus=bool(match["plus"]),
            separators=tuple(separators),
            slashes=tuple(slashes),
            optional_zero=separators[0] if zero is not None else None,
        )

    def has_separator_within(self, start: int, end: int) -> bool:
        """Return whether a separator stands between two of these digits."""
        return any(start < position < end for position in self.separators)

    def is_one_number(self, region: str | None) -> bool:
        """Return whether the separators can only group the digits of one number."""
        if self.optional_zero is not None:
            return False
        # Without a plus, the first group can be an area code.
        if not self.has_plus and self.has_separator_within(0, _LONGEST_COUNTRY_CODE if region else len(self.digits)):
            return False
        # A second number would begin with 0, or with the country code of the first.
        beginnings = f"0{self.digits[0]}" if self.has_plus else "0123456789"
        return not any(
            position >= _SHORTEST
            and (
                position in self.slashes
                or (len(self.digits) - position >= _SHORTEST and self.digits[position] in beginnings)
            )
            for position in self.separators
        )

    def without_zero(self) -> _Written:
        """Return the number without its zero in parentheses, which is dialled only within a country."""
        zero = self.optional_zero or 0
        return _Written(
            self.digits[:zero] + self.digits[zero + 1 :],
            self.has_plus,
            tuple(dict.fromkeys(position - (position > zero) for position in self.separators)),
            tuple(position - (position > zero) for position in self.slashes),
        )

    def before(self, position: int) -> _Written:
        """Return the number that ends with the separator after ``position`` digits."""
        return _Written(
            self.digits[:position], self.has_plus, tuple(earlier for earlier in self.separators if earlier < position)
        )


def _text_of(value: object) -> str:
    """Return a value as text without what spreadsheets, links and copying add.

    :raises InvalidMsisdnError: when there is no text, or it lost digits
    """
    value = plain(value)
    if is_blank(value):
        raise InvalidMsisdnError("is empty")
    if isinstance(value, Decimal) and value.is_finite() and value == value.to_integral_value():
        # As databases return a NUMERIC column. A longer number would be written out, however long that is.
        value = int(value) if value.adjusted() < _LONGEST_TEXT else value
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise InvalidMsisdnError("must be text or a whole number")
    if isinstance(value, int) and not 0 <= value < 10**_LONGEST_TEXT:
        raise InvalidMsisdnError("is not a phone number")
    if isinstance(value, str) and len(value) > _LONGEST_TEXT:
        raise InvalidMsisdnError("is too long for a phone number")
    text = with_decimal_digits(strip_invisible(str(value))).strip().lstrip("'").strip()
    if not text:
        raise InvalidMsisdnError("is empty")
    if isinstance(value, str) and (reason := missing_value_reason(text)):
        raise InvalidMsisdnError(reason)
    if _SCIENTIFIC.fullmatch(text):
        raise InvalidMsisdnError("lost its last digits in a spreadsheet (scientific notation)")
    if whole := _WHOLE_FLOAT.fullmatch(text):
        return whole[1]
    if isinstance(value, float):
        raise InvalidMsisdnError("must be text or a whole number")
    return _SCHEME.sub("", text, count=1) if _SCHEME.match(text) else text


def _misshapen(text: str) -> str:
    """Return why a text does not have the form of a number."""
    number = _WRITTEN.match(text)
    is_whole = number is not None and sum(map(str.isdigit, number[0])) >= _SHORTEST
    if number is not None and is_whole and any(map(str.isdigit, text[number.end() :])):
        return _SEVERAL
    if any(map(str.isalpha, text)):
        return "contains letters"
    return f"is not a phone number{': it contains a character that no phone number has' if number else ''}"


def _known_region(default_region: str | None) -> str | None:
    if not default_region:
        return None
    region = default_region.upper()
    if region not in phonenumbers.SUPPORTED_REGIONS:
        raise InvalidMsisdnError("cannot be read: default_region is no ISO 3166 region such as NG")
    return region


def _readings(written: _Written, region: str | None) -> Iterator[PhoneNumber]:
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


def _international(written: _Written, start: int, region: str | None) -> Iterator[PhoneNumber]:
    plan = _plan_of(region) if region else None
    for number in _parsed(f"+{written.digits[start:]}", None):
        code = str(number.country_code)
        # At home, a zero at the end of the code is often written as the national prefix: 38 067 in Ukraine.
        joins_zero = plan is not None and code == f"{plan.country_code}" and code[-1] == plan.national_prefix == "0"
        if not written.has_separator_within(start, start + len(code) - joins_zero):
            yield number


def _begins_with_code(written: _Written, number: PhoneNumber) -> bool:
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


def _is_possible(number: PhoneNumber, written: _Written) -> bool:
    """Return whether a number has a length of its plan, and is written so that it is meant as a number of it."""
    if phonenumbers.is_possible_number_with_reason(number) != ValidationResult.IS_POSSIBLE:
        return False
    if number.country_code_source != CountryCodeSource.FROM_DEFAULT_COUNTRY:
        return True
    plan = _plan_of(phonenumbers.region_code_for_country_code(number.country_code or 0))
    lengths = plan.general_desc.possible_length if plan.general_desc is not None else ()
    # Where numbers have several lengths, digits without the prefix may be any number with a typing error.
    return written.digits.startswith(plan.national_prefix or "") or len(lengths) == 1


def _is_complete(written: _Written, region: str | None) -> bool:
    return any(map(phonenumbers.is_valid_number, _readings(written, region)))


def _ends_at(written: _Written, region: str | None) -> Iterator[int]:
    """Yield the separators at which a valid number ends."""
    for position in written.separators:
        if position >= _SHORTEST and _is_complete(written.before(position), region):
            yield position


def _is_cut(written: _Written, region: str | None, code: int) -> bool:
    """Return whether a number that is valid as a whole is more likely two, or one with an extension.

    :param code: its country code
    """
    for position in written.separators:
        if position < _SHORTEST or not (position in written.slashes or _begins_number(written.digits[position:], code)):
            continue
        if _is_complete(written.before(position), region):
            return True
    return False


def _begins_number(digits: str, code: int) -> bool:
    """Return whether digits are a number of a country as it is dialled there, or in international form."""
    if len(digits) < _SHORTEST or not digits.startswith(("0", str(code))):
        return False
    return _is_complete(_Written(digits, has_plus=False), phonenumbers.region_code_for_country_code(code))


def _refusal(written: _Written, region: str | None) -> str:
    if any(_ends_at(written, region)):
        return _SEVERAL
    if written.has_plus or (region and any(_exit_codes(written.digits, region))):
        return "is not a phone number in international form"
    if region:
        return f"is not a phone number of {region}. A number of another country needs a plus before its country code"
    return "is not a phone number in international form; a national number needs default_region"
