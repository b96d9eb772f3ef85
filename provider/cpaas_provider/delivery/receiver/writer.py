"""Group commit: what arrives while one transaction runs goes into the next, all of it together."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from asyncio import Future
from collections import Counter
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Protocol

from cpaas_provider.database.errors import RejectedDataError
from cpaas_provider.delivery.receiver.received import Arrival, Kept

Write = Callable[[Sequence[Arrival]], list[Kept]]

ROOM = 2000
"""Arrivals of one connection in hand; of all, twice as many."""

MOST_AT_ONCE = 500
"""Arrivals in one transaction, so that none takes long."""

_Waiting = tuple[Arrival, "Future[Kept]"]


class DeskFullError(Exception):
    """More reports arrived than can be stored now, or the writer is closed. The report was not stored."""


class TakesArrivals(Protocol):
    """What stores arrivals for good."""

    async def hand_in(self, arrival: Arrival) -> Kept:
        """Return once it is stored."""
        ...

    async def close(self) -> None:
        """Store what is in hand."""
        ...


class Desk:
    """Takes arrivals from one event loop and stores them in a thread of its own.

    A transaction begins with the first arrival, without waiting for more. What arrives before its commit goes into the
    next one, so an arrival waits for at most two commits. Beginning the next one before it would halve its size,
    and most of the work is by transaction.

    :param write: stores arrivals in one transaction, durably, and returns what became of each
    :param room: how many of one connection may be in hand, 1 or more; of all, twice as many
    """

    def __init__(self, write: Write, *, room: int = ROOM) -> None:
        self._write = write
        self._room = room
        self._in_hand: Counter[str] = Counter()
        self._closed = False
        self._queue: SimpleQueue[_Waiting | None] = SimpleQueue()
        # A daemon, lest a server that is killed waits for it: what was not committed was not acknowledged.
        self._thread = threading.Thread(target=self._work, name="cpaas-delivery-writer", daemon=True)
        self._thread.start()

    async def hand_in(self, arrival: Arrival) -> Kept:
        """Return what became of an arrival, once it is stored for good. Giving up waiting does not take it back.

        :raises DeskFullError: when there is no room, or the desk is closed; it was not stored
        :raises RejectedDataError: when the database rejects what this one says; those that came with it are stored
        :raises DatabaseError: when the transaction failed; nothing of it was stored
        """
        held = self._in_hand
        if self._closed or held[arrival.conn_id] >= self._room or held.total() >= 2 * self._room:
            raise DeskFullError("Too many delivery reports at once. Nothing was stored. Send the report again later.")
        future: Future[Kept] = asyncio.get_running_loop().create_future()
        held[arrival.conn_id] += 1
        self._queue.put((arrival, future))
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
                while batch[-1] is not None and len(batch) < MOST_AT_ONCE:
                    batch.append(self._queue.get_nowait())
            waiting = [one for one in batch if one is not None]
            going_on = len(waiting) == len(batch)
            if waiting:
                self._store(waiting)

    def _store(self, waiting: list[_Waiting]) -> None:
        """Write them together; where the database rejects one of them, bisect, so that it fails alone."""
        try:
            results = self._write([arrival for arrival, _ in waiting])
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

    def _wake(self, waiting: list[_Waiting], outcome: list[Kept] | Exception) -> None:
        futures, conn_ids = [future for _, future in waiting], Counter(arrival.conn_id for arrival, _ in waiting)
        # A loop that is closed has nobody left who waits.
        with contextlib.suppress(RuntimeError):
            futures[0].get_loop().call_soon_threadsafe(self._tell, futures, conn_ids, outcome)

    def _tell(self, futures: list[Future[Kept]], conn_ids: Counter[str], outcome: list[Kept] | Exception) -> None:
        self._in_hand -= conn_ids
        if isinstance(outcome, list) and len(outcome) != len(futures):
            outcome = AssertionError("The report writer must return one result for each report.")
        for place, future in enumerate(futures):
            # Somebody may have given up waiting.
            if not future.done():
                if isinstance(outcome, Exception):
                    future.set_exception(outcome)
                else:
                    future.set_result(outcome[place])


class DeskWhenNeeded:
    """A desk that is opened, off the loop, by the first who hands something in.

    :param open_desk: opens the store, which may block; called again by the next arrival when it failed
    """

    def __init__(self, open_desk: Callable[[], TakesArrivals]) -> None:
        self._open_desk = open_desk
        self._opening: Future[TakesArrivals] | None = None
        self._desk: TakesArrivals | None = None

    async def hand_in(self, arrival: Arrival) -> Kept:
        """Return what became of an arrival.

        :raises DeskFullError: as ``Desk``
        :raises DatabaseError: as ``Desk``, and when the store cannot be opened
        """
        desk = self._desk or await self._opened()
        return await desk.hand_in(arrival)

    async def close(self) -> None:
        """Store what is in hand. The next arrival opens it anew."""
        desk, self._desk = self._desk, None
        if desk is not None:
            await desk.close()

    async def _opened(self) -> TakesArrivals:
        if self._opening is None:
            self._opening = asyncio.ensure_future(asyncio.to_thread(self._open_desk))
            self._opening.add_done_callback(self._take_place)
        # Shielded: one who gives up must not stop it for the others.
        return await asyncio.shield(self._opening)

    def _take_place(self, opening: Future[TakesArrivals]) -> None:
        self._opening = None
        if not opening.cancelled() and opening.exception() is None:
            self._desk = opening.result()
