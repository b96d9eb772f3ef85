"""Phone numbers as the service wants them: international digits without a plus (contract.md 4.1).

A number is taken only if it can be read in one way, and that number is in the numbering plan of its country.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cpaas_provider.api.recipients._msisdn_fast_path import PLAIN, parse_plain
from cpaas_provider.api.recipients._numbering_plans import SUPPORTED_REGIONS as SUPPORTED_REGIONS
from cpaas_provider.api.recipients.invalid import InvalidMsisdnError

NumberCheck = Literal["valid", "possible"]

_ABOVE_PLAIN = 10**17
_VISIBLE_HEAD, _VISIBLE_TAIL, _HIDDEN = 5, 3, 4


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
