"""Writes the journal while requests are in flight: all that is to be stored meanwhile goes into one write."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from types import TracebackType
from typing import Self

from cpaas_provider.api.amounts import counted
from cpaas_provider.api.backoff import backoff
from cpaas_provider.sending.errors import JournalUnavailableError, SendingError, TrySupersededError, join_references
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


OnStored = Callable[[Intent, SendingError | None], object]
"""What is called once an intent is stored, or could not be."""


class JournalWriter:
    """Stores intents and results of one try, many in one write, in an ``async with`` block.

    An intent waits until it is stored. A result does not: it goes into the next write. Used on one event loop; the
    writes themselves are made in a thread.

    :param body: hash of what the intents say to all of their recipients
    :param min_write_batch: how many intents are written without waiting for more
    """

    def __init__(
        self,
        log_: JournalLog,
        body: str | None,
        min_write_batch: int = 1,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._log = log_
        self._body = body
        self._min_write_batch = min_write_batch
        self._clock = clock
        self._intents: dict[int, tuple[Intent, OnStored]] = {}
        self._results: deque[Result] = deque()
        self._unsent: dict[int, Intent] = {}
        self._references: dict[int, str] = {}
        self._wanted = asyncio.Event()
        self._batch_ready = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, "cpaas-journal")
        self._error: SendingError | None = None
        self._closing = False
        self._full = False
        self._task = asyncio.create_task(self._write_all())

    def begin(self, intent: Intent, on_stored: OnStored) -> None:
        """Have it stored that a request is about to leave.

        :param on_stored: called once it is stored, so that the request may leave; or with the error if it could not be
            stored, so that it must not. It must not raise.
        """
        if self._error is not None:
            on_stored(intent, self._error)
            return
        self._references[intent.number] = intent.reference
        self._intents[intent.number] = intent, on_stored
        self._wanted.set()
        if len(self._intents) >= self._min_write_batch:
            self._batch_ready.set()

    def withdraw(self, intent: Intent) -> None:
        """Do not store an intent, unless that is under way or done: its request does not leave."""
        self._intents.pop(intent.number, None)

    def end(self, result: Result) -> None:
        """Have it stored what became of a request.

        Where that fails, it is logged at the end: the next try finds the request unknown, which is safe.
        """
        self._results.append(result)
        self._wanted.set()

    def add(self, intent: Intent, result: Result) -> None:
        """Have a request stored that was not made, because its outcome is known without."""
        self._unsent[intent.number] = intent
        self.end(result)

    async def record_lost(self, intent: Intent, result: Result) -> None:
        """Store a request whose outcome is unknown; when this returns, it is stored.

        :raises JournalUnavailableError: when that could not be stored
        :raises TrySupersededError: when another try has taken this one's place
        """
        await self._store(self._entry(None, [intent], [result]), "stored, so nothing was sent")

    async def record_loss(self) -> None:
        """Store that what earlier tries sent is lost, where that is so; when this returns, it is stored.

        :raises JournalUnavailableError: when that could not be stored
        :raises TrySupersededError: when another try has taken this one's place
        """
        await asyncio.get_running_loop().run_in_executor(self._thread, self._log.record_loss)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Store what is left, and end.

        :raises TrySupersededError: when another try has taken this one's place
        """
        self._closing = True
        self._wanted.set()
        self._batch_ready.set()
        try:
            await asyncio.shield(self._task)
        except asyncio.CancelledError:
            # The first Ctrl-C loses no result; the second ends the write, too.
            await self._task
            raise
        # What is being removed is done with before the task's connection to Airflow is.
        with contextlib.suppress(RuntimeError):
            await asyncio.get_running_loop().run_in_executor(self._thread, self._log.tidy, 0)
        self._thread.shutdown(wait=False)
        if isinstance(self._error, TrySupersededError):
            raise self._error
        if self._results:
            made = self._made(self._results)
            log.warning(
                "The outcome of %s%s could not be stored. If the task is retried, the outcome is treated as unknown.",
                counted(len(self._results), "request"),
                f" ({join_references(made)})" if made else "",
            )

    async def _write_all(self) -> None:
        try:
            await self._write_what_comes()
        finally:
            # Nothing is to wait for a write that will not be made.
            self._refuse(self._error or JournalUnavailableError("The journal is closed, so nothing was sent."))

    async def _write_what_comes(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            # Senders that were woken by the same response come along.
            await asyncio.sleep(0)
            while self._intents or self._results:
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
        """Let more come together, but not longer than it takes for a batch."""
        self._batch_ready.clear()
        if len(self._intents) < self._min_write_batch and not self._closing:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._batch_ready.wait(), seconds)

    async def _write(self) -> bool:
        """Make one write; return whether more may follow."""
        intents, results = self._take()
        unsent = [self._unsent[result.number] for result in results if result.number in self._unsent]
        batch = self._entry(self._body, [*(intent for intent, _ in intents), *unsent], results)
        try:
            await self._store(batch, self._describe(intents, results))
        except BaseException as error:
            self._intents = {intent.number: (intent, on_stored) for intent, on_stored in intents} | self._intents
            self._results.extendleft(reversed(results))
            if not isinstance(error, SendingError):
                raise
            self._refuse(error)
            # What became of requests under way is tried to be stored at the end, once more.
            retry = isinstance(error, JournalUnavailableError) and not self._closing
            return retry and await self._wait_for_end()
        for result in results:
            self._unsent.pop(result.number, None)
            self._references.pop(result.number, None)
        for intent, on_stored in intents:
            on_stored(intent, None)
        if not self._closing:
            # While requests are in flight nothing waits for the thread.
            self._thread.submit(self._log.tidy, _TIDY)
        return True

    def _entry(self, body: str | None, intents: list[Intent], results: list[Result]) -> LogEntry:
        tries = self._log.tries
        return LogEntry(self._clock(), tries.number, tries.clear_epoch, body, intents, results)

    def _refuse(self, error: SendingError) -> None:
        """Tell all who wait for an intent that it will not be stored."""
        self._error = error
        refused, self._intents = self._intents, {}
        for intent, on_stored in refused.values():
            on_stored(intent, error)

    async def _wait_for_end(self) -> bool:
        while not self._closing:
            await self._wanted.wait()
            self._wanted.clear()
        return True

    def _take(self) -> tuple[list[tuple[Intent, OnStored]], list[Result]]:
        """Return as much as one write holds."""
        room = self._log.room
        results: list[Result] = []
        while self._results and (not results or room > self._weight(self._results[0])):
            room -= self._weight(self._results[0])
            results.append(self._results.popleft())
        intents: list[tuple[Intent, OnStored]] = []
        for begun in self._intents.values():
            room -= begun[0].weight
            if room <= 0 and (intents or results):
                break
            intents.append(begun)
        for intent, _ in intents:
            del self._intents[intent.number]
        self._full = bool(self._intents)
        return intents, results

    def _weight(self, result: Result) -> int:
        """Return the bytes an end takes, with the intent that is stored beside it where the request was not made."""
        note = self._unsent.get(result.number)
        return result.weight + (note.weight if note else 0)

    def _made(self, results: Iterable[Result]) -> list[str]:
        """Return the references of requests of this try."""
        return [self._references[one.number] for one in results if one.number in self._references]

    def _describe(self, intents: Sequence[object], results: Sequence[Result]) -> str:
        """Return what an error says of a write that failed."""
        unsent = ", so the requests to record were not sent" if intents else ""
        made = self._made(results)
        return f"stored{unsent}. Made before: {join_references(made)}" if made else f"stored{unsent}"

    async def _store(self, batch: LogEntry, what: str) -> None:
        """Write, again where it fails and no other try has taken over."""
        loop = asyncio.get_running_loop()
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                await loop.run_in_executor(self._thread, self._log.append, batch, what)
            except JournalUnavailableError:
                if attempt == _ATTEMPTS:
                    raise
                await asyncio.sleep(backoff(attempt, _FIRST_PAUSE, jitter=0))
            else:
                return
