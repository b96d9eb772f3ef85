"""Charts as SVG, drawn on the server: no script, and no style but that of the page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

from markupsafe import Markup

WIDTH, HEIGHT = 720, 220
_LEFT, _BOTTOM, _TOP = 48, 24, 8
_WIDE, _HIGH = WIDTH - _LEFT, HEIGHT - _BOTTOM - _TOP
_FEWEST_BARS, _MOST_BARS = 12, 60
_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 360, 720, 1440, 2880, 10080)  # minutes

Buckets = Mapping[datetime, Mapping[str, int]]


def bar(parts: Sequence[tuple[str, int]], label: str) -> Markup:
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


def over_time(buckets: Buckets, kinds: Sequence[str], label: str, *, until: datetime | None = None) -> Markup:
    """Return stacked bars over time.

    :param buckets: by minute, the numbers by kind
    :param until: the end of the time axis; by default the last minute there is
    """
    if not buckets:
        return Markup("")
    first, last = min(buckets), max(*buckets, until or min(buckets))
    minutes = (last - first) // timedelta(minutes=1) + 1
    step = next((step for step in _STEPS if minutes / step <= _MOST_BARS), _STEPS[-1])
    start, each_bar = _floor(first, step), timedelta(minutes=step)
    number = max(_FEWEST_BARS, (last - start) // each_bar + 1)
    sums: list[Counter[str]] = [Counter() for _ in range(number)]
    for minute, counts in buckets.items():
        sums[(minute - start) // each_bar].update(counts)
    most = _round_up(max(counts.total() for counts in sums))
    width = _WIDE / number
    drawn = [_axis(most)]
    drawn += [
        _column(_LEFT + position * width, width, counts, kinds, most, start + position * each_bar)
        for position, counts in enumerate(sums)
    ]
    drawn.append(_times(start, step, number, width))
    each = f"{step} min" if step < 60 else f"{step // 60} h" if step < 1440 else f"{step // 1440} d"
    return Markup('<svg class="chart" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
        WIDTH, HEIGHT, f"{label}, each bar {each}", Markup("").join(drawn)
    )


def _column(x: float, width: float, counts: Mapping[str, int], kinds: Sequence[str], most: int, at: datetime) -> Markup:
    y, drawn = float(_TOP + _HIGH), []
    shown = [(kind, counts[kind]) for kind in kinds if counts.get(kind)]
    for kind, count in shown:
        height = _HIGH * count / most
        y -= height
        drawn.append(
            Markup('<rect class="k-{}" x="{:.2f}" y="{:.2f}" width="{:.2f}" height="{:.2f}"/>').format(
                kind, x + width * 0.08, y, width * 0.84, height
            )
        )
    if not drawn:
        return Markup("")
    numbers = ", ".join(f"{count:,} {kind.replace('_', ' ')}" for kind, count in shown)
    return Markup("<g><title>{}: {}</title>{}</g>").format(f"{at:%m-%d %H:%M}", numbers, Markup("").join(drawn))


def _axis(most: int) -> Markup:
    drawn = []
    # An odd number has no half.
    for value in (0, most) if most % 2 else (0, most // 2, most):
        y = _TOP + _HIGH * (1 - value / most)
        drawn.append(
            Markup(
                '<line class="grid" x1="{}" x2="{}" y1="{y:.1f}" y2="{y:.1f}"/>'
                '<text class="tick" text-anchor="end" x="{}" y="{:.1f}">{:,}</text>'
            ).format(_LEFT, WIDTH, _LEFT - 6, y + 4, value, y=y)
        )
    return Markup("").join(drawn)


def _times(start: datetime, step: int, number: int, width: float) -> Markup:
    form = "%H:%M" if step * number <= 1440 else "%m-%d"
    every = max(1, number // 6)
    drawn = [
        Markup('<text class="tick" x="{:.1f}" y="{}">{}</text>').format(
            _LEFT + position * width, HEIGHT - 6, f"{start + timedelta(minutes=position * step):{form}}"
        )
        for position in range(0, number, every)
        if _LEFT + position * width < WIDTH - 30
    ]
    return Markup("").join(drawn)


def _floor(moment: datetime, step: int) -> datetime:
    minutes = int(moment.astimezone(UTC).timestamp() // 60)
    return datetime.fromtimestamp(60 * (minutes - minutes % step), UTC)


def _round_up(value: int) -> int:
    """Return a round number that is no less."""
    power: int = 10 ** (len(str(value)) - 1)
    return next(power * step for step in (1, 2, 4, 6, 8, 10) if power * step >= value)
