"""Amounts of money, counts and spans of time: sums and texts. Sums use decimals, because binary floats would round.

The service writes amounts as JSON numbers, and so do results. ``str`` of such a float gives the digits as written.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import ROUND_DOWN, Decimal, localcontext
from typing import Any

Amount = Decimal | float
"""An amount as authors give it; an ``int`` is one, too."""

_LARGEST = 10**15
"""A larger figure cannot be a price, a balance or a count."""


def known_figure(value: Any) -> Any:
    """Return a number that can be summed and stored; ``None`` for any other value, such as NaN, text or a boolean."""
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
        return None
    if isinstance(value, Decimal) and not value.is_finite():
        return None
    # No comparison with NaN is true.
    return value if -_LARGEST <= value <= _LARGEST else None


def known_cost(value: Any) -> Any:
    """Return what the service says a request cost; ``None`` if that is no evidence: no figure, or one below zero."""
    figure = known_figure(value)
    return figure if figure is not None and figure >= 0 else None


def to_decimal(amount: Amount) -> Decimal:
    """Return an amount as it was written."""
    return amount if isinstance(amount, Decimal) else Decimal(str(amount))


def to_decimal_or_none(amount: Amount | None) -> Decimal | None:
    """Return an amount as it was written, or ``None`` where there is none."""
    return None if amount is None else to_decimal(amount)


def total(amounts: Iterable[Amount | None]) -> float | None:
    """Return the sum of the known amounts as a float, ``None`` if no amount is known."""
    known = [to_decimal(amount) for amount in amounts if amount is not None]
    return float(sum(known, Decimal())) if known else None


def divide(amount: Amount, of: int) -> Decimal:
    """Return one of ``of`` equal parts, rounded down, so that the parts together never exceed the amount."""
    with localcontext() as context:
        context.rounding = ROUND_DOWN
        return to_decimal(amount) / of


def format_amount(amount: Amount | None) -> str:
    """Return an amount as text, with thousands separators and without trailing zeros; ``not known`` for ``None``."""
    if amount is None:
        return "not known"
    text = f"{to_decimal(amount):,f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def share_of(share: float, number: int) -> int:
    """Return how many whole ones of a number a share allows."""
    # As floats, 0.29 * 100 is 28.999999999999996.
    return int(share * number + 1e-9)


def counted(number: float, noun: str, plural: str | None = None) -> str:
    """Return a number with its noun: ``1 duplicate``, ``2,000 duplicates``, ``2.5 requests``."""
    figure = f"{number:,}" if isinstance(number, int) else f"{number:g}"
    return f"{figure} {noun if number == 1 else plural or f'{noun}s'}"


def span(seconds: float) -> str:
    """Return a span of time as text, such as ``59 s`` or ``1 h 30 min``."""
    seconds = round(seconds)
    if seconds < 60:
        return f"{seconds} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
