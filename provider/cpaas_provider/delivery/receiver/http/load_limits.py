"""How many requests and bytes an endpoint holds at once, per connection and in total. Slow senders are displaced."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from cpaas_provider.delivery.receiver.http.responses import OVERLOADED, RefusalError

TOTAL_FACTOR = 2
"""The total limit is this many times the limit of one connection, so that one connection cannot use all of it."""


class WaitTimer:
    """Counts waiting time in small steps, for all waiting requests at once.

    A step counts once, however late the event loop is. So time that an overloaded server needs for itself does not
    count against a sender whose body has long arrived. One timer serves all requests, because most of them end before
    a step does.

    :param seconds: returns the length of a step
    """

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._seconds = seconds
        self._waiting: dict[Callable[[float], None], None] = {}
        self._timer: asyncio.TimerHandle | None = None

    def add(self, count: Callable[[float], None]) -> None:
        """Call ``count`` with the length of every step from now on."""
        self._waiting[count] = None
        if self._timer is None:
            self._begin_step()

    def discard(self, count: Callable[[float], None]) -> None:
        """Stop calling ``count``."""
        self._waiting.pop(count, None)

    def _begin_step(self) -> None:
        seconds = self._seconds()
        self._timer = asyncio.get_running_loop().call_later(seconds, self._end_step, seconds)

    def _end_step(self, seconds: float) -> None:
        self._timer = None
        for count in list(self._waiting):
            count(seconds)
        if self._waiting:
            self._begin_step()


@dataclass(eq=False, slots=True)
class Slot:
    """The place of one request within the limits.

    :param is_slow: returns whether the request may be displaced
    :param send_away: ends the wait for its body
    :param size: the bytes of its body so far
    :param is_held: whether it is within the limits now
    """

    conn_id: str
    is_slow: Callable[[], bool]
    send_away: Callable[[], None]
    size: int = 0
    is_held: bool = False


class LoadLimiter:
    """Limits the requests in progress and the bytes of their bodies.

    :param max_requests: requests of one connection
    :param max_bytes: bytes of the bodies of one connection
    """

    def __init__(self, max_requests: int, max_bytes: int) -> None:
        self._max_requests = max_requests
        self._max_bytes = max_bytes
        self._requests: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()
        self._all_requests = 0
        self._all_bytes = 0
        self._readers: dict[Slot, None] = {}

    def enter(self, slot: Slot) -> None:
        """Admit a request. At the limit it displaces a slow one.

        :raises RefusalError: at the limit, when no request is slow
        """
        if not self._has_capacity(slot.conn_id) and not self._displace(slot.conn_id):
            raise RefusalError(OVERLOADED)
        self._requests[slot.conn_id] += 1
        self._all_requests += 1
        self._readers[slot] = None
        slot.is_held = True

    def take(self, slot: Slot, size: int) -> None:
        """Count a piece of a body.

        :raises RefusalError: when a limit on bytes is reached
        """
        left = TOTAL_FACTOR * self._max_bytes - self._all_bytes
        if size > min(left, self._max_bytes - self._bytes[slot.conn_id]):
            raise RefusalError(OVERLOADED)
        self._bytes[slot.conn_id] += size
        self._all_bytes += size
        slot.size += size

    def leave(self, slot: Slot) -> None:
        """Remove a request and the bytes of its body. Further calls do nothing."""
        if not slot.is_held:
            return
        slot.is_held = False
        self._readers.pop(slot, None)
        for counter, amount in ((self._requests, 1), (self._bytes, slot.size)):
            counter[slot.conn_id] -= amount
            if not counter[slot.conn_id]:
                del counter[slot.conn_id]
        self._all_requests -= 1
        self._all_bytes -= slot.size

    def end_waiting(self, slot: Slot) -> None:
        """Record that the whole body has arrived, so that the request is not displaced."""
        self._readers.pop(slot, None)

    def _has_capacity(self, conn_id: str) -> bool:
        return self._requests[conn_id] < self._max_requests and self._all_requests < TOTAL_FACTOR * self._max_requests

    def _displace(self, conn_id: str) -> bool:
        """End the request that has waited longest for its body, if it is slow. Return whether it was."""
        only_own = self._requests[conn_id] >= self._max_requests
        oldest = next((slot for slot in self._readers if slot.conn_id == conn_id or not only_own), None)
        if oldest is None or not oldest.is_slow():
            return False
        self.leave(oldest)
        oldest.send_away()
        return True
