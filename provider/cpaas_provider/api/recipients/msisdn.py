"""Phone numbers as the service wants them: international digits without a plus (contract.md 4.1).

A number is taken only if it can be read in one way, and that number is in the numbering plan of its country.

The phonenumbers library takes tens of microseconds to parse a number, and a list of a million numbers is parsed twice.
So plain numbers are read here, by the library's numbering plans: only those that it would certainly read the same way,
and of which no other reading is valid. All other numbers go to the library.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, NamedTuple

from msgspec import Struct

from cpaas_provider.api.recipients._numbering_plans import REGIONS, NumberingPlan
from cpaas_provider.api.recipients._numbering_plans import SUPPORTED_REGIONS as SUPPORTED_REGIONS
from cpaas_provider.api.recipients.invalid import InvalidMsisdnError

if TYPE_CHECKING:
    from phonenumbers.phonemetadata import PhoneNumberDesc

NumberCheck = Literal["valid", "possible"]

PLAIN = re.compile(r"\+[1-9][0-9]{6,16}|(?!00)[0-9]{7,17}")
"""The forms that are read here: only digits, with or without a plus before them."""
_LONGEST_COUNTRY_CODE = 3
_NEVER = "(?!)"

Matcher = Callable[[str], re.Match[str] | None]

_ABOVE_PLAIN = 10**17
_VISIBLE_HEAD, _VISIBLE_TAIL, _HIDDEN = 5, 3, 4


class Msisdn(str):
    """The international digits of a phone number that was read. They are never read again."""

    __slots__ = ()


class NumberReader(Struct, frozen=True):
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
        # Most numbers do not come here. The patterns and the library take longer to load than a request takes.
        from cpaas_provider.api.recipients._written_number import WrittenNumber

        written = WrittenNumber.of(value)
        plain = f"{'+' if written.has_plus else ''}{written.digits}"
        if (
            written.is_one_number(region)
            and PLAIN.fullmatch(plain)
            and (digits := parse_plain(plain, region)) is not None
        ):
            return Msisdn(digits)
        from cpaas_provider.api.recipients._msisdn_by_library import read_by_library

        return Msisdn(read_by_library(written, region, only_possible=self.number_check == "possible"))

    def read_slowly(self, value: object) -> Msisdn:
        """Return the same, by the phonenumbers library for every number."""
        from cpaas_provider.api.recipients._msisdn_by_library import read_by_library
        from cpaas_provider.api.recipients._written_number import WrittenNumber

        region = _known_region(self.default_region)
        return Msisdn(read_by_library(WrittenNumber.of(value), region, only_possible=self.number_check == "possible"))


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


def _known_region(default_region: str | None) -> str | None:
    if not default_region:
        return None
    region = default_region.upper()
    if region not in SUPPORTED_REGIONS:
        raise InvalidMsisdnError("cannot be read: default_region is no ISO 3166 region such as NG")
    return region


class _Plan(NamedTuple):
    """The numbering plan of a country code, that of its first region if several share it.

    :param pattern: matches the digits of a number with its country code. Excludes numbers from
        which the library would remove a prefix, unless ``prefix_is_optional``
    :param national_prefix: matches what the library would remove before a national number
    :param prefix_is_optional: whether ``national_prefix`` also matches where there is nothing to remove
    :param has_national_prefix: whether a prefix is dialled before national numbers
    """

    code: str
    pattern: Matcher
    national_prefix: Matcher
    prefix_is_optional: bool
    has_national_prefix: bool

    def is_valid(self, digits: str) -> bool:
        """Return whether this is a number that the library would read as it is."""
        if self.pattern(digits) is None:
            return False
        if not self.prefix_is_optional:
            return True
        prefix = self.national_prefix(digits[len(self.code) :])
        return prefix is None or (prefix.end() == 0 and prefix.lastindex is None)


def parse_plain(text: str, region: str | None) -> str | None:
    """Return the international digits of a valid number, or ``None`` if the library must decide.

    :param text: a number of the form ``PLAIN``
    :param region: a region that the library knows; its national numbers are read, too
    """
    has_plus = text[0] == "+"
    if has_plus or region is None:
        digits = text[1:] if has_plus else text
        plan = _plan(digits[:_LONGEST_COUNTRY_CODE]) if digits[0] != "0" else None
        return digits if plan is not None and plan.is_valid(digits) else None
    national_plan = _plan_of_region(region)
    return None if national_plan is None else _parse_national(text, *national_plan)


def _parse_national(digits: str, plan: _Plan, exit_code: Matcher) -> str | None:
    """Read digits without a plus, as a national or an international number of the region's country."""
    if exit_code(digits) is not None:
        return None
    if digits.startswith(plan.code):
        # Without a national prefix, the digits can also be a national number that begins with the country code.
        return digits if plan.has_national_prefix and plan.is_valid(digits) else None
    prefix = plan.national_prefix(digits)
    if prefix is not None and prefix.lastindex is not None:
        return None
    number = plan.code + (digits[prefix.end() :] if prefix is not None else digits)
    return number if plan.is_valid(number) else None


@functools.cache  # at most one entry for each combination of three digits
def _plan(start: str) -> _Plan | None:
    for size in range(1, _LONGEST_COUNTRY_CODE + 1):
        regions = REGIONS.get(int(start[:size]))
        if regions is not None:
            return _plan_of(start[:size], regions[0])
    return None


def _plan_of(code: str, region: str) -> _Plan | None:
    metadata = NumberingPlan.metadata_for_region_or_calling_code(int(code), region)
    general = metadata.general_desc if metadata is not None else None
    if metadata is None or general is None:
        return None
    prefix = metadata.national_prefix_for_parsing or _NEVER
    # The most frequent kinds first.
    kinds = [
        None if metadata.same_mobile_and_fixed_line_pattern else metadata.mobile,
        *(metadata.fixed_line, metadata.toll_free, metadata.voip, metadata.shared_cost, metadata.premium_rate),
        *(metadata.personal_number, metadata.uan, metadata.pager, metadata.voicemail),
    ]
    patterns = "|".join(_pattern(kind, general) for kind in kinds if kind is not None)
    shape = general.national_number_pattern or _NEVER
    matches_nothing = re.match(prefix, "") is not None
    # One pattern for all, because each further match takes as long as the rest.
    excluded = "" if matches_nothing else f"(?!{prefix})"
    pattern = re.compile(rf"{code}{excluded}(?=(?:{shape})\Z)(?:{patterns})\Z")
    return _Plan(code, pattern.match, re.compile(prefix).match, matches_nothing, metadata.national_prefix is not None)


def _pattern(kind: PhoneNumberDesc, general: PhoneNumberDesc) -> str:
    """Return the pattern of the national numbers of a kind, which have one of its lengths."""
    possible = set(general.possible_length)
    lengths = sorted(possible.intersection(kind.possible_length or possible))
    sizes = "|".join(f"[0-9]{{{length}}}" for length in lengths) or _NEVER
    return rf"(?=(?:{sizes})\Z)(?:{kind.national_number_pattern or _NEVER})\Z"


@functools.cache  # at most one entry for each region
def _plan_of_region(region: str) -> tuple[_Plan, Matcher] | None:
    """Return a region's numbering plan, and what matches its exit code."""
    metadata = NumberingPlan.metadata_for_region(region)
    # If regions share a country code, the library uses the plan of the first of them. Other regions are left to it.
    if metadata is None or metadata.leading_digits is not None or metadata.country_code is None:
        return None
    if REGIONS[metadata.country_code][0] != region:
        return None
    plan = _plan_of(str(metadata.country_code), region)
    return None if plan is None else (plan, re.compile(metadata.international_prefix or _NEVER).match)
