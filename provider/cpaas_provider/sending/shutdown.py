"""Graceful shutdown: no new request leaves, and requests in flight have a grace period for their responses."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from datetime import timedelta
from typing import Protocol, TypeVar

from cpaas_provider.sending.errors import StoppedError

T = TypeVar("T")

STOP_GRACE = 4.0
"""Seconds to wait for responses after the stop. Airflow kills a task 5 seconds after its signal to end."""

_FLUSH_MARGIN = 1.0
"""Seconds of the grace period kept to write the journal, if the stop came from ``execution_timeout``."""


class AnswerNotAwaitedError(StoppedError):
    """A request was in flight when the task had to end."""


class _Stoppable(Protocol):
    def stop(self) -> None: ...


def _do_nothing() -> None: ...


class StopSignal:
    """Tells a task that it must end, and how long it may wait for responses before.

    ``on_kill`` calls ``request``, in a signal handler. The thread of the task calls all other methods. The grace period
    ends early enough to write the journal, even if a response never arrives.

    :param grace: seconds to wait for responses after the stop
    :param execution_timeout: the task's ``execution_timeout``. The stop comes so much earlier that the journal is
        written before Airflow ends the task; ``None`` without one
    :param began: the monotonic time at which ``execution_timeout`` began; ``None`` for now
    """

    def __init__(
        self, grace: float = STOP_GRACE, execution_timeout: timedelta | None = None, began: float | None = None
    ) -> None:
        self._grace = grace
        self._requested_at: float | None = None
        self._deadline: float | None = None
        self._wake: Callable[[], object] = _do_nothing
        if execution_timeout is not None:
            seconds = execution_timeout.total_seconds()
            self._grace = min(grace, seconds / 2)
            self._deadline = (time.monotonic() if began is None else began) + seconds - self._grace

    def request(self) -> None:
        """Request the stop. Safe in a signal handler, and more than once."""
        if self._requested_at is None:
            self._requested_at = time.monotonic()
        self._wake()

    async def wait(self) -> None:
        """Return once no new request may begin. Only one coroutine may wait at a time."""
        loop, woken = asyncio.get_running_loop(), asyncio.Event()
        # A signal handler must not touch the event loop directly.
        self._wake = lambda: loop.call_soon_threadsafe(woken.set)
        try:
            while not self.requested:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(woken.wait(), self._seconds_left())
        finally:
            self._wake = _do_nothing

    async def finish(self, work: Awaitable[T], client: _Stoppable | None = None) -> T:
        """Return what ``work`` returns, or raise what it raises. After the stop, ``work`` has the grace period.

        :param client: a client to stop when the stop is requested, so that no further request leaves
        :raises StoppedError: when the stop came before ``work`` began
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
            # What is cancelled may record how it ended.
            await asyncio.wait({task, stopped})

    async def sleep(self, seconds: float) -> None:
        """Sleep, until the stop at most.

        :raises StoppedError: when the stop is requested
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.wait()
        self.raise_if_stopped()

    @property
    def grace_left(self) -> float:
        """The seconds left to wait for responses, after the stop."""
        return self._seconds_left() or 0.0

    @property
    def requested(self) -> bool:
        """Whether the stop is requested, so that no new request may begin."""
        return self._stopped_at() is not None

    def raise_if_stopped(self) -> None:
        """Raise if the stop is requested.

        :raises StoppedError: when it is
        """
        if self.requested:
            raise StoppedError(f"{self.reason} Nothing more was sent. A retry of the task continues from here.")

    def _stopped_at(self) -> float | None:
        """Return the time of the stop; ``None`` if it has not come."""
        if self._deadline is not None and time.monotonic() >= self._deadline:
            return self._deadline if self._requested_at is None else min(self._deadline, self._requested_at)
        return self._requested_at

    def _seconds_left(self) -> float | None:
        """Return the seconds until the stop or, after it, until the end of the grace period; ``None`` for no limit."""
        stopped_at = self._stopped_at()
        if stopped_at is None:
            return None if self._deadline is None else max(0.0, self._deadline - time.monotonic())
        # Airflow ends the task a grace period after the deadline: the journal must be written by then.
        margin = min(_FLUSH_MARGIN, self._grace / 4) if stopped_at == self._deadline else 0.0
        return max(0.0, stopped_at + self._grace - margin - time.monotonic())

    @property
    def reason(self) -> str:
        """Why the task ends, as a sentence."""
        if self._requested_at is not None:
            return "Airflow stopped the task."
        if self.requested:
            return "The task's execution_timeout is about to end it."
        # No stop was requested: the asyncio task was cancelled, for example by Ctrl-C.
        return "The task was interrupted."


async def in_thread(work: Callable[[], T]) -> T:
    """Run blocking work in a daemon thread, which does not keep the process from ending if it hangs."""
    future: Future[T] = Future()
    # It cannot be cancelled any more: the work runs on if the waiting coroutine is cancelled.
    future.set_running_or_notify_cancel()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001 - it is raised in the waiting coroutine
            future.set_exception(error)

    threading.Thread(target=run, name="cpaas-blocking", daemon=True).start()
    return await asyncio.wrap_future(future)
