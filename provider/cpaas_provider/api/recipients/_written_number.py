"""A written phone number: its digits, and where its separators stand."""

from __future__ import annotations

import re
from decimal import Decimal

from msgspec import Struct

from cpaas_provider.api.bounds import missing_value_reason
from cpaas_provider.api.recipients.invalid import InvalidMsisdnError
from cpaas_provider.api.recipients.notation import SIGNS, with_decimal_digits
from cpaas_provider.api.text import strip_invisible
from cpaas_provider.api.values import is_blank, plain

_LONGEST_TEXT = 100
_SCHEME = re.compile(r"(?:tel|whatsapp|sms|p):(?://)?\s*", re.IGNORECASE)
_SCIENTIFIC = re.compile(r"[+-]?\d+(?:[.,]\d+)?[eE][+-]?\d+")
_WHOLE_FLOAT = re.compile(r"(\d+)\.00?")
_WRITTEN = re.compile(rf"\(?\s?(?P<plus>\+?)(?P<number>[(\s]*[0-9][0-9\s{re.escape(SIGNS)}]*)")
_GROUP = re.compile(r"[0-9]+")
_OPTIONAL_ZERO = re.compile(r"[(\s]*[0-9]+[^0-9(]*\(\s*0\s*\)")
_LONGEST_COUNTRY_CODE = 3
# Fewer digits are no whole number.
SHORTEST = 6
SEVERAL = "is followed by a second number or an extension"


class WrittenNumber(Struct, frozen=True):
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
    def of(cls, value: object) -> WrittenNumber:
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
            position >= SHORTEST
            and (
                position in self.slashes
                or (len(self.digits) - position >= SHORTEST and self.digits[position] in beginnings)
            )
            for position in self.separators
        )

    def without_zero(self) -> WrittenNumber:
        """Return the number without its zero in parentheses, which is dialled only within a country."""
        zero = self.optional_zero or 0
        return WrittenNumber(
            self.digits[:zero] + self.digits[zero + 1 :],
            self.has_plus,
            tuple(dict.fromkeys(position - (position > zero) for position in self.separators)),
            tuple(position - (position > zero) for position in self.slashes),
        )

    def before(self, position: int) -> WrittenNumber:
        """Return the number that ends with the separator after ``position`` digits."""
        return WrittenNumber(
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
    is_whole = number is not None and sum(map(str.isdigit, number[0])) >= SHORTEST
    if number is not None and is_whole and any(map(str.isdigit, text[number.end() :])):
        return SEVERAL
    if any(map(str.isalpha, text)):
        return "contains letters"
    return f"is not a phone number{': it contains a character that no phone number has' if number else ''}"
