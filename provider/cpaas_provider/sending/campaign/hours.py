"""When a campaign may reach people: the hours of the day in their own time zone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from cpaas_provider.sending.errors import LaterError

if TYPE_CHECKING:
    from cpaas_provider.sending.campaign.plan import Person


class OutsideHoursError(LaterError):
    """The send window is closed for everybody who is left."""


@dataclass(frozen=True)
class SendWindow:
    """From when to when a day people may be sent to; over midnight where it ends before it begins.

    :param zone: the campaign's time zone, for whoever has none of their own
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
            raise ValueError("send_window needs timezone, such as Africa/Lagos: 09:00 is another moment elsewhere.")
        try:
            ZoneInfo(zone)
        except (ValueError, OSError, KeyError):
            raise ValueError("timezone must be one such as Africa/Lagos.") from None
        return cls(opens, closes, zone)

    def is_open(self, now: datetime, zone: str | None) -> bool:
        """Tell whether people of a time zone may be sent to now."""
        clock = now.astimezone(ZoneInfo(zone or self.zone)).time()
        if self.opens < self.closes:
            return self.opens <= clock < self.closes
        return clock >= self.opens or clock < self.closes

    def next_opening(self, now: datetime, zones: Iterable[str | None]) -> datetime:
        """Return when people of one of the time zones may be sent to next."""
        return min(self._next(now, ZoneInfo(zone or self.zone), self.opens) for zone in zones)

    def next_change(self, now: datetime, zones: Iterable[str | None]) -> datetime:
        """Return when the window opens or closes next for people of one of the time zones."""
        places = [ZoneInfo(zone or self.zone) for zone in zones]
        return min(self._next(now, place, at) for place in places for at in (self.opens, self.closes))

    def whose_it_is(self, now: datetime, people: Sequence[Person]) -> list[Person]:
        """Return who of several people may be sent to now.

        :raises OutsideHoursError: when nobody may
        """
        found = [person for person in people if self.is_open(now, person.zone)]
        if people and not found:
            until = self.next_opening(now, {person.zone for person in people})
            raise OutsideHoursError("The send window is closed for everybody who is to be sent to again.", until)
        return found

    @staticmethod
    def _next(now: datetime, zone: ZoneInfo, at: time) -> datetime:
        today = now.astimezone(zone).date()
        days = (datetime.combine(today + timedelta(days=ahead), at, zone) for ahead in range(3))
        return min(moment for moment in days if moment.timestamp() > now.timestamp())
