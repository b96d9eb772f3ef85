"""The laws of a send window around changes of the clock, and the moments of those changes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from cpaas_provider.sending.campaign.guards.send_window import SendWindow

MINUTE = timedelta(minutes=1)


def clock_changes(zone: str, first: date, last: date) -> Iterator[datetime]:
    """Yield the moments, to the minute, at which a zone's clock is put forward or back."""
    place = ZoneInfo(zone)
    day = datetime(first.year, first.month, first.day, tzinfo=UTC)
    while day.date() < last:
        following = day + timedelta(days=1)
        if day.astimezone(place).utcoffset() != following.astimezone(place).utcoffset():
            early, late = day, following
            while late - early > MINUTE:
                middle = early + MINUTE * ((late - early) // MINUTE // 2)
                if middle.astimezone(place).utcoffset() == day.astimezone(place).utcoffset():
                    early = middle
                else:
                    late = middle
            yield late
        day = following


def breaches(window: SendWindow, begin: datetime, minutes: int, step: int = 1) -> list[str]:
    """Return where a window's next change or opening is not what a clock that is looked at each minute shows.

    :param minutes: for how many minutes from the beginning the clock is looked at
    :param step: how many minutes lie between the moments at which the window is asked
    """
    moments = [begin + MINUTE * number for number in range(minutes)]
    states = [window.is_open(moment, None) for moment in moments]
    changes = [index for index in range(1, minutes) if states[index] != states[index - 1]]
    found = []
    for asked in range(0, minutes, step):
        ahead = [index for index in changes if index > asked]
        if ahead and (said := window.next_change(moments[asked], [None])) != moments[ahead[0]]:
            found.append(f"{window}: asked at {moments[asked]}, it changes at {moments[ahead[0]]}, not at {said}")
        openings = [index for index in ahead if states[index]]
        if openings and (said := window.next_opening(moments[asked], [None])) != moments[openings[0]]:
            found.append(f"{window}: asked at {moments[asked]}, it opens at {moments[openings[0]]}, not at {said}")
    return found


def windows_around(zone: str, change: datetime) -> Sequence[SendWindow]:
    """Return windows that open or close before, in, at the ends of, and after what a change leaves out or repeats."""
    place = ZoneInfo(zone)
    before, after = ((change + shift).astimezone(place) for shift in (-MINUTE, timedelta()))
    early, late = sorted([before.replace(tzinfo=None) + MINUTE, after.replace(tzinfo=None)])
    edges = [early - MINUTE, early, early + (late - early) / 2, late - MINUTE, late, late + MINUTE]
    times = sorted({one.time().replace(second=0, microsecond=0) for one in edges})
    pairs = [(opens, closes) for opens in times for closes in times if opens != closes]
    far = [pair for one in times for pair in ((time(18, 7), one), (one, time(18, 7))) if one != time(18, 7)]
    return [SendWindow(opens, closes, zone) for opens, closes in (*pairs, *far)]
