"""How much an endpoint may have in hand, for each connection and in all; slow senders make room for others."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

from cpaas_provider.delivery.receiver.http.responses import OVERLOADED, RefusalError

TOTAL_FACTOR = 2
"""In all there is room for this many times what one connection may have in hand, so that none can take it all."""


class WaitTimer:
    """DeliveryCounts time in small parts for all who wait, each part once, however late it is.

    So what the server itself takes, where it has more to do than it can, is not counted against a sender whose body
    may have been there for long. One timer serves all: most who wait have what they wait for before it is due.

    :param seconds: returns how long a part is
    """

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._seconds = seconds
        self._waiting: dict[Callable[[float], None], None] = {}
        self._timer: asyncio.TimerHandle | None = None

    def add(self, count: Callable[[float], None]) -> None:
        """Have each part of time counted from now on."""
        self._waiting[count] = None
        if self._timer is None:
            self._begin_part()

    def discard(self, count: Callable[[float], None]) -> None:
        """Count no more."""
        self._waiting.pop(count, None)

    def _begin_part(self) -> None:
        seconds = self._seconds()
        self._timer = asyncio.get_running_loop().call_later(seconds, self._end_part, seconds)

    def _end_part(self, seconds: float) -> None:
        self._timer = None
        for count in list(self._waiting):
            count(seconds)
        if self._waiting:
            self._begin_part()


class LoadLimiter:
    """LoadLimiter for requests, and for the bytes of their bodies.

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
        """Take in one request, in the place of a slow one where there is no other.

        :raises RefusalError: when there is no room
        """
        if not self._has_capacity(slot.conn_id) and not self._displace(slot.conn_id):
            raise RefusalError(OVERLOADED)
        self._requests[slot.conn_id] += 1
        self._all_requests += 1
        self._readers[slot] = None

    def take(self, slot: Slot, size: int) -> None:
        """Take in a piece of a body.

        :raises RefusalError: when there is no room
        """
        left = TOTAL_FACTOR * self._max_bytes - self._all_bytes
        if size > min(left, self._max_bytes - self._bytes[slot.conn_id]):
            raise RefusalError(OVERLOADED)
        self._bytes[slot.conn_id] += size
        self._all_bytes += size
        slot.size += size

    def leave(self, slot: Slot) -> None:
        """Let a request go, with as much of its body as was taken in."""
        self._readers.pop(slot, None)
        for held, gone in ((self._requests, 1), (self._bytes, slot.size)):
            held[slot.conn_id] -= gone
            if not held[slot.conn_id]:
                del held[slot.conn_id]
        self._all_requests -= 1
        self._all_bytes -= slot.size

    def end_waiting(self, slot: Slot) -> None:
        """Note that all of a body is there, so that its place is not given to another."""
        self._readers.pop(slot, None)

    def _has_capacity(self, conn_id: str) -> bool:
        return self._requests[conn_id] < self._max_requests and self._all_requests < TOTAL_FACTOR * self._max_requests

    def _displace(self, conn_id: str) -> bool:
        """Send away the one whose body has been waited for the longest; tell whether there was one to send away."""
        own = self._requests[conn_id] >= self._max_requests
        slow = next((one for one in self._readers if one.conn_id == conn_id or not own), None)
        if slow is None or not slow.is_slow():
            return False
        slow.leave()
        slow.send_away()
        return True


class Slot:
    """A request that has a place in a room.

    :param is_slow: tells whether it has been waited for long enough to be sent away
    :param send_away: ends the wait for its body
    :raises RefusalError: when there is no room
    """

    __slots__ = ("_here", "_limiter", "conn_id", "is_slow", "send_away", "size")

    def __init__(
        self, limiter: LoadLimiter, conn_id: str, is_slow: Callable[[], bool], send_away: Callable[[], None]
    ) -> None:
        self.conn_id = conn_id
        self.is_slow = is_slow
        self.send_away = send_away
        self.size = 0
        self._limiter = limiter
        self._here = False
        limiter.enter(self)
        self._here = True

    def take(self, size: int) -> None:
        """Take in a piece of the body.

        :raises RefusalError: when there is no room
        """
        self._limiter.take(self, size)

    def stay(self) -> None:
        """Keep the place for good, as all of the body is there."""
        self._limiter.end_waiting(self)

    def leave(self) -> None:
        """Give back the place, once."""
        if self._here:
            self._here = False
            self._limiter.leave(self)
