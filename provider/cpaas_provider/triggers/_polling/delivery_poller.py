"""The poller of delivery counts: one query a round, whatever the number of waiters."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import math
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from cpaas_provider.database.errors import DatabaseError, ReportsNotSupportedError
from cpaas_provider.delivery.tracking.counts import (
    NOT_IN_DATABASE,
    DeliveryCounts,
    SendCounts,
    counts_changed_since,
    expected_recipients,
    known_campaigns,
    open_report_database,
    read_counts,
    read_sends,
)
from cpaas_provider.triggers._polling.criteria import ERROR, TIMED_OUT
from cpaas_provider.triggers._polling.poller import (
    SHORTEST_INTERVAL,
    Poller,
    WaitEndedError,
    Waiter,
    backoff,
    yield_to_loop,
)

if TYPE_CHECKING:
    from cpaas_provider.database.database import Database
    from cpaas_provider.triggers._polling.criteria import DeliveryCriteria

FULL_READ_SECONDS = 300.0
"""Seconds between two reads of all awaited campaigns: a receiver's clock may be wrong."""

_JOIN_WINDOW = 0.05
"""Seconds before a read of new waiters, as many join together."""
_MIN_PAUSE_RATIO = 1.0
"""The shortest pause after a query, in multiples of its duration, as counting a million recipients takes a while."""

log = logging.getLogger(__name__)


class DeliveryWaiter(Waiter[dict[str, Any]]):
    """Waits until some campaigns together meet the criteria; its result is how the wait ended."""

    def __init__(self, campaigns: Iterable[str], criteria: DeliveryCriteria, interval: float) -> None:
        super().__init__(interval)
        self.campaigns = tuple(dict.fromkeys(campaigns))
        self.criteria = criteria
        self.was_read = False
        self._counts: dict[str, DeliveryCounts] = {}
        self._total = DeliveryCounts()
        # For the warning, which belongs in the log of this waiter's task. The poller serves many tasks.
        self._context = contextvars.copy_context()

    def update(self, campaign: str, counts: DeliveryCounts) -> None:
        """Replace the counts of a campaign."""
        counts = self.criteria.counted(campaign, counts)
        before, total = self._counts.get(campaign, DeliveryCounts()), self._total
        self._counts[campaign] = counts
        self._total = DeliveryCounts(
            total.delivered + counts.delivered - before.delivered,
            total.undelivered + counts.undelivered - before.undelivered,
            total.in_flight + counts.in_flight - before.in_flight,
            unknown=total.unknown + counts.unknown - before.unknown,
            messages=total.messages + counts.messages - before.messages,
        )

    def count_references(self, recipients: Mapping[str, int]) -> None:
        """Have the criteria count the recipients of campaigns without a count. A reference that is wrong ends the wait.

        :param recipients: by campaign, the number of recipients that the database has recorded as accepted
        """
        try:
            self.criteria = self.criteria.with_references(recipients)
        except ValueError as error:
            self.set_result({"outcome": ERROR, "message": str(error)})

    def update_unresolved(self, sends: Mapping[str, SendCounts]) -> bool:
        """Have the criteria count what probes and people have established since the tasks ended.

        :param sends: by campaign, the numbers that the database has
        :return: whether that is new, so that the counts must be read again
        """
        before, self.criteria = self.criteria, self.criteria.with_resolutions(sends, self._counts)
        return self.criteria != before

    def check(self) -> None:
        """Set the result if the wait is over; not before all campaigns were read."""
        if self.was_read and (
            result := self.timeout_result() if self.is_last_read else self.criteria.evaluate(self._total)
        ):
            self.set_result(result)

    def timeout_result(self) -> dict[str, Any]:
        """Return the result of a wait that ends now, without figures if its campaigns were never read."""
        return self.criteria.evaluate_timeout(self._total) if self.was_read else {"outcome": TIMED_OUT}

    def describe(self) -> str | None:
        """Return the figures, once the campaigns were read."""
        return self.criteria.describe(self._total) if self.was_read else None

    def warn_unknown(self) -> None:
        """Log, in the log of the task that waits, that the database has no record of its campaigns."""
        self._context.run(log.warning, NOT_IN_DATABASE)


@dataclass
class _ReadResult:
    """What a round read.

    :param requested: the counts of the campaigns of new waiters
    :param recipients: the number of recipients of those without a count
    :param unknown: those that the database has no record of
    :param changed: the counts that changed
    :param sends: the numbers of campaigns that had recipients of unknown outcome
    """

    requested: dict[str, DeliveryCounts] = field(default_factory=dict)
    recipients: dict[str, int] = field(default_factory=dict)
    unknown: set[str] = field(default_factory=set)
    changed: dict[str, DeliveryCounts] = field(default_factory=dict)
    sends: dict[str, SendCounts] = field(default_factory=dict)


class DeliveryPoller(Poller[DeliveryWaiter]):
    """Queries once a round what changed in the database, and reads the campaigns of new waiters in one query.

    A round lasts as long as the smallest interval of all waiters.
    """

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self._database: Database | None = None
        self._by_campaign: defaultdict[str, set[DeliveryWaiter]] = defaultdict(set)
        self._intervals: Counter[float] = Counter()
        self._unread: set[DeliveryWaiter] = set()
        self._to_resolve: set[DeliveryWaiter] = set()
        self._since = datetime.now(UTC)
        self._queried_at, self._query_seconds = -math.inf, 0.0
        self._full_read_at = time.monotonic()
        self._failures = 0

    def on_join(self, waiter: DeliveryWaiter) -> None:
        """Have the waiter's campaigns read."""
        self._intervals[waiter.interval] += 1
        self._unread.add(waiter)
        if waiter.criteria.to_resolve:
            self._to_resolve.add(waiter)
        for campaign in waiter.campaigns:
            self._by_campaign[campaign].add(waiter)

    def on_leave(self, waiter: DeliveryWaiter) -> None:
        """Stop reading the waiter's campaigns for this waiter."""
        self._intervals[waiter.interval] -= 1
        self._intervals += Counter()  # removes intervals without a waiter
        self._unread.discard(waiter)
        self._to_resolve.discard(waiter)
        for campaign in waiter.campaigns:
            self._by_campaign[campaign].discard(waiter)
            if not self._by_campaign[campaign]:
                del self._by_campaign[campaign]

    def request_last_read(self, waiter: DeliveryWaiter, within: float) -> bool:
        """Read a waiter's campaigns for the last time, and set its result then."""
        waiter.is_last_read = True
        self._unread.add(waiter)
        self.wake()
        return True

    async def round(self) -> float:
        """Read the campaigns of new waiters; when it is time, query what changed."""
        if self._unread:
            await self.sleep(_JOIN_WINDOW)
        now = time.monotonic()
        if now - self._full_read_at >= FULL_READ_SECONDS:
            self._full_read_at, self._unread = now, set(self.waiters)
        new = set(self._unread)
        since = self._since if now >= self._due() else None
        if not new and since is None:
            return self._due() - now
        try:
            requested = {name for waiter in new for name in waiter.campaigns}
            uncounted = {name for waiter in new for name in waiter.criteria.without_count}
            # Only of waiters whose reports are read, too: a recipient with a new report is in one of the two numbers.
            resolving = self._to_resolve & (new if since is None else self.waiters)
            to_resolve = {send.campaign for waiter in resolving for send in waiter.criteria.to_resolve}
            result = await asyncio.to_thread(
                self._read, requested, uncounted, since, list(self._by_campaign), to_resolve
            )
        except ReportsNotSupportedError as error:
            raise WaitEndedError(str(error)) from error
        except DatabaseError as error:
            return await self._back_off(error)
        self._failures = 0
        self._unread -= new
        await self._update_waiters(new, resolving, result)
        return max(0.0, self._due() - time.monotonic())

    async def close(self) -> None:
        """Close the database."""
        if self._database is not None:
            await asyncio.to_thread(self._database.close)

    def _due(self) -> float:
        return self._queried_at + max(
            min(self._intervals, default=SHORTEST_INTERVAL), _MIN_PAUSE_RATIO * self._query_seconds
        )

    def _read(
        self,
        campaigns: set[str],
        uncounted: set[str],
        since: datetime | None,
        wanted: list[str],
        to_resolve: set[str],
    ) -> _ReadResult:
        """Read the database. Called in a thread, by one thread at a time."""
        if self._database is None:
            self._database = open_report_database()
        result = _ReadResult()
        with self._database.connect(one_moment=True) as connection:
            if campaigns:
                result.requested = read_counts(connection, campaigns)
                result.recipients = expected_recipients(connection, uncounted)
                without_counts = campaigns - result.requested.keys()
                result.unknown = without_counts - known_campaigns(connection, without_counts)
            if since is not None:
                started, now = time.monotonic(), datetime.now(UTC)
                result.changed = counts_changed_since(connection, since, wanted)
                self._since, self._queried_at = now, time.monotonic()
                self._query_seconds = self._queried_at - started
            result.sends = read_sends(connection, to_resolve)
        return result

    async def _update_waiters(
        self, new: set[DeliveryWaiter], resolving: set[DeliveryWaiter], result: _ReadResult
    ) -> None:
        for number, waiter in enumerate(new & self.waiters, 1):
            with _own_failures(waiter):
                waiter.count_references(result.recipients)
                for campaign in waiter.campaigns:
                    waiter.update(campaign, result.requested.get(campaign, DeliveryCounts()))
                if not waiter.was_read and result.unknown.issuperset(waiter.campaigns):
                    waiter.warn_unknown()
                waiter.update_unresolved(result.sends)
                waiter.was_read = True
                waiter.check()
            await yield_to_loop(number)
        # A wait is over by all that was read, never by the new numbers of one campaign beside the old ones of another.
        changed = set(resolving)
        for number, (campaign, counts) in enumerate(result.changed.items(), 1):
            for waiter in tuple(self._by_campaign.get(campaign, ())):
                with _own_failures(waiter):
                    waiter.update(campaign, counts)
                changed.add(waiter)
            await yield_to_loop(number)
        for number, waiter in enumerate(changed & self.waiters, 1):
            with _own_failures(waiter):
                if waiter.update_unresolved(result.sends):
                    self._unread.add(waiter)
                waiter.check()
            await yield_to_loop(number)

    async def _back_off(self, error: DatabaseError) -> float:
        """Pause before the database is read again, longer each time; log the first failure in a row."""
        self._failures += 1
        if self._failures == 1:
            log.warning("%s Nothing was changed. Delivery sensors keep waiting and read the database again.", error)
        await self.sleep(backoff(self._failures))
        return 0.0


@contextlib.contextmanager
def _own_failures(waiter: DeliveryWaiter) -> Iterator[None]:
    """End a waiter whose arguments cannot be used. The others go on."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - raised in the trigger that waits
        waiter.set_exception(error)
