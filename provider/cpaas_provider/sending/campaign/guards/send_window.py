"""The send window: the hours of the day, in the time zone of each recipient, in which sending is allowed."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from msgspec import Struct

from cpaas_provider.sending.errors import RetryLaterError

_SECOND = timedelta(seconds=1)
_DAYS = range(-1, 5)
"""The days searched for an opening, from today: a zone may skip a whole day, and a clock change the next opening."""


class OutsideSendWindowError(RetryLaterError):
    """The send window is closed for all recipients that are left."""


class SendWindow(Struct, frozen=True):
    """The hours in which recipients may be sent to. A window that closes before it opens lasts over midnight.

    The window is open whenever the recipient's clock shows a time in it. A time that a clock change repeats counts both
    times. If a clock change skips the opening, the window opens at the change.

    :param opens: local time of day, included
    :param closes: local time of day, excluded
    :param zone: the campaign's time zone, for recipients without one
    """

    opens: time
    closes: time
    zone: str

    @classmethod
    def read(cls, window: Any, zone: str | None) -> SendWindow:
        """Return the window of an author's argument such as ``("09:00", "20:00")``.

        :param zone: the author's ``timezone``
        :raises ValueError: when one of them cannot be used
        """
        is_pair = isinstance(window, Sequence) and not isinstance(window, str) and len(window) == 2
        try:
            opens, closes = map(time.fromisoformat, window) if is_pair else (None, None)
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
        """Return whether recipients of a time zone may be sent to now."""
        clock = now.astimezone(ZoneInfo(zone or self.zone)).time()
        if self.opens < self.closes:
            return self.opens <= clock < self.closes
        return clock >= self.opens or clock < self.closes

    def next_opening(self, now: datetime, zones: Iterable[str | None]) -> datetime:
        """Return the earliest opening in the time zones."""
        return min(self._next(now, zone, opening=True) for zone in zones)

    def next_change(self, now: datetime, zones: Iterable[str | None]) -> datetime:
        """Return the earliest opening or closing in the time zones."""
        return min(self._next(now, zone, opening=False) for zone in zones)

    def _next(self, now: datetime, zone: str | None, *, opening: bool) -> datetime:
        """Return the next opening, or the next opening or closing.

        The window can only change at one of the moments that ``_moments`` returns.
        """
        was_open = self.is_open(now, zone)
        for moment in self._moments(now, ZoneInfo(zone or self.zone)):
            is_open = self.is_open(moment, zone)
            if is_open != was_open and (is_open or not opening):
                return moment
            was_open = is_open
        raise ValueError("the send window never opens in this time zone")

    def _moments(self, now: datetime, zone: ZoneInfo) -> list[datetime]:
        """Return, in order, when the clock shows the opening or closing time on the next days, or skips it."""
        today, moments = now.astimezone(zone).date(), set[datetime]()
        for day, at in itertools.product((today + timedelta(days=ahead) for ahead in _DAYS), (self.opens, self.closes)):
            local = datetime.combine(day, at, zone)
            first, second = sorted(local.replace(fold=fold).astimezone(UTC) for fold in (0, 1))
            moments |= {first, second}
            if first != second:
                # The clock shows this time twice or never: it is changed between the two moments.
                moments.add(_change_of_clock(first, second, zone))
        return sorted(moment for moment in moments if moment > now)


def _change_of_clock(early: datetime, late: datetime, zone: ZoneInfo) -> datetime:
    """Return the moment of the clock change between two moments."""
    before = early.astimezone(zone).utcoffset()
    if before == late.astimezone(zone).utcoffset():
        return late
    # Bisect to the second: clocks change at whole seconds.
    early, late = early.replace(microsecond=0), late.replace(microsecond=0) + _SECOND
    while late - early > _SECOND:
        middle = early + (late - early) // _SECOND // 2 * _SECOND
        if middle.astimezone(zone).utcoffset() == before:
            early = middle
        else:
            late = middle
    return late
