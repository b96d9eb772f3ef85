"""Amounts of money: summed in decimals, and shown exactly. No binary float takes part in a sum.

The service writes amounts as JSON numbers, and so do results: ``str`` of a float is the number as it was written.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import ROUND_DOWN, Decimal, localcontext

Amount = Decimal | float
"""An amount as somebody gives it; an ``int`` is one, too."""


def exact(amount: Amount) -> Decimal:
    """Return an amount as it was written."""
    return amount if isinstance(amount, Decimal) else Decimal(str(amount))


def exact_or_none(amount: Amount | None) -> Decimal | None:
    """Return an amount as it was written, or ``None`` where there is none."""
    return None if amount is None else exact(amount)


def total(amounts: Iterable[Amount | None]) -> float | None:
    """Return the sum of the amounts that are known, as a plain number; ``None`` where none is."""
    known = [exact(amount) for amount in amounts if amount is not None]
    return float(sum(known, Decimal())) if known else None


def part(amount: Amount, of: int) -> Decimal:
    """Return one of several equal parts, which together are never more than the whole."""
    with localcontext() as context:
        context.rounding = ROUND_DOWN
        return exact(amount) / of


def shown(amount: Amount | None) -> str:
    """Return an amount for people: every digit that is not a closing nought, with thousands separators."""
    if amount is None:
        return "not known"
    text = f"{exact(amount):,f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
