"""Triggers that wait on the same connection or database share one poller: a task that reads for all of them.

A triggerer runs its triggers as tasks of one event loop in one thread. ``dag.test()`` and tests open loops of their
own, one after another or in several threads. So a poller belongs to the loop it was started on, and only that loop's
thread uses it.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
from abc import ABC, abstractmethod
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any, Generic, Self, TypeVar

from airflow.sdk import timezone

from cpaas_provider.api.backoff import backoff as exponential_backoff
from cpaas_provider.triggers._polling.progress import ProgressLog

T = TypeVar("T")
W = TypeVar("W", bound="Waiter[Any]")

SHORTEST_INTERVAL = 1.0
MAX_SLEEP_SECONDS = 60.0
"""The longest sleep: the wall clock may be set meanwhile, so it is read again."""
IDLE_SECONDS = 5.0
"""Seconds a poller stays after the last waiter has left, as the next one often joins soon."""
FIRST_BACKOFF = 0.5
MAX_BACKOFF = 30.0
_YIELD_EVERY = 100
"""Waiters that are served before other tasks of the loop run."""

log = logging.getLogger(__name__)

_pollers: dict[tuple[asyncio.AbstractEventLoop, type[Poller[Any]], str], Poller[Any]] = {}


class WaitEndedError(Exception):
    """The wait ended without a result; ``__cause__`` is the error that ended it."""


class Waiter(Generic[T]):
    """A future with a deadline, made on the event loop it waits on. Each poller derives its own class of waiters.

    :param interval: seconds between two reads, at least 1
    """

    def __init__(self, interval: float = SHORTEST_INTERVAL) -> None:
        self.interval = max(interval, SHORTEST_INTERVAL)
        self.is_last_read = False
        self._future: asyncio.Future[T | None] = asyncio.get_running_loop().create_future()
        self._error: BaseException | None = None
        self._progress = ProgressLog(log)

    def describe(self) -> str | None:
        """Return where the wait stands, without numbers, addresses and codes; ``None`` if that is not known yet."""
        return None

    @property
    def done(self) -> bool:
        """Whether there is a result or an error."""
        return self._future.done()

    def set_result(self, result: T | None) -> None:
        """Set the result; only the first counts."""
        if not self._future.done():
            self._future.set_result(result)

    def set_exception(self, cause: BaseException) -> None:
        """End the wait with an error."""
        if not self._future.done():
            self._error = cause
            self._future.set_result(None)

    async def result(self, until: datetime) -> T | None:
        """Wait for the result and return it.

        :param until: how long to wait for it, with a time zone
        :raises TimeoutError: when it was not there in time; the caller may wait again
        :raises WaitEndedError: when the wait ended with an error
        """
        while not self._future.done():
            left = (until - timezone.utcnow()).total_seconds()
            if left <= 0:
                raise TimeoutError
            await asyncio.wait((self._future,), timeout=min(left, MAX_SLEEP_SECONDS))
            if not self._future.done():
                # In the task of the waiter, so that the line is in the log of the task that waits.
                self._progress.report(self.describe())
        if self._error is not None:
            # A new error for each waiter: one that thousands raise grows with every raise.
            raise WaitEndedError(str(self._error)) from self._error
        return self._future.result()


class Poller(ABC, Generic[W]):
    """Reads for all waiters of one key, from the first waiter until soon after the last.

    A subclass defines a round. Rounds follow one another in one task, so they need no lock. A round that fails is
    repeated, later each time; the first failure in a row is logged. A round that raises ``WaitEndedError`` ends all
    waits with its cause.

    :param key: what the waiters have in common, such as the id of a connection; shown in logs
    """

    def __init__(self, key: str) -> None:
        self.key = key
        self.waiters: set[W] = set()
        self._wake_up = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @abstractmethod
    async def round(self) -> float:
        """Read what is due, set the results, and return the seconds until the next round at the latest."""

    def on_join(self, waiter: W) -> None:
        """Add a new waiter."""

    def on_leave(self, waiter: W) -> None:
        """Remove a waiter that has its result, timed out or was cancelled."""

    def request_last_read(self, waiter: W, within: float) -> bool:
        """Have a waiter's data read for the last time.

        :param within: seconds it may take
        :return: whether it can be read by then
        """
        return False

    async def close(self) -> None:
        """Close what the rounds opened."""

    @classmethod
    async def wait(cls, key: str, waiter: W, deadline: datetime, last_read_seconds: float) -> Any:
        """Wait until a deadline, read a last time then, and return the result; ``None`` if there is none.

        :param last_read_seconds: seconds that the last read may take
        :raises WaitEndedError: when the wait ended with an error
        """
        with cls.joined(key, waiter) as poller:
            with contextlib.suppress(TimeoutError):
                return await waiter.result(deadline)
            if poller.request_last_read(waiter, last_read_seconds):
                with contextlib.suppress(TimeoutError):
                    # Counted from now, because a triggerer that was down may start after the deadline.
                    return await waiter.result(timezone.utcnow() + timedelta(seconds=last_read_seconds))
        return None

    @classmethod
    @contextlib.contextmanager
    def joined(cls, key: str, waiter: W) -> Iterator[Self]:
        """Add a waiter to the poller of the running loop while the block runs."""
        poller = cls._of_running_loop(key)
        poller.waiters.add(waiter)
        poller.on_join(waiter)
        poller._start()
        poller.wake()
        try:
            yield poller
        finally:
            poller.waiters.discard(waiter)
            poller.on_leave(waiter)
            if not poller.waiters:
                poller.wake()

    def wake(self) -> None:
        """Let the next round begin now."""
        self._wake_up.set()

    async def wait_or_wake(self, seconds: float) -> None:
        """Sleep until ``wake`` is called."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(seconds, MAX_SLEEP_SECONDS)):
                await self._wake_up.wait()

    async def sleep(self, seconds: float) -> None:
        """Sleep, whether ``wake`` is called or not."""
        await asyncio.sleep(seconds)

    async def fail_all(self, cause: BaseException) -> None:
        """End all waits with an error, and let other tasks of the loop run in between."""
        for number, waiter in enumerate(tuple(self.waiters), 1):
            waiter.set_exception(cause)
            await yield_to_loop(number)

    @classmethod
    def _of_running_loop(cls, key: str) -> Self:
        loop = asyncio.get_running_loop()
        poller = _pollers.get((loop, cls, key))
        if poller is None:
            for poller_key in [poller_key for poller_key in tuple(_pollers) if poller_key[0].is_closed()]:
                _pollers.pop(poller_key, None)
            poller = _pollers[loop, cls, key] = cls(key)
        assert isinstance(poller, cls)  # noqa: S101 - for the type checker: the class is part of the key
        return poller

    def _start(self) -> None:
        if self._task is None:
            # A context of its own, because in the first waiter's all log lines would go to that task's log.
            loop, context = asyncio.get_running_loop(), contextvars.Context()
            self._task = loop.create_task(self._run(), name=f"{type(self).__name__} {self.key}", context=context)

    async def _run(self) -> None:
        poller_key = (asyncio.get_running_loop(), type(self), self.key)
        failures = 0
        try:
            while await self._has_waiters():
                failures = await self._run_round(failures)
        finally:
            # From here on a new waiter gets another poller.
            if _pollers.get(poller_key) is self:
                del _pollers[poller_key]
            for waiter in tuple(self.waiters):
                waiter.set_exception(RuntimeError(f"The poller for {self.key!r} was stopped."))
            await self.close()

    async def _has_waiters(self) -> bool:
        if not self.waiters:
            self._wake_up.clear()
            await self.wait_or_wake(IDLE_SECONDS)
        return bool(self.waiters)

    async def _run_round(self, failures: int) -> int:
        """Carry out a round and the pause after it; return how many have failed in a row."""
        # The round sees all waiters that joined before it.
        self._wake_up.clear()
        try:
            pause = await self.round()
        except WaitEndedError as ended:
            await self.fail_all(ended.__cause__ or ended)
            # Until they have left, or another waiter joins.
            await self.wait_or_wake(MAX_SLEEP_SECONDS)
        except Exception:  # retried until the deadlines of the waiters
            if not failures:
                log.exception("A poll for %r failed. Sensors keep waiting, and the poll is retried.", self.key)
            await self.sleep(backoff(failures + 1))
            return failures + 1
        else:
            await self.wait_or_wake(pause)
        return 0


async def yield_to_loop(number: int) -> None:
    """Let other tasks of the loop run, whenever the number of served waiters is a multiple of ``_YIELD_EVERY``."""
    if number % _YIELD_EVERY == 0:
        await asyncio.sleep(0)


def backoff(failures: int) -> float:
    """Return the seconds to pause after so many failures in a row, at least 1: exponential, with jitter."""
    return exponential_backoff(failures, FIRST_BACKOFF, MAX_BACKOFF, jitter=0.5)
