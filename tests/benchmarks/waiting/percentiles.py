"""Percentiles, and how they are shown."""

from __future__ import annotations

import statistics
from collections.abc import Sequence


def percentile(values: Sequence[float], percent: int) -> float:
    """Return the value that so many of a hundred do not exceed; 0 of none."""
    if len(values) < 2:
        return next(iter(values), 0.0)
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]


def three(seconds: Sequence[float], percent: int) -> str:
    """Return the median, that of so many of a hundred, and the most, in milliseconds."""
    if not seconds:
        return "-"
    figures = (percentile(seconds, 50), percentile(seconds, percent), max(seconds))
    return " / ".join(f"{figure * 1000:,.0f}" for figure in figures)
