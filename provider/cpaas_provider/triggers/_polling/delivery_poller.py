"""Reading for all who wait for deliveries: one query a round, whatever the number of waiters."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import math
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from cpaas_provider.database.errors import DatabaseError, ReportsNotSupportedError
from cpaas_provider.delivery.tracking.awaited import STRANGE, noted, open_reports
from cpaas_provider.delivery.tracking.counts import Counts, counts_of, touched_since
from cpaas_provider.triggers._polling.poller import Poller, WaitEndedError, Waiter, backoff

if TYPE_CHECKING:
    from cpaas_provider.database.database import Database
    from cpaas_provider.triggers._polling.delivery_criteria import Goal

SHORTEST_INTERVAL = 1.0
LOOK_AGAIN = 300.0
"""Seconds between two looks at everything that is waited for: a receiver's clock may be wrong."""

_GATHERING = 0.05
"""Seconds for which those who come are gathered, as many come together."""
_REST = 1.0
"""A pause is at least so many times as long as the query before it: counting a million recipients takes a while."""
_CROWD = 100

log = logging.getLogger(__name__)


class DeliveryWaiter(Waiter[dict[str, Any]]):
    """One who waits until a goal is reached by some campaigns together; answered with how that ended.

    :param interval: seconds between two rounds at most, at least 1
    :param unknown: those of the campaigns that are requests of unknown outcome
    """

    def __init__(self, campaigns: Iterable[str], goal: Goal, interval: float, unknown: Iterable[str] = ()) -> None:
        super().__init__()
        self.campaigns = tuple(dict.fromkeys(campaigns))
        self.goal = goal
        self.interval = max(interval, SHORTEST_INTERVAL)
        self._unknown = frozenset(unknown)
        self.was_looked_at = False
        self.is_last_look = False
        self._counts: dict[str, Counts] = {}
        self._total = Counts()
        # The poller has none of its own, and it is this one's task that is to be told.
        self._context = contextvars.copy_context()

    def learn(self, campaign: str, counts: Counts) -> None:
        """Take note of what a campaign came to."""
        if campaign in self._unknown:
            counts = counts.unless_accepted()
        before, total = self._counts.get(campaign, Counts()), self._total
        self._counts[campaign] = counts
        self._total = Counts(
            total.delivered + counts.delivered - before.delivered,
            total.undelivered + counts.undelivered - before.undelivered,
            total.in_flight + counts.in_flight - before.in_flight,
            unknown=total.unknown + counts.unknown - before.unknown,
        )

    def judge(self) -> None:
        """Answer where there is something to tell; before all campaigns were looked at there is nothing."""
        if self.was_looked_at and (result := self.given_up() if self.is_last_look else self.goal.judge(self._total)):
            self.tell(result)

    def given_up(self) -> dict[str, Any]:
        """Return how the wait ended if it ends now."""
        return self.goal.given_up(self._total)

    def is_strange(self) -> None:
        """Log that the store knows nothing of what is waited for, in the log of the task that waits."""
        self._context.run(log.warning, STRANGE)


@dataclass
class _Seen:
    """What was read: of campaigns that were asked for, and of whatever changed."""

    looked: dict[str, Counts] = field(default_factory=dict)
    unknown: set[str] = field(default_factory=set)
    changed: dict[str, Counts] = field(default_factory=dict)


class DeliveryPoller(Poller[DeliveryWaiter]):
    """Asks the store what changed, once a round, and looks at the campaigns of those who came, all of them at once.

    A round lasts as long as the smallest interval of those who wait.
    """

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self._database: Database | None = None
        self._by_campaign: defaultdict[str, set[DeliveryWaiter]] = defaultdict(set)
        self._intervals: Counter[float] = Counter()
        self._unread: set[DeliveryWaiter] = set()
        self._since = datetime.now(UTC)
        self._asked, self._took = -math.inf, 0.0
        self._looked_at_all = time.monotonic()
        self._failures = 0

    def came(self, waiter: DeliveryWaiter) -> None:
        """Have the waiter's campaigns looked at."""
        self._intervals[waiter.interval] += 1
        self._unread.add(waiter)
        for campaign in waiter.campaigns:
            self._by_campaign[campaign].add(waiter)

    def left(self, waiter: DeliveryWaiter) -> None:
        """Look at them no more for this one."""
        self._intervals[waiter.interval] -= 1
        self._intervals += Counter()
        self._unread.discard(waiter)
        for campaign in waiter.campaigns:
            self._by_campaign[campaign].discard(waiter)
            if not self._by_campaign[campaign]:
                del self._by_campaign[campaign]

    def look_again(self, waiter: DeliveryWaiter) -> None:
        """Look at a waiter's campaigns for the last time, and answer then."""
        waiter.is_last_look = True
        self._unread.add(waiter)
        self.wake()

    async def round(self) -> float:
        """Look at the campaigns of those who came; when it is time, ask what changed."""
        if self._unread:
            await self.rest(_GATHERING)
        now = time.monotonic()
        if now - self._looked_at_all >= LOOK_AGAIN:
            self._looked_at_all, self._unread = now, set(self.waiters)
        new = set(self._unread)
        since = self._since if now >= self._due() else None
        if not new and since is None:
            return self._due() - now
        try:
            asked_for = {name for one in new for name in one.campaigns}
            seen = await asyncio.to_thread(self._read, asked_for, since, list(self._by_campaign))
        except ReportsNotSupportedError as error:
            raise WaitEndedError(str(error)) from error
        except DatabaseError as error:
            return await self._without_reading(error)
        self._failures = 0
        self._unread -= new
        await self._tell(new, seen)
        return max(0.0, self._due() - time.monotonic())

    async def close(self) -> None:
        """Let go of the store."""
        if self._database is not None:
            await asyncio.to_thread(self._database.close)

    def _due(self) -> float:
        return self._asked + max(min(self._intervals, default=SHORTEST_INTERVAL), _REST * self._took)

    def _read(self, campaigns: set[str], since: datetime | None, wanted: list[str]) -> _Seen:
        """Read in a thread; there is never more than one at it."""
        if self._database is None:
            self._database = open_reports()
        seen = _Seen()
        with self._database.connect() as connection:
            if campaigns:
                seen.looked = counts_of(connection, campaigns)
                silent = campaigns - seen.looked.keys()
                seen.unknown = silent - noted(connection, silent)
            if since is not None:
                began, now = time.monotonic(), datetime.now(UTC)
                seen.changed = touched_since(connection, since, wanted)
                self._since, self._asked = now, time.monotonic()
                self._took = self._asked - began
        return seen

    async def _tell(self, new: set[DeliveryWaiter], seen: _Seen) -> None:
        for number, waiter in enumerate(new & self.waiters, 1):
            for campaign in waiter.campaigns:
                waiter.learn(campaign, seen.looked.get(campaign, Counts()))
            if not waiter.was_looked_at and seen.unknown.issuperset(waiter.campaigns):
                waiter.is_strange()
            waiter.was_looked_at = True
            waiter.judge()
            await _breathe(number)
        for number, (campaign, counts) in enumerate(seen.changed.items(), 1):
            for waiter in tuple(self._by_campaign.get(campaign, ())):
                waiter.learn(campaign, counts)
                waiter.judge()
            await _breathe(number)

    async def _without_reading(self, error: DatabaseError) -> float:
        """Let time pass before the store is read again, more each time; say so the first time only."""
        self._failures += 1
        if self._failures == 1:
            log.warning("%s Nothing was changed. Delivery sensors keep waiting and read the database again.", error)
        await self.rest(backoff(self._failures))
        return 0.0


async def _breathe(number: int) -> None:
    """Give the loop a turn after each crowd."""
    if number % _CROWD == 0:
        await asyncio.sleep(0)
