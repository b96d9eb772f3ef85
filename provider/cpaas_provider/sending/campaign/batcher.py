"""The recipients of the next request: as many as one request takes, as far as guards and budget allow."""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime

from cpaas_provider.sending.campaign.guards.budget import Budget
from cpaas_provider.sending.campaign.guards.dnd import DndFilter
from cpaas_provider.sending.campaign.guards.frequency import FrequencyFilter
from cpaas_provider.sending.campaign.guards.send_window import OutsideSendWindowError, SendWindow
from cpaas_provider.sending.campaign.recipients import LEFT_OUT, Recipient, RecipientTable
from cpaas_provider.sending.dispatcher import WAIT, Wait
from cpaas_provider.sending.errors import SendingError

Batch = tuple[Recipient, ...]


class TestLeftOutError(SendingError):
    """A guard leaves out a test recipient, so the campaign was not tried."""

    permanent = True


class Batcher:
    """Takes recipients from the plan, batch by batch; used by one coroutine at a time.

    :param per_request: how many one request may name
    :param only: the recipients to take instead of all who are not reached
    """

    def __init__(
        self,
        plan: RecipientTable,
        per_request: int,
        budget: Budget,
        *,
        window: SendWindow | None = None,
        dnd_filter: DndFilter | None = None,
        frequency_filter: FrequencyFilter | None = None,
        only: Iterable[Recipient] | None = None,
        test_only: bool = False,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._plan = plan
        self._per_request = per_request
        self._budget = budget
        self._window = window
        self._filters = [one for one in (dnd_filter, frequency_filter) if one is not None]
        self._at_once = max((one.batch_size for one in self._filters), default=0)
        self._only = None if only is None else {recipient.place: recipient for recipient in only}
        self._test_only = test_only
        self._clock = clock
        self._ready: deque[Recipient] = deque()
        self._parts: list[Batch] = []
        self._recipients: Iterator[Recipient] | None = None
        self._until: datetime | None = None
        self._testing = only is None
        self.left_out = 0

    def requeue(self, parts: Iterable[Batch]) -> None:
        """Have the parts of a rejected batch taken next."""
        for part in parts:
            self._parts.append(part)
            if self._only is not None:
                self._only.update((recipient.place, recipient) for recipient in part)

    async def next(self, under_way: int) -> Batch | Wait | None:
        """Return the next batch, ``None`` when no recipient is left.

        :param under_way: how many requests are; where the next has to wait for them, it is ``WAIT``
        :raises SendingError: when a guard ends the campaign, or puts it off
        :raises CpaasError: when a look-up cannot be made
        """
        recipients = await self._next(under_way)
        if isinstance(recipients, tuple):
            self._remove(recipients)
        return recipients

    async def _next(self, under_way: int) -> Batch | Wait | None:
        if self._window is not None and not self._hours_last():
            if under_way:
                return WAIT
            self._begin(self._window)
        recipients = self._parts.pop() if self._parts else await self._take()
        if not recipients:
            return await self._reopen_window(under_way)
        tests = self._only is None and not recipients[0].row
        if (self._testing or tests) and under_way:
            # Those who test come first, and alone: what comes of them may end the campaign.
            self._return(recipients)
            return WAIT
        if self._testing and not tests and self._plan.tests(LEFT_OUT):
            raise TestLeftOutError(
                "A test recipient is marked as do-not-disturb, its lookup failed, or it is at the frequency cap. It "
                "was not sent to, and no other recipient was. Name another test recipient."
            )
        self._testing = tests
        if self._test_only and not self._testing:
            return None
        return self._within_budget(recipients)

    def _hours_last(self) -> bool:
        """Tell whether the hours are still those in which the recipients at hand may be sent to."""
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
            raise OutsideSendWindowError("The send window is closed for all recipients that are left.", until)
        if self._only is None:
            self._recipients = self._plan.not_sent(is_open)
        else:
            self._recipients = iter([recipient for recipient in self._only.values() if recipient.zone in is_open])
        self._until = window.next_change(now, zones or [None])

    def _zones(self) -> list[str | None]:
        """Return the time zones of those who are left."""
        if self._only is not None:
            return list({recipient.zone for recipient in self._only.values()})
        # Where there are some who test, no recipient comes before their hours.
        return self._plan.zones(tests=True) or self._plan.zones()

    def _remove(self, recipients: Iterable[Recipient]) -> None:
        """Do not take recipients of ``only`` again when the send window opens the next time."""
        if self._only is not None:
            for recipient in recipients:
                self._only.pop(recipient.place, None)

    async def _reopen_window(self, under_way: int) -> Batch | Wait | None:
        """Return ``None`` for no recipient left, unless the send window opens later for some."""
        if self._window is None or not self._zones():
            return None
        if under_way:
            return WAIT
        self._begin(self._window)
        return await self._next(under_way)

    async def _take(self) -> Batch:
        if self._recipients is None:
            self._recipients = iter([*self._only.values()]) if self._only is not None else self._plan.not_sent()
        while len(self._ready) < self._per_request and await self._fill(self._recipients):
            pass
        return self._cut()

    async def _fill(self, recipients: Iterator[Recipient]) -> bool:
        """Add recipients who may be sent to, and tell whether there may be more."""
        room = self._per_request - len(self._ready)
        if not self._filters:
            found = list(itertools.islice(recipients, room))
            self._ready.extend(found)
            return len(found) == room
        room = max(room, self._at_once)
        found = list(itertools.islice(recipients, room))
        permitted = found
        for one in self._filters:
            permitted = await one.filter(permitted)
        self.left_out += len(found) - len(permitted)
        self._remove(set(found) - set(permitted))
        self._ready.extend(permitted)
        return len(found) == room

    def _cut(self) -> Batch:
        """Return the recipients of one request; those who test share none with the others."""
        recipients: list[Recipient] = []
        while self._ready and len(recipients) < self._per_request:
            if recipients and bool(recipients[0].row) != bool(self._ready[0].row):
                break
            recipients.append(self._ready.popleft())
        return tuple(recipients)

    def _within_budget(self, recipients: Batch) -> Batch | Wait:
        try:
            units = self._budget.affordable(billable_units(recipients[:1]))
        except Exception:
            self._return(recipients)
            raise
        if self._budget.unpriced_yet:
            # One recipient tells the price as well as many.
            recipients = self._keep(recipients, 1)
        if math.isinf(units):
            return recipients
        taken, cost = 0, 0
        while taken < len(recipients) and cost + billable_units(recipients[taken : taken + 1]) <= units:
            cost += billable_units(recipients[taken : taken + 1])
            taken += 1
        self._return(recipients[taken:])
        return recipients[:taken] or WAIT

    def _keep(self, recipients: Batch, number: int) -> Batch:
        self._return(recipients[number:])
        return recipients[:number]

    def _return(self, recipients: Batch) -> None:
        self._ready.extendleft(reversed(recipients))


def billable_units(recipients: Sequence[Recipient]) -> int:
    """Return the billable units of a request: its pages, or its recipients where pages are not known."""
    return sum(recipient.pages or 1 for recipient in recipients)
