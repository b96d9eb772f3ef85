"""A fast path for phone numbers of digits only, by the numbering plans of the phonenumbers library.

The library takes tens of microseconds to parse a number, and a list of a million numbers is parsed twice. This module
accepts a number only if the library would certainly read it the same way, and no other reading of it is valid. All
other numbers go to the library.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from cpaas_provider.api.recipients._numbering_plans import REGIONS, NumberingPlan

if TYPE_CHECKING:
    from phonenumbers.phonemetadata import PhoneNumberDesc

PLAIN = re.compile(r"\+[1-9][0-9]{6,16}|(?!00)[0-9]{7,17}")
"""The forms that are read here: only digits, with or without a plus before them."""
_LONGEST_COUNTRY_CODE = 3
_NEVER = "(?!)"

Matcher = Callable[[str], re.Match[str] | None]


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
