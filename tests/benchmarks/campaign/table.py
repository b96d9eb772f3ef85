"""The figures as Markdown: what everybody did, and the bars a campaign has to clear."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import NamedTuple

from tests.benchmarks.campaign.contenders import CONCURRENT, ONE_BY_ONE, Contender, Point
from tests.benchmarks.campaign.rounds import Measured


class Bar(NamedTuple):
    """One contender is to reach at least this part of another's pace."""

    name: str
    other: str
    point: Point
    least: float


BARS = (
    Bar("client", "aiohttp", Point(1, 8), 0.75),
    Bar("client", "aiohttp", Point(1, 32), 0.5),
    Bar("client", "aiohttp", Point(1, 128), 0.25),
    # What the campaign adds to the same requests.
    Bar("journaled", "personal", Point(1, 8), 0.9),
    Bar("journaled", "personal", Point(1, 32), 0.85),
    Bar("journaled", "personal", Point(1, 128), 0.85),
    *(Bar("journaled", "unjournaled", point, 0.85) for point in CONCURRENT if point.recipients > 1),
)


def rates(measured: Measured, contenders: Sequence[Contender]) -> str:
    """Return requests a second, the median of all rounds; recipients a second where they differ."""
    lines = [f"| recipients a request | in flight | {' | '.join(one.title for one in contenders)} |"]
    lines.append("|--:" * (len(contenders) + 2) + "|")
    for point in sorted({*ONE_BY_ONE, *CONCURRENT}):
        cells = [_rate(measured.rates(one.name, point), point) for one in contenders]
        if any(cells):
            lines.append(f"| {point.recipients} | {point.in_flight} | {' | '.join(cells)} |")
    return "\n".join(lines)


def bars(measured: Measured, contenders: Sequence[Contender]) -> tuple[str, bool]:
    """Return each bar beside what was reached, and whether all were cleared; what was not measured is left out."""
    titles = {one.name: one.title for one in contenders}
    lines = ["| | recipients a request | in flight | at least | reached |", "|---|--:|--:|--:|--:|"]
    cleared = True
    for bar in BARS:
        reached = measured.ratio(bar.name, bar.other, bar.point)
        if reached is not None:
            cleared = cleared and reached >= bar.least
            what = f"{titles[bar.name]} : {titles[bar.other]}"
            lines.append(
                f"| {what} | {bar.point.recipients} | {bar.point.in_flight} | {bar.least:.2f} | {reached:.2f} |"
            )
    return ("\n".join(lines) if len(lines) > 2 else ""), cleared


def spread(measured: Measured, contenders: Sequence[Contender]) -> float:
    """Return how far apart the rounds of one contender at one point are, as a part of their median: the noise.

    Of all contenders and points the one in the middle.
    """
    cells = [measured.rates(one.name, point) for one in contenders for point in one.points]
    return statistics.median((max(cell) - min(cell)) / statistics.median(cell) for cell in cells)


def _rate(rates: Sequence[float], point: Point) -> str:
    if not rates:
        return ""
    middle = statistics.median(rates)
    return f"{middle:,.0f}" if point.recipients == 1 else f"{middle:,.0f} ({middle * point.recipients:,.0f})"
