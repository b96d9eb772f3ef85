"""The poller of passcodes on one connection: one client, one rate limit, one GET for each passcode a round."""

from __future__ import annotations

import asyncio
import functools
import math
import time
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import timezone

from cpaas_provider.api.errors import CpaasError
from cpaas_provider.triggers._polling.backoff import FailureBackoff, FailureStreak, OverloadReporter
from cpaas_provider.triggers._polling.client import ReloadingClient
from cpaas_provider.triggers._polling.criteria import ReadFailure, classify_failure
from cpaas_provider.triggers._polling.poller import SHORTEST_INTERVAL, Poller, Waiter, backoff
from cpaas_provider.triggers._polling.read_queue import ReadQueue

if TYPE_CHECKING:
    from cpaas_provider.api.client import AsyncCpaasClient
    from cpaas_provider.api.models.otp import OtpToken
    from cpaas_provider.triggers._polling.criteria import OtpCriteria

_MAX_CATCH_UP = 0.1
"""Seconds of lateness that are made up for: timers fire late, and the client enforces the rate."""


class OtpWaiter(Waiter[dict[str, Any]]):
    """Waits for one passcode; its result is that of ``OtpCriteria.evaluate``, or ``None`` after the last read.

    :param criteria: when the passcode is final
    :param deadline: absolute end of the wait
    """

    def __init__(self, otp_id: str, criteria: OtpCriteria, interval: float, deadline: datetime) -> None:
        super().__init__(interval)
        self.otp_id = otp_id
        self.criteria = criteria
        self.deadline = deadline
        self.expiry = deadline.timestamp()
        if criteria.expires_in is not None:
            self.set_expiry(timezone.utcnow() + timedelta(minutes=criteria.expires_in))
        self.read: asyncio.Task[float] | None = None
        self.failures = 0
        self.rejections = FailureStreak()
        self._last_record: OtpToken | None = None

    def describe(self) -> str | None:
        """Return the status of the passcode and the end of the wait, once the passcode was read."""
        return None if self._last_record is None else self.criteria.describe(self._last_record, self.deadline)

    def on_pending(self, record: OtpToken) -> None:
        """Use the record of a passcode that is still pending."""
        self._last_record = record
        self.set_expiry(self.criteria.expiry(record))

    def set_expiry(self, moment: datetime | None) -> None:
        """Set when the passcode expires, which orders the reads of a round."""
        if moment is not None:
            self.expiry = min(self.deadline, moment).timestamp()

    def on_failure(self) -> float:
        """Count a read that failed temporarily; return the seconds until the next: few at first, then more."""
        self.failures += 1
        return min(self.interval, backoff(self.failures) + SHORTEST_INTERVAL)


class OtpPoller(Poller[OtpWaiter]):
    """Reads passcodes within ``requests_per_second`` and ``max_concurrency`` of their connection."""

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self._reloading_client = ReloadingClient(key)
        self._client: AsyncCpaasClient | None = None
        self._queue: ReadQueue[OtpWaiter] = ReadQueue()
        self._reads: set[asyncio.Task[float]] = set()
        self._next_start = -math.inf
        self._backoff = FailureBackoff(key)
        self._overload = OverloadReporter(key)

    def on_join(self, waiter: OtpWaiter) -> None:
        """Have the passcode read in the next round."""
        self._overload.on_join(waiter.interval)
        self._queue.push(waiter, time.monotonic(), waiter.expiry)

    def on_leave(self, waiter: OtpWaiter) -> None:
        """Stop reading the passcode, and cancel a read that is in flight."""
        self._overload.on_leave(waiter.interval)
        self._queue.discard(waiter)
        if waiter.read is not None:
            waiter.read.cancel()

    def request_last_read(self, waiter: OtpWaiter, within: float) -> bool:
        """Have a passcode read for the last time, before all others; a read in flight counts as the last.

        :param within: seconds it may take
        :return: whether it can be read by then: the service may have asked for a pause
        """
        if self._backoff.held_until > time.monotonic() + within:
            return False
        waiter.is_last_read = True
        if waiter.read is None:
            self._queue.push_first(waiter, waiter.expiry)
            self.wake()
        return True

    async def round(self) -> float:
        """Begin all reads that may begin now; a read that ends or a waiter that joins begins the next round."""
        client = await self._get_client()
        rate, concurrency = client.settings.requests_per_second, client.settings.max_concurrency
        self._overload.report(rate, concurrency)
        while len(self._reads) < concurrency:
            now = time.monotonic()
            opens = max(self._backoff.held_until, self._next_start, self._queue.next_due())
            if opens > now:
                return opens - now
            waiter = self._queue.pop(now)
            if waiter is not None and not waiter.done:
                self._next_start = max(self._next_start, now - _MAX_CATCH_UP) + 1.0 / rate
                self._start_read(waiter, client)
        return math.inf

    async def close(self) -> None:
        """Cancel the reads in flight and close the client."""
        reads = tuple(self._reads)
        for read in reads:
            read.cancel()
        await asyncio.gather(*reads, return_exceptions=True)
        if self._client is not None:
            await self._client.aclose()

    async def _get_client(self) -> AsyncCpaasClient:
        client = await self._reloading_client.get()
        if client is not self._client:
            await self.close()
            self._client = client
            self._backoff.end_pause()
        return client

    def _start_read(self, waiter: OtpWaiter, client: AsyncCpaasClient) -> None:
        waiter.read = read = asyncio.create_task(self._read(waiter, client))
        self._reads.add(read)
        read.add_done_callback(functools.partial(self._on_read_done, waiter))

    async def _read(self, waiter: OtpWaiter, client: AsyncCpaasClient) -> float:
        """Read a passcode once and return the seconds until it may be read again."""
        started = time.monotonic()
        try:
            record = await client.get_otp(waiter.otp_id)
        except CpaasError as error:
            return self._on_error(waiter, client, error, started)
        except Exception as error:  # noqa: BLE001 - raised in the trigger that waits
            waiter.set_exception(error)
            return 0.0
        self._backoff.on_success()
        self._reloading_client.on_success()
        self._overload.on_read(time.monotonic() - started)
        try:
            return self._evaluate(waiter, record)
        except Exception as error:  # noqa: BLE001 - as above
            waiter.set_exception(error)
            return 0.0

    def _on_error(self, waiter: OtpWaiter, client: AsyncCpaasClient, error: CpaasError, started: float) -> float:
        """End a wait, or return the seconds until its passcode may be read again; meanwhile others are read."""
        failure = classify_failure(error)
        if failure is ReadFailure.FINAL:
            waiter.set_exception(error)
            return 0.0
        if failure is ReadFailure.INCONCLUSIVE:
            self._reloading_client.on_inconclusive(client, error)
            if waiter.rejections.add(time.monotonic()):
                waiter.set_exception(error)
        self._backoff.on_failure(error, started)
        if waiter.is_last_read:
            waiter.set_result(None)
        return waiter.on_failure()

    def _evaluate(self, waiter: OtpWaiter, record: OtpToken) -> float:
        waiter.failures = 0
        waiter.rejections.reset()
        result = waiter.criteria.evaluate(record, timezone.utcnow())
        if result is not None or waiter.is_last_read:
            waiter.set_result(result)
        else:
            waiter.on_pending(record)
        return waiter.interval

    def _on_read_done(self, waiter: OtpWaiter, read: asyncio.Task[float]) -> None:
        """Free the slot of a read, and have the passcode read again if it is still pending."""
        self._reads.discard(read)
        waiter.read = None
        self.wake()
        if waiter not in self.waiters or waiter.done:
            return
        if waiter.is_last_read:
            self._queue.push_first(waiter, waiter.expiry)
        else:
            # A read that was cancelled because the client was replaced is repeated at once.
            pause = 0.0 if read.cancelled() else read.result()
            self._queue.push(waiter, time.monotonic() + pause, waiter.expiry)
