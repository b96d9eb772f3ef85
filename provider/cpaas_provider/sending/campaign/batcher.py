"""Makes batches: the recipients of the next request, as far as the guards and the budget allow."""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, InitVar, dataclass, field
from datetime import UTC, datetime

from cpaas_provider.sending.campaign.guards.budget import Budget
from cpaas_provider.sending.campaign.guards.dnd import DndFilter
from cpaas_provider.sending.campaign.guards.frequency import FrequencyFilter
from cpaas_provider.sending.campaign.guards.send_window import OutsideSendWindowError, SendWindow
from cpaas_provider.sending.campaign.guards.suppressions import SuppressionFilter
from cpaas_provider.sending.campaign.recipients import LEFT_OUT, Recipient, RecipientStatus, RecipientTable
from cpaas_provider.sending.dispatcher import WAIT, Wait
from cpaas_provider.sending.errors import SendingError

Batch = tuple[Recipient, ...]

_READ_AHEAD = 200
"""The recipients that are taken from the table at once, because each access to it costs the same."""


class TestLeftOutError(SendingError):
    """A guard excluded a test recipient, so the campaign ended before other recipients."""

    permanent = True


@dataclass(eq=False, repr=False)
class Batcher:
    """Takes recipients from the table, batch by batch. One coroutine at a time may use it.

    :param per_request: the most recipients of one request
    :param needs_price: whether the next request must show the price of a recipient, for a budget of the connection;
        ``None`` without one
    :param only: the recipients of a resend; ``None`` for all recipients with the status ``NOT_SENT``
    """

    plan: RecipientTable
    per_request: int
    budget: Budget
    _: KW_ONLY
    window: SendWindow | None = None
    suppression_filter: SuppressionFilter | None = None
    dnd_filter: DndFilter | None = None
    frequency_filter: FrequencyFilter | None = None
    needs_price: Callable[[], Awaitable[bool]] | None = None
    only: InitVar[Iterable[Recipient] | None] = None
    test_only: bool = False
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    left_out: int = field(default=0, init=False)

    def __post_init__(self, only: Iterable[Recipient] | None) -> None:
        filters = (self.suppression_filter, self.dnd_filter, self.frequency_filter)
        self._filters = [recipient_filter for recipient_filter in filters if recipient_filter is not None]
        self._filter_at_once = max((recipient_filter.batch_size for recipient_filter in self._filters), default=0)
        self._only = None if only is None else {recipient.position: recipient for recipient in only}
        self._ready: deque[Recipient] = deque()
        self._checked_at = self.suppression_filter.checked_at if self.suppression_filter else 0.0
        """When the stored suppression list was last searched for all recipients that were taken from the table."""
        self._requeued: list[Batch] = []
        """Parts of rejected batches, to be taken before other recipients."""
        self._returned: list[Batch] = []
        """Those that were returned since the last call of ``next``."""
        self._recipients: Iterator[Recipient] | None = None
        self._selected_for: tuple[datetime, datetime] | None = None
        """The time for which the selection is valid: its own, and when the send window changes in any time zone."""
        first = None if self._only is not None else next(self.plan.not_sent(), None)
        self._testing = first is not None and (self.test_only or not first.row)
        """Whether only test recipients are selected. The others are not even looked up before these are sent to."""
        self._follows_tests = self._only is None
        """Whether no recipient but the test recipients was taken yet."""

    def requeue(self, parts: Iterable[Batch]) -> None:
        """Return the parts of a rejected batch, which are then taken before other recipients."""
        for part in parts:
            # Not to those that are checked now, while the list is read.
            self._returned.append(part)
            if self._only is not None:
                self._only.update((recipient.position, recipient) for recipient in part)

    async def next(self, pending: int) -> Batch | Wait | None:
        """Return the next batch, ``None`` if no recipient is left, ``WAIT`` if a pending request must end before.

        :param pending: the number of pending requests
        :raises SendingError: when a guard ends or defers the campaign
        :raises CpaasError: when a lookup fails
        """
        batch = await self._next(pending)
        if isinstance(batch, tuple):
            self._remove(batch)
        return batch

    async def _next(self, pending: int) -> Batch | Wait | None:
        if self.window is not None and not self._is_selection_valid():
            if pending:
                return WAIT
            self._select_by_window(self.window)
        await self._check_again()
        if self._requeued:
            recipients = self._requeued.pop()
        else:
            recipients = self._cut() if len(self._ready) >= self.per_request else await self._take()
        if not recipients and (self._requeued or self._returned):
            # A request was rejected while recipients were filtered.
            return await self._next(pending)
        if not recipients:
            return await self._select_again(pending)
        if self.window is not None and self._filters and not self._is_selection_valid():
            # It closed or opened while numbers were looked up, which may take minutes.
            self._return(recipients)
            return await self._next(pending)
        if self._testing and pending:
            # Requests to test recipients leave alone: their outcome may end the campaign.
            self._return(recipients)
            return WAIT
        if self._follows_tests and not self._testing:
            self._refuse_left_out_tests()
            self._follows_tests = False
        if self.needs_price is not None:
            if await self.needs_price():
                self._return(recipients if pending else recipients[1:])
                return WAIT if pending else self._within_budget(recipients[:1])
            # A price that is known stays known.
            self.needs_price = None
        return self._within_budget(recipients)

    async def _check_again(self) -> None:
        """Drop the recipients that were listed since they were taken, if the last search for them may be too old."""
        returned, self._returned = self._returned, []
        self._requeued += returned
        suppression_filter = self.suppression_filter
        if suppression_filter is None or not suppression_filter.is_due(suppression_filter.checked_at):
            return
        # The request that was rejected may have waited for long since they were taken.
        waiting = [*itertools.chain(*returned)]
        if suppression_filter.is_due(self._checked_at):
            # Before the list is read: an entry of this moment is found then, or at the next check.
            self._checked_at = suppression_filter.clock()
            waiting = [*self._ready, *itertools.chain(*self._requeued)]
        permitted = await suppression_filter.check(waiting) if waiting else []
        if len(permitted) == len(waiting):
            return
        listed = set(waiting).difference(permitted)
        self.left_out += len(listed)
        self._remove(listed)
        self._ready = deque(recipient for recipient in self._ready if recipient not in listed)
        parts = [tuple(recipient for recipient in part if recipient not in listed) for part in self._requeued]
        self._requeued = [part for part in parts if part]

    def _is_selection_valid(self) -> bool:
        """Return whether the send window did not open or close in any time zone since recipients were selected."""
        if self._selected_for is None:
            return False
        since, until = self._selected_for
        # Before: the clock was set back.
        return since <= self.clock() < until

    def _select_by_window(self, window: SendWindow) -> None:
        """Select the recipients in time zones in which the send window is open now."""
        self._ready.clear()
        self._requeued.clear()
        self._returned.clear()
        now = self.clock()
        zones = self._zones()
        open_zones = [zone for zone in zones if window.is_open(now, zone)]
        if zones and not open_zones:
            until = window.next_opening(now, zones)
            raise OutsideSendWindowError("The send window is closed for all recipients that are left.", until)
        if self._only is None:
            self._recipients = self.plan.not_sent(open_zones, tests=self._testing)
        else:
            self._recipients = iter([recipient for recipient in self._only.values() if recipient.zone in open_zones])
        self._selected_for = now, window.next_change(now, zones or [None])

    def _zones(self) -> list[str | None]:
        """Return the time zones of the recipients that are left."""
        if self._only is not None:
            return list({recipient.zone for recipient in self._only.values()})
        return self.plan.zones(tests=self._testing)

    def _remove(self, recipients: Iterable[Recipient]) -> None:
        """Remove recipients from ``only``, so that they are not selected again when the send window opens."""
        if self._only is not None:
            for recipient in recipients:
                self._only.pop(recipient.position, None)

    async def _select_again(self, pending: int) -> Batch | Wait | None:
        """Return the next batch, when all selected recipients were taken; ``None`` if no recipient is left."""
        is_done = self.window is None or not self._zones()
        if is_done and not self._testing:
            return None
        if pending:
            return WAIT
        if is_done:
            if self.test_only:
                self._refuse_left_out_tests()
                return None
            self._testing, self._recipients = False, None
        if self.window is not None:
            self._select_by_window(self.window)
        return await self._next(pending)

    def _refuse_left_out_tests(self) -> None:
        """Raise if a guard excluded a test recipient."""
        if self.plan.tests((*LEFT_OUT, RecipientStatus.LOOKUP_FAILED)):
            raise TestLeftOutError(
                "A test recipient is marked as do-not-disturb, its lookup failed, or it is at the frequency cap or "
                "on the suppression list. It was not sent to, and no other recipient was. Name another test recipient."
            )

    async def _take(self) -> Batch:
        if self._recipients is None:
            self._recipients = (
                iter([*self._only.values()]) if self._only is not None else self.plan.not_sent(tests=self._testing)
            )
        may_follow = True
        while may_follow and len(self._ready) < self.per_request:
            may_follow = await self._fill(self._recipients)
            # Numbers may have been looked up, which may take minutes.
            await self._check_again()
        return self._cut()

    async def _fill(self, recipients: Iterator[Recipient]) -> bool:
        """Add recipients that the filters let pass to those that are ready. Return whether more may follow."""
        number = max(self.per_request - len(self._ready), self._filter_at_once or _READ_AHEAD)
        taken = list(itertools.islice(recipients, number))
        permitted = taken
        for recipient_filter in self._filters:
            permitted = await recipient_filter.filter(permitted)
        if self._filters:
            self.left_out += len(taken) - len(permitted)
            self._remove(set(taken) - set(permitted))
        self._ready.extend(permitted)
        return len(taken) == number

    def _cut(self) -> Batch:
        """Return the recipients of one request. Test recipients and others do not share a request."""
        if not self._ready:
            return ()
        recipients = [self._ready.popleft()]
        while self._ready and len(recipients) < self.per_request:
            if bool(recipients[0].row) != bool(self._ready[0].row):
                break
            recipients.append(self._ready.popleft())
        return tuple(recipients)

    def _within_budget(self, recipients: Batch) -> Batch | Wait:
        if not self.budget.bounded:
            return recipients
        try:
            units = self.budget.affordable(billable_units(recipients[:1]))
        except Exception:
            self._return(recipients)
            raise
        if self.budget.is_probing:
            self._return(recipients[1:])
            recipients = recipients[:1]
        if math.isinf(units):
            return recipients
        taken, cost = 0, 0
        while taken < len(recipients) and cost + billable_units(recipients[taken : taken + 1]) <= units:
            cost += billable_units(recipients[taken : taken + 1])
            taken += 1
        self._return(recipients[taken:])
        return recipients[:taken] or WAIT

    def _return(self, recipients: Batch) -> None:
        """Return recipients to those that are ready, in front."""
        self._ready.extendleft(reversed(recipients))


def billable_units(recipients: Sequence[Recipient]) -> int:
    """Return the billable units of a request: its pages, or its recipients where pages are not known."""
    return sum(recipient.pages or 1 for recipient in recipients)
