"""Group commit: what arrives while one transaction runs goes into the next, all of it together."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from asyncio import Future
from collections import Counter
from collections.abc import Callable, Sequence
from queue import Empty, Queue, SimpleQueue
from typing import Protocol

from cpaas_provider.database.errors import RejectedDataError
from cpaas_provider.delivery.receiver.received import Arrival, Kept


class Begun(Protocol):
    """Arrivals that were written together, and are not durable yet."""

    @property
    def result(self) -> list[Kept]:
        """What became of each, in their order."""
        ...

    def finish(self) -> None:
        """Return once they are durable."""
        ...


Begin = Callable[[Sequence[Arrival]], Begun]

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
    """Takes arrivals from one event loop and stores them in two threads of its own.

    A transaction begins with the first arrival at once, never waiting for more. While the disk has it, the next one
    begins: so an arrival waits for one transaction beside its own, and for the disk.

    :param begin: writes arrivals in one transaction
    :param room: how many of one connection may be in hand, 1 or more; of all, twice as many
    """

    def __init__(self, begin: Begin, *, room: int = ROOM) -> None:
        self._begin = begin
        self._room = room
        self._in_hand: Counter[str] = Counter()
        self._closed = False
        self._queue: SimpleQueue[_Waiting | None] = SimpleQueue()
        self._unfinished: Queue[tuple[Begun, list[_Waiting]] | None] = Queue()
        # Daemons, lest a server that is killed waits for them: what was not committed was not acknowledged.
        self._threads = [
            threading.Thread(target=work, name=f"cpaas-delivery-{name}", daemon=True)
            for name, work in (("desk", self._work), ("disk", self._finish))
        ]
        for thread in self._threads:
            thread.start()

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
        for thread in self._threads:
            await asyncio.to_thread(thread.join)

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
        self._unfinished.put(None)

    def _store(self, waiting: list[_Waiting]) -> None:
        """Write them together; where the database rejects one of them, bisect, so that it fails alone."""
        try:
            begun = self._begin([arrival for arrival, _ in waiting])
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
            # One at a time waits for the disk: meanwhile enough arrives for the next to be worth its while.
            self._unfinished.join()
            self._unfinished.put((begun, waiting))

    def _finish(self) -> None:
        while (unfinished := self._unfinished.get()) is not None:
            begun, waiting = unfinished
            try:
                begun.finish()
            except Exception as error:  # noqa: BLE001 - whatever it is, those who wait have to know
                self._wake(waiting, error)
            else:
                self._wake(waiting, begun.result)
            finally:
                self._unfinished.task_done()

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
