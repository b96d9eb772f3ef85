"""NUMBER cells: a JSON number that is exactly the source's number."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from cpaas_provider.contacts.mapping.parsing.values import LARGEST_EXACT_INTEGER, ascii_digits

MAX_CHARACTERS = 100
"""How long a number may be as text; one that is sent exactly has no more than 17 digits that count."""
SPACES = " \u00a0\u2009\u202f"
_APOSTROPHES = "'\u2019"
_SHORT = 15

Number = int | float


def number_parser(decimal: str, thousands: str | None) -> Callable[[Any], Number]:
    """Return a reader of numbers.

    Text is a sign, digits in groups of three (or as in India of two before the last three) or in none, and a decimal
    part. Digits of any script count, and U+2212 is a minus. Refused are all other forms, among them ``1e5``, ``1_000``,
    ``0x10``, ``5%``, ``nan`` and ``inf``, and separators that the rule does not name. Booleans are no numbers.

    A number that a JSON number does not keep exactly is refused: an integer beyond 2**53 - 1, or more digits than a
    double holds.

    :param decimal: what stands before the decimal part in text
    :param thousands: what stands between groups of digits in text; a blank is any of the usual narrow ones too
    """
    match = _pattern(decimal, thousands).fullmatch
    example = f"1234{decimal}5" if thousands is None else f"1{thousands}234{decimal}5"
    wrong = f"must be a number such as {example}"

    def read(value: Any) -> Number:
        if type(value) is str:
            if len(value) <= _SHORT and value.isascii() and value.isdigit():
                return int(value)
            found = match(ascii_digits(value)) if len(value) <= MAX_CHARACTERS else None
            if found is None:
                raise ValueError(wrong)
            sign, whole, part, only_part = found.groups()
            digits = re.sub("[^0-9]", "", whole or "") or "0"
            negative = "-" if sign in ("-", "\u2212") else ""
            return _exact(Decimal(f"{negative}{digits}.{part or only_part or '0'}"))
        if isinstance(value, bool):
            raise ValueError(wrong)
        if isinstance(value, int):
            return _exact_integer(int(value))
        if isinstance(value, float):
            return _of_float(float(value))
        if isinstance(value, Decimal):
            return _exact(value)
        raise ValueError(wrong)

    return read


def _exact_integer(value: int) -> int:
    if abs(value) > LARGEST_EXACT_INTEGER:
        raise ValueError("is beyond 2**53 - 1, where a JSON number loses digits; use a TEXT column")
    return value


def _of_float(value: float) -> Number:
    if not math.isfinite(value):
        raise ValueError("must be a finite number")
    return _exact_integer(int(value)) if value.is_integer() else value


def _exact(value: Decimal) -> Number:
    if not value.is_finite():
        raise ValueError("must be a finite number")
    # Before anything is computed: the exponent alone may stand for a gigabyte of digits.
    if value and value.adjusted() > _SHORT:
        return _exact_integer(LARGEST_EXACT_INTEGER + 1)
    number = float(value)
    if Decimal(repr(number)) != value:
        raise ValueError("has more digits than a JSON number holds; round it in the source or use a TEXT column")
    return _of_float(number)


def _pattern(decimal: str, thousands: str | None) -> re.Pattern[str]:
    whole = "[0-9]+"
    if thousands is not None:
        alike = next((group for group in (SPACES, _APOSTROPHES) if thousands in group), thousands)
        between = f"[{re.escape(alike)}]"
        western = f"[0-9]{{1,3}}(?:{between}[0-9]{{3}})+"
        indian = f"[0-9]{{1,2}}(?:{between}[0-9]{{2}})+{between}[0-9]{{3}}"
        whole = f"{whole}|{western}|{indian}"
    point = re.escape(decimal)
    return re.compile(f"([+\u2212-])?(?:({whole})(?:{point}([0-9]+))?|{point}([0-9]+))")
