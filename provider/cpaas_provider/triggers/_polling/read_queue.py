"""A queue for items that are read repeatedly: it decides which is read next."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Hashable
from typing import Generic, TypeVar

H = TypeVar("H", bound=Hashable)

_FEW = 64


class ReadQueue(Generic[H]):
    """A queue of items by due time, and among those due by expiry.

    It holds two heaps: items that are not due yet, by their due time, and items that are due, by round and then by
    expiry. An item that becomes due during a round belongs to the next one. So within a round the soonest expiry is
    first, and each item has one turn a round, however many there are. Each step costs the logarithm of their number.
    An item that was pushed again or discarded leaves a stale entry in its heap, until that is popped or most of the
    entries are stale.
    """

    def __init__(self) -> None:
        self._later: list[tuple[float, int, float, H]] = []
        self._due: list[tuple[int, float, int, H]] = []
        self._entries: dict[H, int] = {}
        self._numbers = itertools.count()
        self._round = 0

    def __len__(self) -> int:
        return len(self._entries)

    def push(self, item: H, due: float, expiry: float) -> None:
        """Add an item, or move it if it is in the queue.

        :param due: it is not popped before this time
        :param expiry: it is popped before the items of the same round that expire later
        """
        number = self._entries[item] = next(self._numbers)
        heapq.heappush(self._later, (due, number, expiry, item))
        self._tidy()

    def push_first(self, item: H, expiry: float) -> None:
        """Add or move an item before all others, save those pushed first that expire sooner."""
        number = self._entries[item] = next(self._numbers)
        heapq.heappush(self._due, (0, expiry, number, item))
        self._tidy()

    def discard(self, item: H) -> None:
        """Remove an item if it is in the queue."""
        self._entries.pop(item, None)
        self._tidy()

    def pop(self, now: float) -> H | None:
        """Remove and return the next item that is due at this time, or ``None``."""
        while self._later and self._later[0][0] <= now:
            _, number, expiry, item = heapq.heappop(self._later)
            if self._entries.get(item) == number:
                heapq.heappush(self._due, (self._round + 1, expiry, number, item))
        while self._due:
            turn, _, number, item = heapq.heappop(self._due)
            if self._entries.get(item) == number:
                self._round = max(self._round, turn)
                del self._entries[item]
                return item
        return None

    def next_due(self) -> float:
        """Return the time before which ``pop`` returns ``None``."""
        if self._due:
            return -math.inf
        return self._later[0][0] if self._later else math.inf

    def _tidy(self) -> None:
        if len(self._later) + len(self._due) <= 2 * len(self._entries) + _FEW:
            return
        self._later = [entry for entry in self._later if self._entries.get(entry[3]) == entry[1]]
        self._due = [entry for entry in self._due if self._entries.get(entry[3]) == entry[2]]
        heapq.heapify(self._later)
        heapq.heapify(self._due)
