"""Whom the next request is for: as many as one request takes, as far as guards and budget let them."""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Literal

from cpaas_provider.sending.campaign.guards.budget import Budget
from cpaas_provider.sending.campaign.guards.dnd import DoNotDisturb
from cpaas_provider.sending.campaign.guards.send_window import OutsideHoursError, SendWindow
from cpaas_provider.sending.campaign.recipients import LEFT_OUT, Person, Plan
from cpaas_provider.sending.errors import SendingError

_LOOKED_UP_AT_ONCE = 100

People = tuple[Person, ...]
NotNow = Literal["not now"]
NOT_NOW: NotNow = "not now"


class TestLeftOutError(SendingError):
    """A guard leaves out a test recipient, so the campaign was not tried."""

    for_good = True


class Packer:
    """Takes people from the plan, pack by pack; used by one coroutine at a time.

    :param per_request: how many one request may name
    :param only: the people to take instead of all who are not reached
    """

    def __init__(
        self,
        plan: Plan,
        per_request: int,
        budget: Budget,
        *,
        window: SendWindow | None = None,
        do_not_disturb: DoNotDisturb | None = None,
        only: Iterable[Person] | None = None,
        test_only: bool = False,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._plan = plan
        self._per_request = per_request
        self._budget = budget
        self._window = window
        self._do_not_disturb = do_not_disturb
        self._only = None if only is None else {person.place: person for person in only}
        self._test_only = test_only
        self._clock = clock
        self._ready: deque[Person] = deque()
        self._parts: list[People] = []
        self._people: Iterator[Person] | None = None
        self._until: datetime | None = None
        self._testing = only is None
        self.left_out = 0

    def put_back(self, parts: Iterable[People]) -> None:
        """Have the parts of a rejected pack taken next."""
        for part in parts:
            self._parts.append(part)
            if self._only is not None:
                self._only.update((person.place, person) for person in part)

    async def next(self, under_way: int) -> People | NotNow | None:
        """Return the next pack, ``None`` when there is nobody left.

        :param under_way: how many requests are; where the next has to wait for them, it is ``NOT_NOW``
        :raises SendingError: when a guard ends the campaign, or puts it off
        :raises CpaasError: when a look-up cannot be made
        """
        people = await self._next(under_way)
        if isinstance(people, tuple):
            self._gone(people)
        return people

    async def _next(self, under_way: int) -> People | NotNow | None:
        if self._window is not None and not self._hours_last():
            if under_way:
                return NOT_NOW
            self._begin(self._window)
        people = self._parts.pop() if self._parts else await self._take()
        if not people:
            return await self._come_back(under_way)
        tests = self._only is None and not people[0].row
        if (self._testing or tests) and under_way:
            # Those who test come first, and alone: what comes of them may end the campaign.
            self._return(people)
            return NOT_NOW
        if self._testing and not tests and self._plan.tests(LEFT_OUT):
            raise TestLeftOutError(
                "A test recipient is marked as do-not-disturb, or its lookup failed. It was not sent to, and no other "
                "recipient was. Name another test recipient."
            )
        self._testing = tests
        if self._test_only and not self._testing:
            return None
        return self._within_budget(people)

    def _hours_last(self) -> bool:
        """Tell whether the hours are still those in which the people at hand may be sent to."""
        return self._until is not None and self._clock() < self._until

    def _begin(self, window: SendWindow) -> None:
        """Begin with those whose hours it is now."""
        self._ready.clear()
        self._parts.clear()
        now = self._clock()
        zones = self._zones()
        is_open = [zone for zone in zones if window.is_open(now, zone)]
        if zones and not is_open:
            until = window.next_opening(now, zones)
            raise OutsideHoursError("The send window is closed for all recipients that are left.", until)
        if self._only is None:
            self._people = self._plan.not_sent(is_open)
        else:
            self._people = iter([person for person in self._only.values() if person.zone in is_open])
        self._until = window.next_change(now, zones or [None])

    def _zones(self) -> list[str | None]:
        """Return the time zones of those who are left."""
        if self._only is not None:
            return list({person.zone for person in self._only.values()})
        # Where there are some who test, nobody comes before their hours.
        return self._plan.zones(tests=True) or self._plan.zones()

    def _gone(self, people: Iterable[Person]) -> None:
        """Do not take people again when the send window opens the next time; the plan itself says it of all others."""
        if self._only is not None:
            for person in people:
                self._only.pop(person.place, None)

    async def _come_back(self, under_way: int) -> People | NotNow | None:
        """Say that there is nobody left, unless there are those whose hours it was not."""
        if self._window is None or not self._zones():
            return None
        if under_way:
            return NOT_NOW
        self._begin(self._window)
        return await self._next(under_way)

    async def _take(self) -> People:
        if self._people is None:
            self._people = iter([*self._only.values()]) if self._only is not None else self._plan.not_sent()
        while len(self._ready) < self._per_request and await self._fill(self._people):
            pass
        return self._cut()

    async def _fill(self, people: Iterator[Person]) -> bool:
        """Add people who may be sent to, and tell whether there may be more."""
        room = self._per_request - len(self._ready)
        if self._do_not_disturb is None:
            found = list(itertools.islice(people, room))
            self._ready.extend(found)
            return len(found) == room
        room = max(room, _LOOKED_UP_AT_ONCE)
        found = list(itertools.islice(people, room))
        permitted = await self._do_not_disturb.permitted(found)
        self.left_out += len(found) - len(permitted)
        self._gone(set(found) - set(permitted))
        self._ready.extend(permitted)
        return len(found) == room

    def _cut(self) -> People:
        """Return the people of one request; those who test share none with the others."""
        people: list[Person] = []
        while self._ready and len(people) < self._per_request:
            if people and bool(people[0].row) != bool(self._ready[0].row):
                break
            people.append(self._ready.popleft())
        return tuple(people)

    def _within_budget(self, people: People) -> People | NotNow:
        try:
            units = self._budget.affordable(units_of(people[:1]))
        except Exception:
            self._return(people)
            raise
        if self._budget.unpriced_yet:
            # One recipient tells the price as well as many.
            people = self._keep(people, 1)
        if math.isinf(units):
            return people
        taken, cost = 0, 0
        while taken < len(people) and cost + units_of(people[taken : taken + 1]) <= units:
            cost += units_of(people[taken : taken + 1])
            taken += 1
        self._return(people[taken:])
        return people[:taken] or NOT_NOW

    def _keep(self, people: People, number: int) -> People:
        self._return(people[number:])
        return people[:number]

    def _return(self, people: People) -> None:
        self._ready.extendleft(reversed(people))


def units_of(people: Sequence[Person]) -> int:
    """Return what a request to people is paid for: its pages, or its recipients where pages are not known."""
    return sum(person.pages or 1 for person in people)
