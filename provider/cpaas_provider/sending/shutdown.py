"""Graceful shutdown: no new request, and a grace period for responses on their way."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, Protocol, TypeVar

from cpaas_provider.sending.errors import StoppedError

T = TypeVar("T")

STOP_GRACE = 4.0
"""Seconds an answer is waited for after the stop; Airflow kills a task 5 seconds after asking it to end."""

_FLUSH_MARGIN = 1.0


class AnswerNotAwaitedError(StoppedError):
    """A request was in flight when the task had to end."""


class _Stoppable(Protocol):
    def stop(self) -> None: ...


class StopSignal:
    """Says when a task has to end, so that it can end in good order.

    ``request`` is called by ``on_kill``, in a signal handler; everything else by the task's own thread. A response that
    never comes must not keep the task from writing its journal.

    :param grace: seconds an answer is waited for after the stop
    :param execution_timeout: the task's own limit; the stop comes by itself so much earlier that the journal is written
        before Airflow ends the task
    :param began: when Airflow began to count it, by the monotonic clock; ``None`` for now
    """

    def __init__(
        self, grace: float = STOP_GRACE, execution_timeout: timedelta | None = None, began: float | None = None
    ) -> None:
        self._grace = grace
        self._asked_at: float | None = None
        self._own_limit: float | None = None
        self._wake: Callable[[], object] = bool
        if execution_timeout is not None:
            seconds = execution_timeout.total_seconds()
            self._grace = min(grace, seconds / 2)
            self._own_limit = (time.monotonic() if began is None else began) + seconds - self._grace

    def request(self) -> None:
        """Ask for the stop; safe in a signal handler, and more than once."""
        if self._asked_at is None:
            self._asked_at = time.monotonic()
        self._wake()

    async def wait(self) -> None:
        """Return once nothing new may begin, for code on an event loop; one coroutine at a time."""
        loop, asked = asyncio.get_running_loop(), asyncio.Event()
        # What a signal handler calls must not touch the loop itself.
        self._wake = lambda: loop.call_soon_threadsafe(asked.set)
        try:
            while not self.requested:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(asked.wait(), self._limit())
        finally:
            self._wake = bool

    async def finish(self, work: Awaitable[T], client: _Stoppable | None = None) -> T:
        """Return what ``work`` returns, or raise what it raises; after the stop it has the grace period.

        :param client: told to let nothing further leave once the stop is asked
        :raises StoppedError: when the stop came before ``work`` was begun
        :raises AnswerNotAwaitedError: when ``work`` did not end within the grace period
        """
        task, stopped = asyncio.ensure_future(work), asyncio.ensure_future(self.wait())
        try:
            self.raise_if_stopped()
            await asyncio.wait({task, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                if client is not None:
                    client.stop()
                await asyncio.wait({task}, timeout=self.grace_left)
            if task.done():
                return task.result()
            raise AnswerNotAwaitedError(f"{self.reason} A request was in flight, and no response had arrived.")
        finally:
            task.cancel()
            stopped.cancel()
            await asyncio.wait({stopped})

    async def sleep(self, seconds: float) -> None:
        """Let time pass; the stop ends it at once.

        :raises StoppedError: when the stop is asked for
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.wait()
        self.raise_if_stopped()

    @property
    def grace_left(self) -> float:
        """Return the seconds an answer may still be waited for, once the stop is there."""
        return self._limit() or 0.0

    @property
    def requested(self) -> bool:
        """Whether nothing new may begin."""
        return self._since() is not None

    def raise_if_stopped(self) -> None:
        """Raise where nothing new may begin."""
        if self.requested:
            raise StoppedError(f"{self.reason} Nothing more was sent. A retry of the task continues from here.")

    def _since(self) -> float | None:
        """Return the moment of the stop, once it is there."""
        if self._own_limit is not None and time.monotonic() >= self._own_limit:
            return self._own_limit if self._asked_at is None else min(self._own_limit, self._asked_at)
        return self._asked_at

    def _limit(self) -> float | None:
        """Return the seconds to wait for the next event, until the stop or until its last moment is over."""
        since = self._since()
        if since is None:
            return None if self._own_limit is None else max(0.0, self._own_limit - time.monotonic())
        # On our own limit Airflow's follows after the grace: the journal is to be written before.
        early = 0.0 if since != self._own_limit else min(_FLUSH_MARGIN, self._grace / 4)
        return max(0.0, since + self._grace - early - time.monotonic())

    @property
    def reason(self) -> str:
        """Why the task ends, as a sentence."""
        if self._asked_at is not None:
            return "Airflow stopped the task."
        if self.requested:
            return "The task's execution_timeout is about to end it."
        # Such as by Ctrl-C: what runs it was cancelled.
        return "The task was interrupted."


async def in_thread(work: Callable[[], T]) -> T:
    """Return what blocking work returns; a thread that hangs does not hold up the end of the process."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    threading.Thread(target=_resolve, args=(work, loop, future), name="cpaas-blocking", daemon=True).start()
    return await future


def _resolve(work: Callable[[], T], loop: asyncio.AbstractEventLoop, future: asyncio.Future[T]) -> None:
    try:
        result = work()
    except BaseException as error:  # noqa: BLE001 - it is raised in the coroutine that waits
        _hand_over(loop, future, error=error)
    else:
        _hand_over(loop, future, result=result)


def _hand_over(
    loop: asyncio.AbstractEventLoop, future: asyncio.Future[Any], *, result: Any = None, error: Any = None
) -> None:
    def hand_over() -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)

    # The loop is closed where no caller waits any more.
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(hand_over)
