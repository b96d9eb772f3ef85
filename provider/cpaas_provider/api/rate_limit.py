"""The client-side rate limit, and how it yields to the service's own."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Awaitable, Callable, Iterator

_SLOWEST = 1 / 8
_RECOVERY = 1 / 10
EARLY = 0.001
"""Timers may ring this much before their time."""


class Pace:
    """How fast requests may leave, as the service takes them, and for how long none may.

    A service that asks for fewer requests halves the pace, down to an eighth of ``per_second``; it recovers by a tenth
    of ``per_second`` for every second's worth of requests that were answered otherwise. Answers to requests that had
    left before the pace was last lowered count for nothing, so that one burst slows the client once.
    """

    def __init__(self, per_second: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._fastest = self._pace = float(per_second)
        self._clock = clock
        self._held_until = self._lowered_at = -math.inf
        self._lock = threading.Lock()

    @property
    def per_second(self) -> float:
        """Requests that may start per second at present."""
        return self._pace

    def now(self) -> float:
        """Return the time by the rate limiter's clock."""
        return self._clock()

    def block_for(self, seconds: float) -> None:
        """Let no request start within ``seconds``: the service asked for a wait."""
        with self._lock:
            self._held_until = max(self._held_until, self._clock() + seconds)

    def on_response(self, left: float, *, limited: bool) -> None:
        """Take note of an answer.

        :param left: when its request left, by ``now``
        :param limited: whether it asked for fewer requests
        """
        with self._lock:
            if left <= self._lowered_at:
                return
            if limited:
                self._pace = max(self._fastest * _SLOWEST, self._pace / 2)
                self._lowered_at = self._clock()
            else:
                self._pace = min(self._fastest, self._pace + self._fastest * _RECOVERY / self._pace)

    # What a client and a dispatcher ask of any rate limiter.

    def wait(self, sleep: Callable[[float], None]) -> None:
        """Wait until a request may start, and take that moment.

        :param sleep: lets seconds pass, or raises where the client is stopped
        """
        raise NotImplementedError

    async def wait_async(self, sleep: Callable[[float], Awaitable[None]]) -> None:
        """Do what ``wait`` does, for code on an event loop."""
        raise NotImplementedError

    def delay(self, ahead: int = 0) -> float:
        """Return the seconds until a request could start, and take no moment.

        :param ahead: how many others take theirs before it
        """
        raise NotImplementedError

    async def prepare(self, ahead: int = 0) -> float:
        """Have a moment at hand for a request, where that takes anything. Return ``delay``."""
        return self.delay(ahead)

    def share_hold(self) -> None:
        """Let other processes know that the service asked for a pause. Does nothing where none is to know."""

    async def share_hold_async(self) -> None:
        """Do what ``share_hold`` does, for code on an event loop."""

    def close(self) -> None:
        """Let go of what it holds open."""

    async def aclose(self) -> None:
        """Do what ``close`` does, for code on an event loop."""


class RateLimiter(Pace):
    """Hands out evenly spaced moments at which requests of one client may start.

    A caller reserves the next moment and waits for it by its own means, so threads and coroutines share the rule.
    """

    def __init__(self, per_second: float, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(per_second, clock)
        self._next = clock()

    def wait(self, sleep: Callable[[float], None]) -> None:
        """Wait until a request may start, and take that moment."""
        for seconds in self.delays():
            sleep(seconds)

    async def wait_async(self, sleep: Callable[[float], Awaitable[None]]) -> None:
        """Do what ``wait`` does, for code on an event loop."""
        for seconds in self.delays():
            await sleep(seconds)

    def delays(self) -> Iterator[float]:
        """Yield the seconds to wait before a request may start: once, and again where a hold came over that wait."""
        yield self.reserve()
        while self._clock() < self._held_until - EARLY:
            yield self.reserve()

    def reserve(self) -> float:
        """Take the next free moment and return the seconds until then."""
        with self._lock:
            now = self._clock()
            start = max(now, self._next)
            self._next = start + 1.0 / self._pace
            return start - now

    def delay(self, ahead: int = 0) -> float:
        """Return the seconds until a request could start, and take no moment.

        :param ahead: how many others take theirs before it
        """
        with self._lock:
            now = self._clock()
            return max(now, self._next) + ahead / self._pace - now

    def block_for(self, seconds: float) -> None:
        """Let no request start within ``seconds``: the service asked for a wait."""
        super().block_for(seconds)
        with self._lock:
            self._next = max(self._next, self._held_until)
