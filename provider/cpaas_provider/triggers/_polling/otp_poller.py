"""Reading the passcodes of all who wait on a connection: one client, one rate, one GET each a round."""

from __future__ import annotations

import asyncio
import functools
import math
import time
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import timezone

from cpaas_provider.api.errors import CpaasAuthenticationError, CpaasError
from cpaas_provider.triggers._polling.backoff import RoundLength, Trouble
from cpaas_provider.triggers._polling.client import KeptClient
from cpaas_provider.triggers._polling.poller import Poller, Waiter, backoff
from cpaas_provider.triggers._polling.read_queue import Agenda

if TYPE_CHECKING:
    from cpaas_provider.api.client import AsyncCpaasClient
    from cpaas_provider.api.models.otp import OtpToken
    from cpaas_provider.triggers.otp import OtpWatch

SHORTEST_INTERVAL = 1.0
_CATCH_UP = 0.1
"""Seconds of lateness that are made good: timers ring late, and the client has the last word on the rate."""


class OtpWaiter(Waiter[dict[str, Any]]):
    """One passcode that is waited for; answered with what ``OtpWatch`` says of it, or ``None`` after its last read.

    :param watch: what is judged by
    :param interval: seconds between two reads, at least 1
    :param deadline: absolute end of the wait
    """

    def __init__(self, otp_id: str, watch: OtpWatch, interval: float, deadline: datetime) -> None:
        super().__init__()
        self.otp_id = otp_id
        self.watch = watch
        self.interval = max(interval, SHORTEST_INTERVAL)
        self.deadline = deadline
        self.expiry = deadline.timestamp()
        if watch.expires_in is not None:
            self.expires(timezone.utcnow() + timedelta(minutes=watch.expires_in))
        self.read: asyncio.Task[float] | None = None
        self.is_last_read = False
        self.failures = 0

    def expires(self, moment: datetime) -> None:
        """Take note of when there will be nothing left to wait for."""
        self.expiry = min(self.deadline, moment).timestamp()

    def failed(self) -> float:
        """Take note of a read that failed in passing; return the seconds until the next: few at first, then more."""
        self.failures += 1
        return min(self.interval, backoff(self.failures) + SHORTEST_INTERVAL)


class OtpPoller(Poller[OtpWaiter]):
    """Reads passcodes within ``requests_per_second`` and ``max_concurrency`` of their connection."""

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self._kept = KeptClient(key)
        self._client: AsyncCpaasClient | None = None
        self._agenda: Agenda[OtpWaiter] = Agenda()
        self._reads: set[asyncio.Task[float]] = set()
        self._next_start = -math.inf
        self._trouble = Trouble(key)
        self._length = RoundLength(key)

    def came(self, waiter: OtpWaiter) -> None:
        """Have the passcode read in the next round."""
        self._length.came(waiter.interval)
        self._agenda.put(waiter, time.monotonic(), waiter.expiry)

    def left(self, waiter: OtpWaiter) -> None:
        """Read the passcode no more, and end a read that is under way."""
        self._length.left(waiter.interval)
        self._agenda.drop(waiter)
        if waiter.read is not None:
            waiter.read.cancel()

    def hurry(self, waiter: OtpWaiter, within: float) -> bool:
        """Have a passcode read for the last time, before all others; a read under way counts as that.

        :param within: seconds it may take
        :return: whether it can be read by then: the service may have asked to be left alone
        """
        if self._trouble.held_until > time.monotonic() + within:
            return False
        waiter.is_last_read = True
        if waiter.read is None:
            self._agenda.hurry(waiter, waiter.expiry)
            self.wake()
        return True

    async def round(self) -> float:
        """Begin all reads that may begin now; those that end, and those who come, begin the next round."""
        client = await self._ready()
        rate, at_once = client.settings.requests_per_second, client.settings.max_concurrency
        self._length.tell(rate, at_once)
        while len(self._reads) < at_once:
            now = time.monotonic()
            opens = max(self._trouble.held_until, self._next_start, self._agenda.next_due())
            if opens > now:
                return opens - now
            waiter = self._agenda.take(now)
            if waiter is not None and not waiter.answered:
                self._next_start = max(self._next_start, now - _CATCH_UP) + 1.0 / rate
                self._begin(waiter, client)
        return math.inf

    async def close(self) -> None:
        """End the reads that are under way and close the client."""
        await self._end_reads()
        if self._client is not None:
            await self._client.aclose()

    async def _ready(self) -> AsyncCpaasClient:
        client = await self._kept.ready()
        if client is not self._client:
            await self.close()
            self._client = client
        return client

    def _begin(self, waiter: OtpWaiter, client: AsyncCpaasClient) -> None:
        waiter.read = read = asyncio.create_task(self._read(waiter, client))
        self._reads.add(read)
        read.add_done_callback(functools.partial(self._after, waiter))

    async def _end_reads(self) -> None:
        reads = tuple(self._reads)
        for read in reads:
            read.cancel()
        await asyncio.gather(*reads, return_exceptions=True)

    async def _read(self, waiter: OtpWaiter, client: AsyncCpaasClient) -> float:
        """Read a passcode once and return the seconds until it may be read again."""
        began = time.monotonic()
        try:
            record = await client.get_otp(waiter.otp_id)
            self._trouble.over()
            self._length.took(time.monotonic() - began)
            return self._judge(waiter, record)
        except CpaasAuthenticationError as error:
            self._kept.refused(client, error)
            return 0.0
        except CpaasError as error:
            if not error.retryable:
                waiter.end(error)
                return 0.0
            self._trouble.met(error, began)
            if waiter.is_last_read:
                waiter.tell(None)
            return waiter.failed()
        except Exception as error:  # noqa: BLE001 - told to the one whom it concerns
            waiter.end(error)
            return 0.0

    def _judge(self, waiter: OtpWaiter, record: OtpToken) -> float:
        waiter.failures = 0
        watch = waiter.watch
        result = watch.judge(record, timezone.utcnow())
        if result is not None or waiter.is_last_read:
            waiter.tell(result)
        elif watch.expires_in is not None:
            waiter.expires(record.expires_at(watch.expires_in))
        return waiter.interval

    def _after(self, waiter: OtpWaiter, read: asyncio.Task[float]) -> None:
        """Make room for another read, and have the passcode read again where it is still open."""
        self._reads.discard(read)
        waiter.read = None
        self.wake()
        if waiter not in self.waiters or waiter.answered:
            return
        if waiter.is_last_read:
            self._agenda.hurry(waiter, waiter.expiry)
        else:
            # A read that was ended, because the client was replaced, is made up for at once.
            pause = 0.0 if read.cancelled() else read.result()
            self._agenda.put(waiter, time.monotonic() + pause, waiter.expiry)
