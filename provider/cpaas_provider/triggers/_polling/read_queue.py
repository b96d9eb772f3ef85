"""In which order many are read who each want to be read again and again."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Hashable
from typing import Generic, TypeVar

H = TypeVar("H", bound=Hashable)

_FEW = 64


class ReadQueue(Generic[H]):
    """Who is to be read next.

    Two heaps: those whose time is yet to come, by that time, and those who are due, by round and then by expiry. Who
    comes due while a round is under way belongs to the next one. So within a round the soonest expiry is first, and
    however many there are, nobody is passed over: everybody has one turn a round. Each step costs the logarithm of
    their number. What was put elsewhere or dropped stays in its heap until it would have had its turn, or until most
    of a heap is such.
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
        """Have somebody read, in place of when he would have been.

        :param due: not before this time
        :param expiry: before all of the same round that expire later
        """
        number = self._entries[item] = next(self._numbers)
        heapq.heappush(self._later, (due, number, expiry, item))
        self._tidy()

    def push_first(self, item: H, expiry: float) -> None:
        """Have somebody read before all others, save those in the same hurry who expire sooner."""
        number = self._entries[item] = next(self._numbers)
        heapq.heappush(self._due, (0, expiry, number, item))
        self._tidy()

    def discard(self, item: H) -> None:
        """Have somebody read no more; he need not be there."""
        self._entries.pop(item, None)
        self._tidy()

    def pop(self, now: float) -> H | None:
        """Return who is to be read at this time, and forget him; ``None`` when nobody is due."""
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
