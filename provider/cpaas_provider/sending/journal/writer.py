"""Writes the journal while requests are in flight: one write stores all records that came during the last one."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from types import TracebackType
from typing import Self

from cpaas_provider.api.amounts import counted
from cpaas_provider.api.backoff import backoff
from cpaas_provider.sending.errors import JournalUnavailableError, SendingError, TrySupersededError, join_references
from cpaas_provider.sending.journal.log import JournalLog
from cpaas_provider.sending.journal.model import Intent, LogEntry, Result, State

log = logging.getLogger(__name__)

_ATTEMPTS = 3
_FIRST_PAUSE = 0.5
_WAIT_RATIO = 2.0
"""The pause before the next write, as a multiple of the time of the last one, so that each stores many records."""

_LONGEST_WAIT = 0.1

_KEYS_TO_TIDY = 2
"""The most obsolete keys removed between two writes: twice as many as a write adds."""

_NOT_STORED = "its intent could not be stored"

OnStored = Callable[[Intent, SendingError | None], object]
"""Called once an intent is stored, or with the error if it could not be stored."""


@dataclass(eq=False, repr=False)
class JournalWriter:
    """Stores intents and results of one try, many in one write, in an ``async with`` block.

    A request waits until its intent is stored, but not for its result: that goes into the next write. Use the writer on
    one event loop. The writes run in a thread of its own.

    :param body: hash of the content that is the same for all recipients
    :param min_write_batch: the number of intents that are written without waiting for more
    :param in_line: whether only ``store``, ``flush`` and ``close`` write. Otherwise an asyncio task writes meanwhile
    """

    journal: JournalLog
    body: str | None
    min_write_batch: int = 1
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    in_line: bool = False

    def __post_init__(self) -> None:
        self._intents: dict[int, tuple[Intent, OnStored]] = {}
        self._results: deque[Result] = deque()
        self._not_made: dict[int, Intent] = {}
        self._references: dict[int, str] = {}
        self._unsent: set[int] = set()
        self._has_work = asyncio.Event()
        self._batch_ready = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, "cpaas-journal")
        self._error: SendingError | None = None
        self._closing = False
        self._full = False
        self._task = None if self.in_line else asyncio.create_task(self._write_all())

    async def store(self, intent: Intent) -> None:
        """Store an intent in line, and all other records. It is stored when this returns, so its request may leave.

        :raises JournalUnavailableError: when it could not be stored
        :raises TrySupersededError: when another try has replaced this one
        """
        self.begin(intent, lambda intent, error: None)
        await self.flush()
        if self._error is not None:
            raise self._error

    async def flush(self) -> None:
        """Store all records, if the writer writes in line. What cannot be stored is tried once more by ``close``."""
        if self.in_line:
            await _uninterrupted(asyncio.create_task(self._write_remaining()))

    def begin(self, intent: Intent, on_stored: OnStored) -> None:
        """Add an intent to the next write.

        :param on_stored: called once the intent is stored, so that the request may leave; or with the error if it could
            not be stored, so that the request must not leave. It must not raise
        """
        if self._error is not None:
            on_stored(intent, self._error)
            return
        self._references[intent.number] = intent.reference
        self._intents[intent.number] = intent, on_stored
        self._has_work.set()
        if len(self._intents) >= self.min_write_batch:
            self._batch_ready.set()

    def withdraw(self, intent: Intent) -> None:
        """Do not store an intent whose request does not leave, if it is not being written yet."""
        self._intents.pop(intent.number, None)

    def end(self, result: Result) -> None:
        """Add a result to the next write.

        If it cannot be stored, no further intent is: nothing more leaves in this try. ``close`` tries once more, and
        logs what it cannot store. The next try treats the request as unknown, which is safe.
        """
        self._results.append(result)
        self._has_work.set()

    def add(self, intent: Intent, result: Result) -> None:
        """Add a request that is not made, with its known result, to the next write."""
        self._not_made[intent.number] = intent
        self.end(result)

    async def record_lost(self, intent: Intent, result: Result) -> None:
        """Store a request of unknown outcome, of an earlier try whose journal is lost. It is stored when this returns.

        :raises JournalUnavailableError: when it could not be stored
        :raises TrySupersededError: when another try has replaced this one
        """
        await self._store(self._entry(None, [intent], [result]), "stored, so nothing was sent")

    async def record_head(self) -> None:
        """Store the head of a new journal. It is stored when this returns.

        :raises JournalUnavailableError: when it could not be stored
        :raises TrySupersededError: when another try has replaced this one
        """
        await self._retried(self.journal.record_head)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Store what is left, and stop writing.

        :raises TrySupersededError: when another try has replaced this one
        """
        self._closing = True
        self._has_work.set()
        self._batch_ready.set()
        await _uninterrupted(self._task or asyncio.create_task(self._write_remaining()))
        # Wait for a removal in the thread: it uses the task's connection to Airflow.
        with contextlib.suppress(RuntimeError):
            await asyncio.get_running_loop().run_in_executor(self._thread, self.journal.tidy, 0)
        self._thread.shutdown(wait=False)
        if isinstance(self._error, TrySupersededError):
            raise self._error
        # A request whose intent was not stored did not leave.
        if results := [result for result in self._results if result.number not in self._unsent]:
            references = self._references_of(results)
            log.warning(
                "The outcome of %s%s could not be stored. If the task is retried, the outcome is treated as unknown.",
                counted(len(results), "request"),
                f" ({join_references(references)})" if references else "",
            )

    async def _write_all(self) -> None:
        try:
            await self._write_until_closed()
        finally:
            # No caller may wait for a write that will not be made.
            self._refuse(self._error or JournalUnavailableError("The journal is closed, so nothing was sent."))

    async def _write_until_closed(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._has_work.wait()
            self._has_work.clear()
            # Let senders that the same response woke add their records, too.
            await asyncio.sleep(0)
            while self._intents or self._results:
                began = loop.time()
                if not await self._write():
                    if self._closing or not isinstance(self._error, JournalUnavailableError):
                        return
                    # When the writer is closed, it tries once more to store the results.
                    await self._wait_until_closing()
                # Records that did not fit into the last write need not wait for more.
                if self._closing or self._full:
                    continue
                await self._pause(min(_WAIT_RATIO * (loop.time() - began), _LONGEST_WAIT))
            if self._closing:
                return

    async def _write_remaining(self) -> None:
        """Make the writes of ``flush``. After a failed one ``close`` tries once more, unless this try is superseded."""
        if self._error is None or (self._closing and isinstance(self._error, JournalUnavailableError)):
            while (self._intents or self._results) and await self._write():
                pass

    async def _pause(self, seconds: float) -> None:
        """Wait for more records, until there are enough intents for a write."""
        self._batch_ready.clear()
        if len(self._intents) < self.min_write_batch and not self._closing:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._batch_ready.wait(), seconds)

    async def _write(self) -> bool:
        """Make one write. Return whether it succeeded."""
        intents, results = self._take()
        not_made = [self._not_made[result.number] for result in results if result.number in self._not_made]
        entry = self._entry(self.body, [*(intent for intent, _ in intents), *not_made], results)
        try:
            await self._store(entry, self._describe(intents, results))
        except BaseException as error:
            self._intents = {intent.number: (intent, on_stored) for intent, on_stored in intents} | self._intents
            self._results.extendleft(reversed(results))
            if not isinstance(error, SendingError):
                raise
            self._refuse(error)
            if isinstance(error, JournalUnavailableError):
                # A write that failed may have stored the intents all the same.
                self._unsent = {intent.number for intent, _ in intents}
                self._references = {
                    number: one for number, one in self._references.items() if number not in self._unsent
                }
                self._results.extend(Result(number, State.NOT_SENT, reason=_NOT_STORED) for number in self._unsent)
            return False
        for result in results:
            self._not_made.pop(result.number, None)
            self._references.pop(result.number, None)
        for intent, on_stored in intents:
            on_stored(intent, None)
        if not self._closing:
            # Requests are in flight now, so no caller waits for the thread.
            self._thread.submit(self.journal.tidy, _KEYS_TO_TIDY)
        return True

    def _entry(self, body: str | None, intents: list[Intent], results: list[Result]) -> LogEntry:
        tries = self.journal.tries
        return LogEntry(self.clock(), tries.number, tries.clear_epoch, body, intents, results)

    def _refuse(self, error: SendingError) -> None:
        """Call ``on_stored`` of all waiting intents with an error. Later intents get it at once."""
        self._error = error
        refused, self._intents = self._intents, {}
        for intent, on_stored in refused.values():
            on_stored(intent, error)

    async def _wait_until_closing(self) -> None:
        while not self._closing:
            await self._has_work.wait()
            self._has_work.clear()

    def _take(self) -> tuple[list[tuple[Intent, OnStored]], list[Result]]:
        """Remove and return the records of the next write: results first, as many as it holds."""
        room = self.journal.room
        results: list[Result] = []
        while self._results:
            weight = self._weight(self._results[0])
            if results and room <= weight:
                break
            room -= weight
            results.append(self._results.popleft())
        intents: list[tuple[Intent, OnStored]] = []
        for intent, on_stored in self._intents.values():
            room -= intent.weight
            if room <= 0 and (intents or results):
                break
            intents.append((intent, on_stored))
        for intent, _ in intents:
            del self._intents[intent.number]
        self._full = bool(self._intents)
        return intents, results

    def _weight(self, result: Result) -> int:
        """Return the bytes of a result, with the intent that is stored with it if the request was not made."""
        intent = self._not_made.get(result.number)
        return result.weight + (intent.weight if intent else 0)

    def _references_of(self, results: Iterable[Result]) -> list[str]:
        """Return the references of requests of this try."""
        return [self._references[result.number] for result in results if result.number in self._references]

    def _describe(self, intents: Sequence[object], results: Sequence[Result]) -> str:
        """Return what completes "the journal could not be" if the write fails."""
        unsent = ", so the requests to record were not sent" if intents else ""
        references = self._references_of(results)
        return f"stored{unsent}" + (f". Made before: {join_references(references)}" if references else "")

    async def _store(self, entry: LogEntry, what: str) -> None:
        """Write an entry, and retry while the journal is unavailable."""
        await self._retried(partial(self.journal.append, entry, what))

    async def _retried(self, write: Callable[[], None]) -> None:
        """Make a write, and retry while the journal is unavailable."""
        loop = asyncio.get_running_loop()
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                await loop.run_in_executor(self._thread, write)
            except JournalUnavailableError:
                if attempt == _ATTEMPTS:
                    raise
                await asyncio.sleep(backoff(attempt, _FIRST_PAUSE, jitter=0))
            else:
                return


async def _uninterrupted(writes: asyncio.Task[None]) -> None:
    """Wait for writes. A first Ctrl-C must lose no record, so only a second one cancels them, too."""
    try:
        await asyncio.shield(writes)
    except asyncio.CancelledError:
        await writes
        raise
