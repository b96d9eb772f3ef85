"""When the requests of a client may leave: the rate limit, which adapts to the service, and a guard that may refuse."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cpaas_provider.api.endpoints import Endpoint
    from cpaas_provider.api.http.wire import OutgoingRequest

_SLOWEST = 1 / 8
_RECOVERY = 1 / 10
TIMER_TOLERANCE = 0.001
"""In seconds. A timer may fire this much too early."""


class Pace:
    """The base of all rate limiters: the rate at which requests may start, and pauses that the service asks for.

    When the service asks for fewer requests, the rate is halved, down to an eighth of ``per_second``. It recovers by a
    tenth of ``per_second`` for every second's worth of other responses. Responses to requests that left before the
    last reduction are ignored, so that one burst slows the client once.
    """

    def __init__(self, per_second: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._fastest = self._pace = float(per_second)
        self.now = clock
        self._held_until = self._lowered_at = -math.inf
        self._lock = threading.Lock()

    @property
    def per_second(self) -> float:
        """The number of requests that may start per second now."""
        return self._pace

    def block_for(self, seconds: float) -> None:
        """Let no request start within ``seconds``: the service asked for a wait."""
        with self._lock:
            self._held_until = max(self._held_until, self.now() + seconds)

    def on_response(self, left: float, *, limited: bool) -> None:
        """Adapt the rate to a response.

        :param left: when the request left, by ``now``
        :param limited: whether the response asked for fewer requests
        """
        with self._lock:
            if left <= self._lowered_at:
                return
            if limited:
                self._pace = max(self._fastest * _SLOWEST, self._pace / 2)
                self._lowered_at = self.now()
            else:
                self._pace = min(self._fastest, self._pace + self._fastest * _RECOVERY / self._pace)

    # Subclasses implement the following.

    def wait(self, sleep: Callable[[float], None]) -> None:
        """Wait until a request may start, and reserve that moment.

        :param sleep: waits for the seconds it is given, or raises if the client is stopped
        """
        raise NotImplementedError

    async def wait_async(self, sleep: Callable[[float], Awaitable[None]]) -> None:
        """Do what ``wait`` does, for code on an event loop."""
        raise NotImplementedError

    def delay(self, ahead: int = 0) -> float:
        """Return the seconds until a request could start. Reserves nothing.

        :param ahead: the number of requests that start before it
        """
        raise NotImplementedError

    async def prepare(self, ahead: int = 0) -> float:
        """Reserve a moment for a request in advance if that needs input or output. Return ``delay``."""
        return self.delay(ahead)

    def share_hold(self) -> None:
        """Pass a pause that the service asked for to other processes, if they share the rate limit."""

    async def share_hold_async(self) -> None:
        """Do what ``share_hold`` does, for code on an event loop."""

    def close(self) -> None:
        """Release the rate limiter's resources."""

    async def aclose(self) -> None:
        """Do what ``close`` does, for code on an event loop."""


class RateLimiter(Pace):
    """Gives the requests of one client evenly spaced moments to start.

    A caller reserves the next moment and then waits for it itself, so threads and coroutines can share the limiter.
    """

    def __init__(self, per_second: float, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(per_second, clock)
        self._next = clock()

    def wait(self, sleep: Callable[[float], None]) -> None:
        """Wait until a request may start, and reserve that moment."""
        for seconds in self.delays():
            sleep(seconds)

    async def wait_async(self, sleep: Callable[[float], Awaitable[None]]) -> None:
        """Do what ``wait`` does, for code on an event loop."""
        for seconds in self.delays():
            await sleep(seconds)

    def delays(self) -> Iterator[float]:
        """Yield the seconds to wait before a request may start. Yields again if the service asked for a pause since."""
        yield self.reserve()
        while self.now() < self._held_until - TIMER_TOLERANCE:
            yield self.reserve()

    def reserve(self) -> float:
        """Reserve the next free moment, and return the seconds until then."""
        with self._lock:
            now = self.now()
            start = max(now, self._next)
            self._next = start + 1.0 / self._pace
            return start - now

    def delay(self, ahead: int = 0) -> float:
        """Return the seconds until a request could start. Reserves nothing.

        :param ahead: the number of requests that start before it
        """
        with self._lock:
            now = self.now()
            return max(now, self._next) + ahead / self._pace - now

    def block_for(self, seconds: float) -> None:
        """Let no request start within ``seconds``: the service asked for a wait."""
        super().block_for(seconds)
        with self._lock:
            self._next = max(self._next, self._held_until)


PAUSE = 0.25
"""Seconds until a guard is asked again whether a request may be reserved for."""


class RequestGuard:
    """The base of what is asked before each request that changes something or costs money. Reads are never asked for.

    Every attempt is asked for, also the retries that the client makes by itself.
    """

    def admit(self) -> None:
        """Return if the request may leave; this may block.

        :raises CpaasNotSentError: when it may not
        """
        raise NotImplementedError

    async def admit_async(self) -> None:
        """Do what ``admit`` does, for code on an event loop."""
        raise NotImplementedError

    def counts(self, endpoint: Endpoint[Any]) -> bool:
        """Return whether a request to an endpoint must be reserved for."""
        return False

    def needs_price(self, endpoint: Endpoint[Any]) -> bool:
        """Return whether no price of a recipient is known, so that a request to several would be refused."""
        return False

    def reserve(self, endpoint: Endpoint[Any], request: OutgoingRequest) -> Any:
        """Reserve for the attempts of a request up to one that is charged. Return ``None`` to be asked after ``PAUSE``.

        :raises CpaasNotSentError: when the request must not leave
        """
        raise NotImplementedError

    def record_result(self, reserved: Any, result: Any = None, error: BaseException | None = None) -> None:
        """Take how a request ended that was reserved for.

        :param result: what the request returned
        :param error: what ended it otherwise
        """

    def close(self) -> None:
        """Release the guard's resources."""
