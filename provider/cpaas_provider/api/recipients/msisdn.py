"""Phone numbers as the service wants them: international digits without a plus (INTERFACE.md 4.1, contract.md)."""

from __future__ import annotations

import re
from decimal import Decimal

import phonenumbers
from phonenumbers import NumberParseException, PhoneNumber

from cpaas_provider.api.bounds import missing_value_reason
from cpaas_provider.api.recipients._msisdn_fast_path import PLAIN, parse_plain
from cpaas_provider.api.text import strip_invisible

_SCIENTIFIC = re.compile(r"^[+-]?\d+(?:[.,]\d+)?[eE][+-]?\d+$")
_WHOLE_FLOAT = re.compile(r"^(\d+)\.00?$")
_PLAIN_DIGITS = re.compile(r"^\d+$")
_PLAIN_TYPES = (str, int)
_VISIBLE_HEAD, _VISIBLE_TAIL, _HIDDEN = 5, 3, 4


class InvalidMsisdnError(ValueError):
    """The value cannot be read as one phone number. The message gives the reason, never the value."""


def normalise_msisdn(value: object, default_region: str | None = None) -> str:
    """Return a phone number as international digits without a plus.

    Accepts the usual written forms: ``+234 803 123 4567``, ``00234...`` and ``2348031234567``. Accepts national
    numbers such as ``0803 123 4567`` if ``default_region`` names the country. Accepts what spreadsheets make of numbers
    (an integer, ``2348031234567.0``, a leading apostrophe). Invisible marks, which come along when a number is
    copied, are removed.

    :param value: the number, as text or as a number
    :param default_region: two-letter ISO 3166 region of national numbers, e.g. ``"NG"``; without it only
        international numbers are accepted
    :return: the digits; to read them again with a ``default_region``, put a plus before them, because the digits
        alone can be a national number of another country
    :raises InvalidMsisdnError: when the value is empty, lost digits in a spreadsheet (``2.348E+12``), or is not a
        possible phone number
    """
    # The exact types, because bool is a subclass of int.
    text = str(value).strip() if type(value) in _PLAIN_TYPES else ""
    if PLAIN.fullmatch(text) and (plain := parse_plain(text, _known_region(default_region))) is not None:
        return plain
    return _parsed(value, default_region)


def _parsed(value: object, default_region: str | None) -> str:
    text = _written_form(value)
    region = _known_region(default_region)
    if text.startswith("00"):
        text = "+" + text[2:]
    number = _parse(text, None) if text.startswith("+") else _parse_without_plus(text, region)
    if number is not None and phonenumbers.is_possible_number(number):
        written = phonenumbers.format_number(number, phonenumbers.PhoneNumberFormat.E164)
        # The library removes one extra zero with each parse, so one phone could get several numbers.
        if _parse(written, None) == number:
            return written.removeprefix("+")
    if text.startswith("+"):
        raise InvalidMsisdnError("is not a phone number in international form")
    if region:
        raise InvalidMsisdnError(f"is not a phone number: neither valid in {region} nor in international form")
    raise InvalidMsisdnError("is not a phone number in international form; a national number needs default_region")


def mask_msisdn(number: str) -> str:
    """Return a number masked for logs, such as ``23480****789``."""
    head = min(_VISIBLE_HEAD, len(number) - _VISIBLE_TAIL - _HIDDEN)
    return f"{number[:head]}****{number[-_VISIBLE_TAIL:]}" if head > 0 else "****"


def _written_form(value: object) -> str:
    if value is None:
        raise InvalidMsisdnError("is empty")
    if isinstance(value, Decimal) and value.is_finite() and value == value.to_integral_value():
        # As databases return a NUMERIC column.
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise InvalidMsisdnError("must be text or a whole number")
    text = strip_invisible(str(value)).strip().lstrip("'").strip()
    if not text:
        raise InvalidMsisdnError("is empty")
    if isinstance(value, str) and (reason := missing_value_reason(text)):
        raise InvalidMsisdnError(reason)
    if _SCIENTIFIC.match(text):
        raise InvalidMsisdnError("lost its last digits in a spreadsheet (scientific notation)")
    if whole := _WHOLE_FLOAT.match(text):
        return whole[1]
    if isinstance(value, float):
        raise InvalidMsisdnError("must be text or a whole number")
    if any(character.isalpha() for character in text):
        raise InvalidMsisdnError("contains letters")
    return text


def _known_region(default_region: str | None) -> str | None:
    if not default_region:
        return None
    region = default_region.upper()
    if region not in phonenumbers.SUPPORTED_REGIONS:
        raise InvalidMsisdnError("cannot be read: default_region is no ISO 3166 region such as NG")
    return region


def _parse_without_plus(text: str, region: str | None) -> PhoneNumber | None:
    """Read digits as a national or an international number: the first of the two that is valid.

    If neither is valid, the international reading is returned, because numbering plans grow. An invalid national
    number is more likely a typing error, and the message would reach the wrong phone.
    """
    digits = re.sub(r"[\s().\-/]", "", text)
    national = _parse(text, region) if region else None
    international = _parse("+" + digits, None) if _PLAIN_DIGITS.match(digits) and digits[0] != "0" else None
    for reading in (national, international):
        if reading is not None and phonenumbers.is_valid_number(reading):
            return reading
    return international


def _parse(text: str, region: str | None) -> PhoneNumber | None:
    try:
        number = phonenumbers.parse(text, region)
    except NumberParseException:
        return None
    # format_number would silently drop an extension, or a second number after the first.
    return None if number.extension else number
