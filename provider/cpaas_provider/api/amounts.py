"""Amounts of money and counts. Money is summed in decimals, and shown exactly. No binary float takes part in a sum.

The service writes amounts as JSON numbers, and so do results: ``str`` of a float is the number as it was written.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import ROUND_DOWN, Decimal, localcontext

Amount = Decimal | float
"""An amount as authors give it; an ``int`` is one, too."""


def to_decimal(amount: Amount) -> Decimal:
    """Return an amount as it was written."""
    return amount if isinstance(amount, Decimal) else Decimal(str(amount))


def to_decimal_or_none(amount: Amount | None) -> Decimal | None:
    """Return an amount as it was written, or ``None`` where there is none."""
    return None if amount is None else to_decimal(amount)


def total(amounts: Iterable[Amount | None]) -> float | None:
    """Return the sum of the amounts that are known, as a plain number; ``None`` where none is."""
    known = [to_decimal(amount) for amount in amounts if amount is not None]
    return float(sum(known, Decimal())) if known else None


def divide(amount: Amount, of: int) -> Decimal:
    """Return one of several equal parts, which together are never more than the whole."""
    with localcontext() as context:
        context.rounding = ROUND_DOWN
        return to_decimal(amount) / of


def format_amount(amount: Amount | None) -> str:
    """Return an amount for people: every digit that is not a closing nought, with thousands separators."""
    if amount is None:
        return "not known"
    text = f"{to_decimal(amount):,f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """``1 duplicate``, ``2,000 duplicates``."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"
