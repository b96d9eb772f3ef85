"""Charts as SVG, drawn on the server: no script, and no style but that of the page.

Positions along the time axis are shares of the width, so that a chart has the width of its page and its texts keep
their size.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

from markupsafe import Markup

_HEIGHT = 220
_LEFT, _BOTTOM, _TOP = 48, 24, 8  # the style sheet repeats the left one
_HIGH = _HEIGHT - _BOTTOM - _TOP
_MOST_BARS, _MOST_TICKS = 60, 4  # a telephone has room for four dates with their time
_DAY = 24 * 60
_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 360, 720, _DAY, 2 * _DAY, 7 * _DAY, 30 * _DAY, 90 * _DAY)  # minutes
_MINUTE = timedelta(minutes=1)

Buckets = Mapping[datetime, Mapping[str, int]]


def bar(parts: Sequence[tuple[str, float]], label: str) -> Markup:
    """Return one horizontal bar of parts.

    :param parts: the kind of each, which names its colour, and its number
    """
    total = sum(count for _, count in parts)
    x, drawn = 0.0, []
    for kind, count in parts:
        width = 100 * count / total
        drawn.append(
            Markup('<rect class="k-{}" x="{:.2f}" y="0" width="{:.2f}" height="8"/>').format(
                kind.replace(" ", "-"), x, width
            )
        )
        x += width
    return Markup(
        '<svg class="bar" viewBox="0 0 100 8" preserveAspectRatio="none" role="img" aria-label="{}">'
        '<rect class="k-none" x="0" y="0" width="100" height="8"/>{}</svg>'
    ).format(label, Markup("").join(drawn))


def over_time(
    buckets: Buckets,
    kinds: Sequence[str],
    label: str,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    each: timedelta = _MINUTE,
) -> Markup:
    """Return stacked bars over time. The axis begins and ends with what it shows.

    :param buckets: by minute or day, the numbers by kind
    :param since: what the axis begins with; by default the first bucket
    :param until: what the axis ends with; by default the last bucket
    :param each: the time that a bucket covers
    """
    if not buckets:
        return Markup("")
    least = each // _MINUTE
    first = _floor(min(*buckets, since or max(buckets)), least)
    minutes = (_floor(max(*buckets, until or first), least) - first) // _MINUTE + least
    step = _step_of(minutes, _MOST_BARS, least)
    sums: list[Counter[str]] = [Counter() for _ in range(-(-minutes // step))]
    for moment, counts in buckets.items():
        sums[(moment - first) // _MINUTE // step].update(counts)
    most = _round_up(max(counts.total() for counts in sums))
    drawn = [
        _column(100 * position * step / minutes, 100 * step / minutes, counts, kinds, most, first, position * step)
        for position, counts in enumerate(sums)
    ]
    name = f"{step} min" if step < 60 else f"{step // 60} h" if step < _DAY else f"{step // _DAY} d"
    return Markup(
        '<svg class="chart" height="{}" role="img" aria-label="{}">{}<svg class="plot" x="{}">{}{}</svg></svg>'
    ).format(
        _HEIGHT, f"{label}, each bar {name}", _axis(most), _LEFT, Markup("").join(drawn), _ticks(first, minutes, least)
    )


def _step_of(minutes: int, most: int, least: int) -> int:
    """Return the smallest step by which so many minutes have no more than some steps."""
    return next((step for step in _STEPS if step >= least and minutes <= most * step), _STEPS[-1])


def _column(
    x: float, width: float, counts: Mapping[str, int], kinds: Sequence[str], most: int, first: datetime, minutes: int
) -> Markup:
    """Return the bar of one step.

    :param x: where it begins, in per cent of the axis
    :param width: likewise; the last one may end after the axis, and is cut
    :param minutes: from the beginning of the axis to that of the bar
    """
    y, drawn = float(_TOP + _HIGH), []
    shown = [(kind, counts[kind]) for kind in kinds if counts.get(kind)]
    for kind, count in shown:
        height = _HIGH * count / most
        y -= height
        drawn.append(
            Markup('<rect class="k-{}" x="{:.2f}%" y="{:.2f}" width="{:.2f}%" height="{:.2f}"/>').format(
                kind, x + width * 0.08, y, min(width * 0.84, 100 - x - width * 0.08), height
            )
        )
    if not drawn:
        return Markup("")
    numbers = ", ".join(f"{count:,} {kind.replace('_', ' ')}" for kind, count in shown)
    at = first + minutes * _MINUTE
    return Markup("<g><title>{}: {}</title>{}</g>").format(f"{at:%m-%d %H:%M}", numbers, Markup("").join(drawn))


def _axis(most: int) -> Markup:
    drawn = []
    # An odd number has no half.
    for value in (0, most) if most % 2 else (0, most // 2, most):
        y = _TOP + _HIGH * (1 - value / most)
        drawn.append(
            Markup(
                '<line class="grid" x1="{}" x2="100%" y1="{y:.1f}" y2="{y:.1f}"/>'
                '<text class="tick" text-anchor="end" x="{}" y="{:.1f}">{}</text>'
            ).format(_LEFT, _LEFT - 6, y + 4, _short(value), y=y)
        )
    return Markup("").join(drawn)


def _ticks(first: datetime, minutes: int, least: int) -> Markup:
    """Return the times below the axis: round ones, few enough for a phone."""
    every = _step_of(minutes, _MOST_TICKS, least)
    form = "%m-%d" if every >= _DAY else "%H:%M" if minutes <= _DAY else "%m-%d %H:%M"
    begin = (_floor(first, every) - first) // _MINUTE
    drawn = []
    for at in range(begin if begin == 0 else begin + every, minutes, every):
        share = 100 * at / minutes
        anchor = "start" if share < 5 else "end" if share > 90 else "middle"
        drawn.append(
            Markup('<text class="tick" text-anchor="{}" x="{:.2f}%" y="{}">{}</text>').format(
                anchor, share, _HEIGHT - 6, f"{first + at * _MINUTE:{form}}"
            )
        )
    return Markup("").join(drawn)


def _floor(moment: datetime, step: int) -> datetime:
    minutes = int(moment.astimezone(UTC).timestamp() // 60)
    return datetime.fromtimestamp(60 * (minutes - minutes % step), UTC)


def _short(value: int) -> str:
    """Return a round number in the room beside the axis."""
    return f"{value / 1_000_000:g} M" if value >= 1_000_000 else f"{value:,}"


def _round_up(value: int) -> int:
    """Return a round number that is no less."""
    power: int = 10 ** (len(str(value)) - 1)
    return next(power * step for step in (1, 2, 4, 6, 8, 10) if power * step >= value)
