"""One rate limit for several processes. Each process reserves moments at which its requests may start."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import random
import threading
import time
import weakref
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from functools import partial

from cpaas_provider.api.backoff import backoff
from cpaas_provider.api.errors import CpaasNotSentError
from cpaas_provider.api.rate_limit import TIMER_TOLERANCE, Pace
from cpaas_provider.hooks._rate_limit.reservations import ReservedMoments, Wanted
from cpaas_provider.hooks._rate_limit.stored import StoredReservations

log = logging.getLogger(__name__)

LATEST = 0.25
"""A request may start this late after its moment: in seconds, or as a share of the time between two moments if that is
longer. A later moment expires, so that a process that was delayed does not send a burst."""

MOST_SECONDS = 0.5
"""The longest time, in seconds, that is reserved at once. The moments of a killed process are lost."""

TRIES = 3
"""The attempts to make a reservation when the database fails."""

_FIRST_PAUSE = 0.5
_SHORTEST_WAIT = 0.1
_MAX_LATE = 5
"""The most expired moments of one request. After that it starts although its moment has expired."""


class SharedRateLimiter(Pace):
    """The rate limiter of one client that shares its limit with other processes.

    A request uses a moment that is already reserved. If there is none, the client reserves new ones: one for a single
    request, and more at once the longer requests follow each other without a pause.

    :param per_second: the limit of all processes together
    :param reservations: where the moments are reserved
    :param name: the owner of the limit, for the log, such as a connection
    """

    def __init__(
        self,
        per_second: float,
        reservations: StoredReservations,
        name: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(per_second, clock)
        self._reservations = reservations
        self._name = name
        self._free: deque[float] = deque()
        self._last = -math.inf
        """The last moment that was used or dropped."""
        self._is_new = True
        self._has_unshared_hold = False
        self._failures = 0
        self._try_at = -math.inf
        self._begin()
        _in_use.add(self)

    def _begin(self) -> None:
        """Start without moments and without waiting requests. A forked process calls it again."""
        self._lock = threading.Lock()
        self._free.clear()
        self._granted = self._used = 0
        """The number of moments in the last reservation, and how many of them were used."""
        self._reserving = threading.Lock()
        # Requests wait in a queue, so that no request takes a moment long before it starts.
        self._turn = threading.Lock()
        self._async_turn = asyncio.Lock()
        self._waiting = 0
        self._has_moment = False

    def wait(self, sleep: Callable[[float], None]) -> None:
        """Wait until a request may start, and use that moment.

        :raises CpaasNotSentError: when no moment can be reserved
        """
        with self._counted_as_waiting(), self._turn:
            for step in self._steps():
                step() if callable(step) else sleep(step)

    async def wait_async(self, sleep: Callable[[float], Awaitable[None]]) -> None:
        """Do what ``wait`` does, for code on an event loop."""
        with self._counted_as_waiting():
            async with self._async_turn:
                for step in self._steps():
                    await (asyncio.to_thread(step) if callable(step) else sleep(step))

    def delay(self, ahead: int = 0) -> float:
        """Return the seconds until a request could start at the earliest. Reserves nothing."""
        with self._lock:
            now = self.now()
            self._drop_late(now)
            if ahead < len(self._free):
                return max(0.0, self._free[ahead] - now)
            known = self._free[-1] if self._free else now
            return max(0.0, known - now) + (ahead - len(self._free)) / self._pace

    async def prepare(self, ahead: int = 0) -> float:
        """Reserve a moment for a request after ``ahead`` others, and return the seconds until then.

        :raises CpaasNotSentError: when no moment can be reserved
        """
        # Waiting requests come first; the one that has its moment already needs no other.
        ahead += max(0, self._waiting - self._has_moment)
        while (step := self._next_step(ahead + 1)) is not None:
            if not callable(step):
                return step
            await asyncio.to_thread(step)
        return self.delay(ahead)

    def block_for(self, seconds: float) -> None:
        """Let no request of this client start within ``seconds``. ``share_hold`` passes this to other processes."""
        super().block_for(seconds)
        with self._lock:
            self._has_unshared_hold = True
            while self._free and self._free[0] < self._held_until:
                self._give_up_first()

    def share_hold(self) -> None:
        """Let other processes know that the service asked for a pause."""
        with self._lock:
            seconds = self._held_until - self.now()
            is_due, self._has_unshared_hold = self._has_unshared_hold, False
        if is_due and seconds > TIMER_TOLERANCE:
            try:
                self._reservations.hold(seconds)
            except CpaasNotSentError as error:
                # This client waits anyway. If the database still fails then, its next reservation raises the error.
                log.warning("Other tasks do not know that the service asked for a pause. %s", error)

    async def share_hold_async(self) -> None:
        """Do what ``share_hold`` does, for code on an event loop."""
        if self._has_unshared_hold:
            await asyncio.to_thread(self.share_hold)

    def close(self) -> None:
        """Close the database."""
        self._reservations.close()

    async def aclose(self) -> None:
        """Do what ``close`` does, for code on an event loop."""
        await asyncio.to_thread(self.close)

    @contextlib.contextmanager
    def _counted_as_waiting(self) -> Iterator[None]:
        """Count a request as waiting until it starts."""
        with self._lock:
            self._waiting += 1
        try:
            yield
        finally:
            with self._lock:
                self._waiting -= 1
                self._has_moment = False

    def _steps(self) -> Iterator[float | Callable[[], None]]:
        """Yield the steps until a request may start: seconds to wait, or a blocking function to call."""
        late = 0
        while True:
            self._has_moment = False
            while (step := self._next_step(1)) is not None:
                yield step
            moment = self._take()
            if moment is None:
                continue
            self._has_moment = True
            yield max(0.0, moment - self.now())
            now = self.now()
            if now < self._held_until - TIMER_TOLERANCE:
                continue
            if now <= moment + self._latest or late == _MAX_LATE:
                return
            late += 1

    def _next_step(self, count: int) -> float | Callable[[], None] | None:
        """Return the next step until ``count`` moments are reserved, ``None`` if they are reserved already."""
        with self._lock:
            now = self.now()
            held = self._held_until - now
            if held > TIMER_TOLERANCE:
                return self.share_hold if self._has_unshared_hold else held
            self._drop_late(now)
            if len(self._free) >= count:
                return None
            if self._try_at > now:
                return self._try_at - now
        return partial(self._reserve, count)

    def _take(self) -> float | None:
        with self._lock:
            self._drop_late(self.now())
            if not self._free:
                return None
            self._used += 1
            return self._give_up_first()

    def _reserve(self, count: int) -> None:
        """Reserve moments until ``count`` are available.

        :raises CpaasNotSentError: when the reservation failed several times in a row
        """
        with self._reserving:
            with self._lock:
                now = self.now()
                self._drop_late(now)
                if len(self._free) >= count or self._try_at > now:
                    return
                most = self._wanted(now, count - len(self._free))
                wanted = Wanted(most, self._fastest, self._fastest / self._pace, self._is_new)
            try:
                granted = self._reservations.reserve(wanted)
            except CpaasNotSentError:
                self._failures = (self._failures + 1) % TRIES
                if not self._failures:
                    raise
                self._try_at = self.now() + backoff(self._failures, _FIRST_PAUSE)
                return
            self._is_new = False
            self._failures = 0
            with self._lock:
                self._on_granted(granted)

    def _wanted(self, now: float, missing: int) -> int:
        """Return how many moments to reserve: twice as many as before if requests follow without a pause."""
        follows_at_once = bool(self._free) or now <= self._last + max(1.0 / self._pace, _SHORTEST_WAIT)
        wanted = max(missing, self._granted * 2 if follows_at_once else self._used)
        return max(1, min(wanted, int(self._pace * MOST_SECONDS)))

    def _on_granted(self, granted: ReservedMoments) -> None:
        now = self.now()
        if granted.requests_per_second != self._fastest:
            log.info(
                "requests_per_second of %s is %g now, and was %g: a task that started later read it from the "
                "connection.",
                self._name, granted.requests_per_second, self._fastest,
            )  # fmt: skip
            self._pace *= granted.requests_per_second / self._fastest
            self._fastest = granted.requests_per_second
        if not granted.count:
            # At a random time, so that not all processes try again at once.
            wait = max(_SHORTEST_WAIT, granted.first - now)
            self._try_at = now + random.uniform(wait, wait + MOST_SECONDS / 2)  # noqa: S311 - no secret
            return
        self._granted, self._used = granted.count, 0
        self._free.extend(granted.first + number * granted.interval for number in range(granted.count))
        newest = self._free[-1]
        self._drop_late(now)
        if not self._free:
            # The reservation took so long that all moments have expired. One is kept: otherwise no request could start
            # while the database is slow.
            self._free.append(max(now, newest))

    @property
    def _latest(self) -> float:
        return max(LATEST, LATEST / self._pace)

    def _drop_late(self, now: float) -> None:
        while self._free and self._free[0] < now - self._latest:
            self._give_up_first()

    def _give_up_first(self) -> float:
        self._last = self._free.popleft()
        return self._last


_in_use: weakref.WeakSet[SharedRateLimiter] = weakref.WeakSet()


def _reset_after_fork() -> None:
    """Reset all rate limiters of a forked process: the moments, waiting requests and locks belong to its parent."""
    for limiter in list(_in_use):
        limiter._begin()


os.register_at_fork(after_in_child=_reset_after_fork)
