"""A fast path for phone numbers of digits only, by the numbering plans of the phonenumbers library.

The library takes tens of microseconds to parse a number, and a list of a million numbers is parsed twice. This module
accepts a number only if the library would certainly read it the same way. All other numbers go to the library.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass

from phonenumbers import COUNTRY_CODE_TO_REGION_CODE, PhoneMetadata
from phonenumbers.phonemetadata import PhoneNumberDesc

PLAIN = re.compile(r"\+[1-9][0-9]{6,16}|(?!00)[0-9]{7,17}")
"""The forms that are read here: only digits, with or without a plus before them."""
_LONGEST_COUNTRY_CODE = 3
_NEVER = "(?!)"

Matcher = Callable[[str], re.Match[str] | None]


@dataclass(frozen=True, slots=True)
class _Plan:
    """The numbering plan of a country code: possible lengths of national numbers, and the prefix that is removed."""

    code: str
    lengths: frozenset[int]
    national_prefix: Matcher

    def keeps(self, national: str) -> bool:
        """Tell whether a national number has a possible length, and the library would remove no prefix from it."""
        if len(national) not in self.lengths:
            return False
        prefix = self.national_prefix(national)
        return prefix is None or (prefix.end() == 0 and prefix.lastindex is None)


@dataclass(frozen=True, slots=True)
class _RegionPlan:
    """A region with the numbering plan of its country code, to read numbers as they are dialled there."""

    plan: _Plan
    too_long: int
    international_prefix: Matcher
    shape: Matcher
    kinds: tuple[tuple[frozenset[int], Matcher], ...]

    def valid(self, national: str) -> bool:
        """Tell whether a national number fits a mobile or fixed-line pattern of the plan."""
        if self.shape(national) is None:
            return False
        size = len(national)
        return any(size in lengths and pattern(national) is not None for lengths, pattern in self.kinds)


def parse_plain(text: str, region: str | None) -> str | None:
    """Return the international digits of a number, or ``None`` if the library must decide.

    :param text: a number of the form ``PLAIN``
    :param region: a region that the library knows; its national numbers are read, too
    """
    if text[0] == "+":
        return _parse_international(text[1:])
    if region is None:
        return _parse_international(text) if text[0] != "0" else None
    region_plan = _region_plan(region)
    return None if region_plan is None else _parse_national(text, region_plan)


def _parse_international(digits: str) -> str | None:
    plan = _plan(digits[:_LONGEST_COUNTRY_CODE])
    return digits if plan is not None and plan.keeps(digits[len(plan.code) :]) else None


def _parse_national(digits: str, region_plan: _RegionPlan) -> str | None:
    """Read digits without a plus, as a national or an international number of the region's country."""
    if region_plan.international_prefix(digits) is not None:
        return None
    plan = region_plan.plan
    if digits.startswith(plan.code):
        # Accepted only if the digits cannot also be a national number that begins with the country code.
        rest = digits[len(plan.code) :]
        unambiguous = len(digits) > region_plan.too_long or (
            region_plan.shape(digits) is None and region_plan.shape(rest) is not None
        )
        return digits if unambiguous and plan.keeps(rest) else None
    prefix = plan.national_prefix(digits)
    if prefix is not None and prefix.lastindex is not None:
        return None
    national = digits[prefix.end() :] if prefix is not None else digits
    return plan.code + national if plan.keeps(national) and region_plan.valid(national) else None


@functools.cache  # at most one entry for each combination of three digits
def _plan(start: str) -> _Plan | None:
    for size in range(1, _LONGEST_COUNTRY_CODE + 1):
        regions = COUNTRY_CODE_TO_REGION_CODE.get(int(start[:size]))
        if regions is not None:
            return _plan_of(start[:size], regions[0])
    return None


def _plan_of(code: str, region: str) -> _Plan | None:
    metadata = PhoneMetadata.metadata_for_region_or_calling_code(int(code), region)
    general = metadata.general_desc if metadata is not None else None
    if metadata is None or general is None:
        return None
    lengths = frozenset((*general.possible_length, *general.possible_length_local_only))
    return _Plan(code, lengths, re.compile(metadata.national_prefix_for_parsing or _NEVER).match)


@functools.cache  # at most one entry for each region
def _region_plan(region: str) -> _RegionPlan | None:
    metadata = PhoneMetadata.metadata_for_region(region)
    # If regions share a country code, the library uses the plan of the first of them. Other regions are left to it.
    if metadata is None or metadata.leading_digits is not None or _leader(metadata.country_code) != region:
        return None
    general, plan = metadata.general_desc, _plan_of(str(metadata.country_code), region)
    if general is None or plan is None:
        return None
    possible = frozenset(general.possible_length)
    kinds = [None if metadata.same_mobile_and_fixed_line_pattern else metadata.mobile, metadata.fixed_line]
    return _RegionPlan(
        plan,
        too_long=max(plan.lengths),
        international_prefix=re.compile(metadata.international_prefix or _NEVER).match,
        shape=_shape(general),
        kinds=tuple(
            (possible.intersection(kind.possible_length or possible), _shape(kind))
            for kind in kinds
            if kind is not None
        ),
    )


def _leader(country_code: int | None) -> str | None:
    return COUNTRY_CODE_TO_REGION_CODE[country_code][0] if country_code is not None else None


def _shape(kind: PhoneNumberDesc) -> Matcher:
    return re.compile(kind.national_number_pattern or _NEVER).fullmatch
