"""Group commit: what arrives while one transaction runs goes into the next, all of it together."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from asyncio import Future
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime
from enum import Enum
from queue import Empty, SimpleQueue
from typing import Literal, NamedTuple, Protocol

from cpaas_provider.database.errors import RejectedDataError
from cpaas_provider.delivery.callbacks.tokens import CallbackToken
from cpaas_provider.delivery.reports import Report

ReportSource = Literal["callback", "webhook"]


class ReceivedReport(NamedTuple):
    """An authentic report, as it came.

    :param conn_id: the connection it came for
    :param token: what the callback URL says; ``None`` at the account webhook
    :param body: the raw JSON text
    :param at: when it came, with its time zone
    """

    conn_id: str
    source: ReportSource
    token: CallbackToken | None
    report: Report
    body: str
    at: datetime


class StoreResult(Enum):
    """What the store made of it: the first four are kept for good, the others are not stored."""

    NEW = "new"
    REPEATED = "repeated"
    UNREADABLE = "unreadable"
    # It is about a recipient that its request does not have: it is kept as it came, and nothing else.
    EXCESS = "excess"
    # It came to the callback URL of a request that was pruned, or that has brought all that it may.
    EXPIRED = "expired"
    TOO_MANY = "too_many"


Write = Callable[[Sequence[ReceivedReport]], list[StoreResult]]

MAX_PENDING = 2000
"""Reports of one connection that wait to be stored; of all, twice as many."""

MAX_BATCH = 500
"""Reports in one transaction, so that none takes long."""

_Waiting = tuple[ReceivedReport, "Future[StoreResult]"]


class BackpressureError(Exception):
    """More reports arrived than can be stored now, or the writer is closed. The report was not stored."""


class ReportSink(Protocol):
    """What stores reports."""

    async def submit(self, received: ReceivedReport) -> StoreResult:
        """Return once it is stored."""
        ...

    async def close(self) -> None:
        """Store what is in hand."""
        ...


class ReportWriter:
    """Takes reports from one event loop and stores them in a thread of its own.

    A transaction begins with the first report, without waiting for more. What arrives before its commit goes into the
    next one, so a report waits for at most two commits. Beginning the next one before it would halve its size,
    and most of the work is by transaction.

    :param write: stores reports in one transaction, durably, and returns the result of each
    :param max_pending: how many of one connection may be in hand, 1 or more; of all, twice as many
    """

    def __init__(self, write: Write, *, max_pending: int = MAX_PENDING) -> None:
        self._write = write
        self._max_pending = max_pending
        self._pending: Counter[str] = Counter()
        self._all_pending = 0
        self._closed = False
        self._queue: SimpleQueue[_Waiting | None] = SimpleQueue()
        # A daemon, lest a server that is killed waits for it: what was not committed was not acknowledged.
        self._thread = threading.Thread(target=self._work, name="cpaas-delivery-writer", daemon=True)
        self._thread.start()

    async def submit(self, received: ReceivedReport) -> StoreResult:
        """Return the result of a report, once it is stored. Giving up waiting does not take it back.

        :raises BackpressureError: when there is no room, or the writer is closed; it was not stored
        :raises RejectedDataError: when the database rejects what this one says; those that came with it are stored
        :raises DatabaseError: when the transaction failed; nothing of it was stored
        """
        pending, conn_id = self._pending, received.conn_id
        if self._closed or pending[conn_id] >= self._max_pending or self._all_pending >= 2 * self._max_pending:
            raise BackpressureError(
                "Too many delivery reports at once. Nothing was stored. Send the report again later."
            )
        future: Future[StoreResult] = asyncio.get_running_loop().create_future()
        pending[conn_id] += 1
        self._all_pending += 1
        self._queue.put((received, future))
        return await future

    async def close(self) -> None:
        """Take no more, and return once all that is in hand is stored or has failed."""
        if not self._closed:
            self._closed = True
            self._queue.put(None)
        await asyncio.to_thread(self._thread.join)

    def _work(self) -> None:
        going_on = True
        while going_on:
            batch = [self._queue.get()]
            with contextlib.suppress(Empty):
                while batch[-1] is not None and len(batch) < MAX_BATCH:
                    batch.append(self._queue.get_nowait())
            waiting = [one for one in batch if one is not None]
            going_on = len(waiting) == len(batch)
            if waiting:
                self._store(waiting)

    def _store(self, waiting: list[_Waiting]) -> None:
        """Write them together; where the database rejects one of them, bisect, so that it fails alone."""
        try:
            results = self._write([received for received, _ in waiting])
        except RejectedDataError as error:
            if len(waiting) == 1:
                self._wake(waiting, error)
                return
            half = len(waiting) // 2
            self._store(waiting[:half])
            self._store(waiting[half:])
        except Exception as error:  # noqa: BLE001 - whatever it is, those who wait have to know
            self._wake(waiting, error)
        else:
            self._wake(waiting, results)

    def _wake(self, waiting: list[_Waiting], outcome: list[StoreResult] | Exception) -> None:
        futures, conn_ids = [future for _, future in waiting], Counter(received.conn_id for received, _ in waiting)
        # On a loop that is closed no caller waits.
        with contextlib.suppress(RuntimeError):
            futures[0].get_loop().call_soon_threadsafe(self._resolve, futures, conn_ids, outcome)

    def _resolve(
        self, futures: list[Future[StoreResult]], conn_ids: Counter[str], outcome: list[StoreResult] | Exception
    ) -> None:
        self._pending -= conn_ids
        self._all_pending -= len(futures)
        if isinstance(outcome, list) and len(outcome) != len(futures):
            outcome = AssertionError("The report writer must return one result for each report.")
        for place, future in enumerate(futures):
            # Its caller may have given up waiting.
            if not future.done():
                if isinstance(outcome, Exception):
                    future.set_exception(outcome)
                else:
                    future.set_result(outcome[place])


class LazyReportWriter:
    """A writer that is opened, off the event loop, by the first report.

    :param open_writer: opens the database, which may block; called again by the next report when it failed
    """

    def __init__(self, open_writer: Callable[[], ReportSink]) -> None:
        self._open_writer = open_writer
        self._opening: Future[ReportSink] | None = None
        self._writer: ReportSink | None = None

    async def submit(self, received: ReceivedReport) -> StoreResult:
        """Return the result of a report.

        :raises BackpressureError: as ``ReportWriter``
        :raises DatabaseError: as ``ReportWriter``, and when the store cannot be opened
        """
        writer = self._writer or await self._opened()
        return await writer.submit(received)

    async def close(self) -> None:
        """Store what is in hand. The next report opens it anew."""
        writer, self._writer = self._writer, None
        if writer is not None:
            await writer.close()

    async def _opened(self) -> ReportSink:
        if self._opening is None:
            self._opening = asyncio.ensure_future(asyncio.to_thread(self._open_writer))
            self._opening.add_done_callback(self._install)
        # Shielded: one who gives up must not stop it for the others.
        return await asyncio.shield(self._opening)

    def _install(self, opening: Future[ReportSink]) -> None:
        self._opening = None
        if not opening.cancelled() and opening.exception() is None:
            self._writer = opening.result()
