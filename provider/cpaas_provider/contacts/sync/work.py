"""The rows of a spool in the order in which a run sends them, and rows from elsewhere in it."""

from __future__ import annotations

import math
import random
import time
from collections import deque
from collections.abc import Callable, Collection

from cpaas_provider.contacts.sync.decisions import Action
from cpaas_provider.contacts.sync.limits import Cause, FailureLimits
from cpaas_provider.contacts.sync.spool import Spool, WorkItem

_USUAL_SECONDS = 0.05
"""The time from an intent to its recorded result that the first size of the window allows for."""
_REACHED = 0.9
_GROWTH = 2
_GROUPED = 8
"""From this size on, rows are started in groups of half the window, which saves writes."""
_REPEATABLE = (Action.UPDATE.value, Action.DELETE.value)
"""Actions on rows whose id is known: if one fails, the next run repeats it."""


class PendingWindow:
    """How many requests may have an intent and no recorded result: as few as the rate needs.

    A kill leaves creations with an unknown outcome: those that are pending, although most of them only wait for their
    turn in the rate limit. So the window starts with what the rate needs if a response takes 50 ms. It grows each
    second in which the rate was not reached.

    :param most: its largest size
    :param per_second: the requests per second that the connection allows
    :param clock: counts seconds
    """

    def __init__(self, most: int, per_second: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = max(1, most)
        self._per_second = per_second
        self._clock = clock
        self._since = clock()
        self._results = 0
        self.size = min(self._most, 1 + math.ceil(per_second * _USUAL_SECONDS))

    def room(self, pending: int) -> int:
        """Return how many more rows may start; 0 while it pays to wait for more, because one write takes several."""
        few = self.size - 1 if self.size < _GROUPED else self.size // 2
        return self.size - pending if pending <= few else 0

    def add_results(self, count: int) -> None:
        """Count results, and grow once a second if they come more slowly than the rate limit allows."""
        self._results += count
        seconds = self._clock() - self._since
        if seconds >= 1.0:
            if self._results < _REACHED * self._per_second * seconds:
                self.size = min(self._most, self.size + _GROWTH)
            self._since, self._results = self._clock(), 0


class Work:
    """The rows of a spool in the order in which one run sends them.

    :param start: where in the spool the run starts, 0 to 1; it goes on at the beginning after the end
    """

    def __init__(self, spool: Spool, start: float = 0.0) -> None:
        self._spool = spool
        last = spool.last_seq()
        first = int(start * last)
        self._ranges = deque([(first, last), (0, first)])
        self._taken: set[int] = set()
        self._returned: deque[WorkItem] = deque()
        self._position = random.random()  # noqa: S311 - no secret

    @property
    def is_exhausted(self) -> bool:
        """Whether no row remains."""
        return not self._ranges and not self._returned

    def next(self, count: int) -> list[WorkItem]:
        """Return the next rows; fewer than ``count`` if no more remain.

        :raises SpoolError: when the rows cannot be read
        """
        items: list[WorkItem] = []
        while self._ranges and len(items) < count:
            after, until = self._ranges[0]
            found = self._spool.work(after, count - len(items), until=until)
            if found:
                self._ranges[0] = (found[-1].seq, until)
                items += [item for item in found if item.seq not in self._taken]
                self._taken.difference_update(item.seq for item in found)
            else:
                self._ranges.popleft()
        while self._returned and len(items) < count:
            items.append(self._returned.popleft())
        return items

    def elsewhere(self, actions: Collection[str] = ()) -> WorkItem | None:
        """Return a row from another part of the rows that remain, ``None`` if there is none.

        Each call returns one from another part, in each run from other ones.

        :param actions: a row for which one of these actions was decided, if there is one
        :raises SpoolError: when the rows cannot be read
        """
        # Multiples of the golden ratio spread evenly, however many there are.
        self._position = (self._position + 0.6180339887498949) % 1
        item = self._remaining_from(self._position, actions)
        if item is None and actions:
            item = self._remaining_from(self._position)
        if item is not None:
            self._taken.add(item.seq)
            return item
        if not self._returned:
            return None
        preferred = next((item for item in self._returned if item.action in actions), self._returned[0])
        self._returned.remove(preferred)
        return preferred

    def put_back(self, item: WorkItem) -> None:
        """Let a row be returned again, after the others."""
        self._returned.append(item)

    def _remaining_from(self, position: float, actions: Collection[str] = ()) -> WorkItem | None:
        """Return the first row after a position among those that remain, or before it if there is none."""
        ranges = list(self._ranges)
        offset = int(position * sum(until - after for after, until in ranges))
        before: list[tuple[int, int]] = []
        behind: list[tuple[int, int]] = []
        for after, until in ranges:
            cut = min(max(after + offset, after), until)
            offset -= until - after
            before.append((after, cut))
            behind.append((cut, until))
        for after, until in behind + before:
            start = after
            while found := self._spool.work(start, 10, until=until, actions=actions):
                if (item := next((item for item in found if item.seq not in self._taken), None)) is not None:
                    return item
                start = found[-1].seq
        return None


class ProbedWork(Work):
    """The rows of a spool, from elsewhere while the limits of a run ask for it.

    :param start: as of ``Work``
    """

    def __init__(self, spool: Spool, limits: FailureLimits, start: float) -> None:
        super().__init__(spool, start)
        self._limits = limits
        self._probes: set[int] = set()

    def next(self, count: int) -> list[WorkItem]:
        """Return the next rows. After failures they come singly: a creation that fails has an unknown outcome.

        :raises SpoolError: when the rows cannot be read
        """
        while (probing := self._limits.probing) is not None:
            after_failures = probing.cause is Cause.FAILURES
            wanted = min(count, (1 if after_failures else probing.needed - probing.failed) - len(self._probes))
            items: list[WorkItem] = []
            while len(items) < wanted and (item := self.elsewhere(_REPEATABLE if after_failures else ())) is not None:
                items.append(item)
            if items or self._probes or wanted <= 0:
                self._probes.update(item.seq for item in items)
                return items
            self._limits.end_probing()
        return super().next(count)

    def put_back(self, item: WorkItem) -> None:
        """Let a row be returned again, after the others."""
        self.end_probe(item)
        super().put_back(item)

    def end_probe(self, item: WorkItem) -> bool:
        """Tell whether a row was taken from elsewhere, once its outcome is known."""
        is_probe = item.seq in self._probes
        self._probes.discard(item.seq)
        return is_probe
