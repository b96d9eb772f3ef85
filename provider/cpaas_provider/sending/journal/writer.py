"""Writes the journal while requests are in flight: all that is to be stored meanwhile goes into one write."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

from cpaas_provider.api.backoff import backoff
from cpaas_provider.sending.errors import JournalUnavailableError, SendingError, TrySupersededError
from cpaas_provider.sending.journal.log import JournalLog
from cpaas_provider.sending.journal.model import Intent, LogEntry, Result

log = logging.getLogger(__name__)

_ATTEMPTS = 3
_FIRST_PAUSE = 0.5
_SHARE = 2.0
"""How many times as long as a write took the next one is waited for, so that they carry much each."""

_LONGEST_WAIT = 0.1

_TIDY = 2
"""How many old keys are removed between two writes: twice as many as a write adds."""


class JournalWriter:
    """Stores claims and ends of one try, a window at a time.

    A claim waits until it is stored; an end does not, but goes into the next write. Used on one event loop; the writes
    themselves are made in a thread.

    :param body: hash of what the claims say to all of their recipients
    :param crowd: how many claims make a write worth its while at once
    """

    def __init__(
        self,
        log_: JournalLog,
        body: str,
        min_write_batch: int = 1,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._log = log_
        self._body = body
        self._crowd = min_write_batch
        self._clock = clock
        self._claims: deque[tuple[Intent, asyncio.Future[None]]] = deque()
        self._ends: deque[Result] = deque()
        self._notes: dict[int, Intent] = {}
        self._wanted = asyncio.Event()
        self._crowded = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, "cpaas-journal")
        self._error: SendingError | None = None
        self._closing = False
        self._full = False
        self._task = asyncio.create_task(self._write_all())

    async def claim(self, claim: Intent) -> None:
        """Store that a request is about to leave; when this returns, it may.

        :raises JournalUnavailableError: when that could not be stored; the request must not leave
        :raises TrySupersededError: when another try has taken this one's place
        """
        if self._error is not None:
            raise self._error
        stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._claims.append((claim, stored))
        self._wanted.set()
        if len(self._claims) >= self._crowd:
            self._crowded.set()
        await stored

    def settle(self, end: Result) -> None:
        """Have it stored what became of a request.

        Where that fails, it is logged at the end: the next try finds the request unknown, which is safe.
        """
        self._ends.append(end)
        self._wanted.set()

    def note(self, claim: Intent, end: Result) -> None:
        """Have a request stored that was not made, because its outcome is known without."""
        self._notes[claim.number] = claim
        self.settle(end)

    async def close(self) -> None:
        """Store what is left, and end.

        :raises TrySupersededError: when another try has taken this one's place
        """
        self._closing = True
        self._wanted.set()
        self._crowded.set()
        await self._task
        # What is being removed is done with before the task's connection to Airflow is.
        with contextlib.suppress(RuntimeError):
            await asyncio.get_running_loop().run_in_executor(self._thread, self._log.tidy, 0)
        self._thread.shutdown(wait=False)
        if isinstance(self._error, TrySupersededError):
            raise self._error
        if self._ends:
            log.warning(
                "The outcome of %d requests could not be stored. If the task is retried, these requests are treated "
                "as unknown.",
                len(self._ends),
            )

    async def _write_all(self) -> None:
        try:
            await self._write_what_comes()
        finally:
            # Nobody is to wait for a write that will not be made.
            self._refuse(self._error or JournalUnavailableError("The journal is closed, so nothing was sent."))

    async def _write_what_comes(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            # Whoever was woken by the same answer comes along.
            await asyncio.sleep(0)
            while self._claims or self._ends:
                began = loop.time()
                if not await self._write():
                    return
                # What did not fit into a write has nothing to wait for.
                if self._closing or self._full:
                    continue
                await self._pause(min(_SHARE * (loop.time() - began), _LONGEST_WAIT))
            if self._closing:
                return

    async def _pause(self, seconds: float) -> None:
        """Let more come together, but not longer than it takes for a crowd."""
        self._crowded.clear()
        if len(self._claims) < self._crowd and not self._closing:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._crowded.wait(), seconds)

    async def _write(self) -> bool:
        """Make one write; return whether more may follow."""
        claims, ends = self._take()
        batch = LogEntry(
            at=self._clock(),
            try_number=self._log.tries.number,
            clear_epoch=self._log.tries.clear_epoch,
            body=self._body,
            intents=[
                *(claim for claim, _ in claims),
                *(self._notes[end.number] for end in ends if end.number in self._notes),
            ],
            results=ends,
        )
        try:
            await self._store(batch)
        except BaseException as error:
            self._claims.extendleft(reversed(claims))
            self._ends.extendleft(reversed(ends))
            if not isinstance(error, SendingError):
                raise
            self._refuse(error)
            # What became of requests under way is tried to be stored at the end, once more.
            retry = isinstance(error, JournalUnavailableError) and not self._closing
            return retry and await self._wait_for_end()
        for end in ends:
            self._notes.pop(end.number, None)
        for _, stored in claims:
            if not stored.done():
                stored.set_result(None)
        if not self._closing:
            # While requests are under way nobody waits for the thread.
            self._thread.submit(self._log.tidy, _TIDY)
        return True

    def _refuse(self, error: SendingError) -> None:
        """Tell all who wait for a claim that it will not be stored."""
        self._error = error
        for _, stored in self._claims:
            if not stored.done():
                stored.set_exception(error)
        self._claims.clear()

    async def _wait_for_end(self) -> bool:
        while not self._closing:
            await self._wanted.wait()
            self._wanted.clear()
        return True

    def _take(self) -> tuple[list[tuple[Intent, asyncio.Future[None]]], list[Result]]:
        """Return as much as one write holds."""
        room = self._log.room
        ends: list[Result] = []
        while self._ends and (not ends or room > self._weight(self._ends[0])):
            room -= self._weight(self._ends[0])
            ends.append(self._ends.popleft())
        claims: list[tuple[Intent, asyncio.Future[None]]] = []
        while self._claims and ((not claims and not ends) or room > self._claims[0][0].weight):
            claim, stored = self._claims.popleft()
            if not stored.cancelled():
                room -= claim.weight
                claims.append((claim, stored))
        self._full = bool(self._claims)
        return claims, ends

    def _weight(self, end: Result) -> int:
        """Return the bytes an end takes, with the claim that is stored beside it where the request was not made."""
        note = self._notes.get(end.number)
        return end.weight + (note.weight if note else 0)

    async def _store(self, batch: LogEntry) -> None:
        """Write, again where it fails and nobody else has taken over."""
        loop = asyncio.get_running_loop()
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                await loop.run_in_executor(self._thread, self._log.append, batch)
            except JournalUnavailableError:
                if attempt == _ATTEMPTS:
                    raise
                await asyncio.sleep(backoff(attempt, _FIRST_PAUSE, jitter=0))
            else:
                return
