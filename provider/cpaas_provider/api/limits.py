"""The client-side rate limit."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class Pacer:
    """Hands out evenly spaced moments at which requests may start.

    A caller reserves the next moment and waits for it by its own means, so threads and coroutines share the rule.
    """

    def __init__(self, per_second: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._interval = 1.0 / per_second
        self._clock = clock
        self._next = clock()
        self._lock = threading.Lock()

    def reserve(self) -> float:
        """Take the next free moment and return the seconds until then."""
        with self._lock:
            now = self._clock()
            start = max(now, self._next)
            self._next = start + self._interval
            return start - now

    def hold(self, seconds: float) -> None:
        """Let nobody start within ``seconds`` who has not reserved yet: the service asked all of us to wait."""
        with self._lock:
            self._next = max(self._next, self._clock() + seconds)
