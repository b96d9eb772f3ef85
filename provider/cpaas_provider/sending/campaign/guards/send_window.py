"""When a campaign may reach recipients: the hours of the day in their own time zone."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from cpaas_provider.sending.errors import RetryLaterError

_SECOND = timedelta(seconds=1)
_DAYS = range(-1, 5)
"""Days from today that are looked at: a zone may leave a whole day out, and the next day's window fall into a gap."""


class OutsideSendWindowError(RetryLaterError):
    """The send window is closed for all recipients that are left."""


@dataclass(frozen=True)
class SendWindow:
    """From when to when a day recipients may be sent to; over midnight where it ends before it begins.

    It is open whenever the recipient's clock shows a time in it: both times where the clock is put back, and from the
    change on where the clock passes over the opening.

    :param zone: the campaign's time zone, for recipients without one of their own
    """

    opens: time
    closes: time
    zone: str

    @classmethod
    def read(cls, given: Any, zone: str | None) -> SendWindow:
        """Return a window as an author writes it: ``("09:00", "20:00")``.

        :raises ValueError: when it is none
        """
        two = isinstance(given, Sequence) and not isinstance(given, str) and len(given) == 2
        try:
            opens, closes = (time.fromisoformat(one) for one in given) if two else (None, None)
        except (ValueError, TypeError):
            opens = closes = None
        if opens is None or closes is None or opens == closes or opens.tzinfo or closes.tzinfo:
            raise ValueError('send_window must be two times of day such as ("09:00", "20:00").')
        if not zone:
            raise ValueError("send_window needs timezone, such as Africa/Lagos, because 09:00 depends on the zone.")
        try:
            ZoneInfo(zone)
        except (ValueError, OSError, KeyError):
            raise ValueError("timezone must be a time zone such as Africa/Lagos.") from None
        return cls(opens, closes, zone)

    def is_open(self, now: datetime, zone: str | None) -> bool:
        """Tell whether recipients of a time zone may be sent to now."""
        clock = now.astimezone(ZoneInfo(zone or self.zone)).time()
        if self.opens < self.closes:
            return self.opens <= clock < self.closes
        return clock >= self.opens or clock < self.closes

    def next_opening(self, now: datetime, zones: Iterable[str | None]) -> datetime:
        """Return when recipients of one of the time zones may be sent to next."""
        return min(self._next(now, zone, opening=True) for zone in zones)

    def next_change(self, now: datetime, zones: Iterable[str | None]) -> datetime:
        """Return when the window opens or closes next for recipients of one of the time zones."""
        return min(self._next(now, zone, opening=False) for zone in zones)

    def _next(self, now: datetime, zone: str | None, *, opening: bool) -> datetime:
        """Return the next moment at which the window changes, or opens.

        Between two of the moments that are looked at it does neither.
        """
        was_open = self.is_open(now, zone)
        for moment in self._moments(now, ZoneInfo(zone or self.zone)):
            is_open = self.is_open(moment, zone)
            if is_open != was_open and (is_open or not opening):
                return moment
            was_open = is_open
        raise ValueError("the send window never opens in this time zone")

    def _moments(self, now: datetime, zone: ZoneInfo) -> list[datetime]:
        """Return when the clock comes to an edge of the window on the next days, or passes over one, in order."""
        today, found = now.astimezone(zone).date(), set[datetime]()
        for day, at in itertools.product((today + timedelta(days=ahead) for ahead in _DAYS), (self.opens, self.closes)):
            local = datetime.combine(day, at, zone)
            first, second = sorted(local.replace(fold=fold).astimezone(UTC) for fold in (0, 1))
            found |= {first, second}
            if first != second:
                # The clock shows this time twice, or not at all: it is put back, or forward, between the two.
                found.add(_change_of_clock(first, second, zone))
        return sorted(moment for moment in found if moment > now)


def _change_of_clock(early: datetime, late: datetime, zone: ZoneInfo) -> datetime:
    """Return the moment of the change between two others."""
    before = early.astimezone(zone).utcoffset()
    if before == late.astimezone(zone).utcoffset():
        return late
    # Clocks are changed at whole seconds.
    early, late = early.replace(microsecond=0), late.replace(microsecond=0) + _SECOND
    while late - early > _SECOND:
        middle = early + (late - early) // _SECOND // 2 * _SECOND
        if middle.astimezone(zone).utcoffset() == before:
            early = middle
        else:
            late = middle
    return late
