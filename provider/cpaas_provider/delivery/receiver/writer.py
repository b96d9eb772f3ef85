"""Group commit: reports that arrive while a transaction runs are stored together in the next one."""

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
from typing import Literal, NamedTuple

from cpaas_provider.database.errors import RejectedDataError
from cpaas_provider.delivery.callbacks.tokens import CallbackToken
from cpaas_provider.delivery.reports import Report

ReportSource = Literal["callback", "webhook"]


class ReceivedReport(NamedTuple):
    """An authentic report as it was received.

    :param conn_id: the connection whose token or signature proves it
    :param token: the token of the callback URL; ``None`` at the account webhook
    :param body: the raw JSON text
    :param at: when it arrived, with a time zone
    """

    conn_id: str
    source: ReportSource
    token: CallbackToken | None
    report: Report
    body: str
    at: datetime


class StoreResult(Enum):
    """The result of storing a report. The first four are stored for good, the others are not stored."""

    NEW = "new"
    REPEATED = "repeated"
    UNREADABLE = "unreadable"
    # Its request does not have this recipient: the raw report is stored, and no status changes.
    EXCESS = "excess"
    # It came to the callback URL of a request that was pruned, or that has used up its quota.
    EXPIRED = "expired"
    TOO_MANY = "too_many"


Write = Callable[[Sequence[ReceivedReport]], list[StoreResult]]

MAX_PENDING = 2000
"""Reports of one connection that wait to be stored. The limit for all connections is twice as high."""

MAX_BATCH = 500
"""Reports in one transaction, so that no transaction takes long."""

_Waiting = tuple[ReceivedReport, "Future[StoreResult]"]


class BackpressureError(Exception):
    """More reports arrived than can be stored now, or the writer is closing. The report was not stored."""


class ReportWriter:
    """Takes reports from one event loop and stores them in a thread of its own, which the first report starts.

    A transaction begins with the first report, without waiting for more. Reports that arrive before its commit go into
    the next one, so a report waits for at most two commits. One transaction runs at a time: two at once would each have
    half the reports, and most of the work is per transaction.

    :param write: stores reports durably in one transaction, and returns the result of each; may open the database first
    :param max_pending: pending reports of one connection, 1 or more; for all connections, twice as many
    """

    def __init__(self, write: Write, *, max_pending: int = MAX_PENDING) -> None:
        self._write = write
        self._max_pending = max_pending
        self._pending: Counter[str] = Counter()
        self._all_pending = 0
        self._closed = False
        self._queue: SimpleQueue[_Waiting | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    async def submit(self, received: ReceivedReport) -> StoreResult:
        """Return the result of a report once it is stored. Cancelling the wait does not withdraw the report.

        :raises BackpressureError: when too many reports are pending, or the writer is closing; it was not stored
        :raises RejectedDataError: when the database rejects the data of this report; other reports of its transaction
            are stored
        :raises DatabaseError: when the transaction failed; it was not stored
        """
        pending, conn_id = self._pending, received.conn_id
        if self._closed or pending[conn_id] >= self._max_pending or self._all_pending >= 2 * self._max_pending:
            raise BackpressureError(
                "Too many delivery reports at once. Nothing was stored. Send the report again later."
            )
        if self._thread is None:
            # A daemon, so that a stopped server does not wait for it: an uncommitted report was not acknowledged.
            self._thread = threading.Thread(target=self._work, name="cpaas-delivery-writer", daemon=True)
            self._thread.start()
        future: Future[StoreResult] = asyncio.get_running_loop().create_future()
        pending[conn_id] += 1
        self._all_pending += 1
        self._queue.put((received, future))
        return await future

    async def close(self) -> None:
        """Return once all pending reports are stored or have failed. Refuse others until then."""
        thread = self._thread
        if thread is None:
            return
        if not self._closed:
            self._closed = True
            self._queue.put(None)
        await asyncio.to_thread(thread.join)
        if self._thread is thread:
            self._thread, self._closed = None, False

    def _work(self) -> None:
        is_closed = False
        while not is_closed:
            batch = [self._queue.get()]
            with contextlib.suppress(Empty):
                while batch[-1] is not None and len(batch) < MAX_BATCH:
                    batch.append(self._queue.get_nowait())
            waiting = [item for item in batch if item is not None]
            is_closed = len(waiting) < len(batch)
            if waiting:
                self._store(waiting)

    def _store(self, waiting: list[_Waiting]) -> None:
        """Store reports in one transaction. If the database rejects one of them, bisect, so that it fails alone."""
        try:
            results = self._write([received for received, _ in waiting])
        except RejectedDataError as error:
            if len(waiting) == 1:
                self._wake(waiting, error)
                return
            half = len(waiting) // 2
            self._store(waiting[:half])
            self._store(waiting[half:])
        except Exception as error:  # noqa: BLE001 - every waiting request must get the error
            self._wake(waiting, error)
        else:
            self._wake(waiting, results)

    def _wake(self, waiting: list[_Waiting], outcome: list[StoreResult] | Exception) -> None:
        futures, conn_ids = [future for _, future in waiting], Counter(received.conn_id for received, _ in waiting)
        # Nothing waits on a closed event loop.
        with contextlib.suppress(RuntimeError):
            futures[0].get_loop().call_soon_threadsafe(self._resolve, futures, conn_ids, outcome)

    def _resolve(
        self, futures: list[Future[StoreResult]], conn_ids: Counter[str], outcome: list[StoreResult] | Exception
    ) -> None:
        self._pending -= conn_ids
        self._all_pending -= len(futures)
        if isinstance(outcome, list) and len(outcome) != len(futures):
            outcome = AssertionError("The report writer must return one result for each report.")
        for position, future in enumerate(futures):
            # The request may have been cancelled.
            if not future.done():
                if isinstance(outcome, Exception):
                    future.set_exception(outcome)
                else:
                    future.set_result(outcome[position])
