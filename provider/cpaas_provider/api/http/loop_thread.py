"""An event loop in a thread of its own, for blocking code that shares its work with asynchronous code."""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar

T = TypeVar("T")


class ClosedError(Exception):
    """The loop was closed while work was under way."""


class LoopThread:
    """Runs coroutines for any number of threads. The thread starts with the first, and ends with ``close``."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._process = 0
        self._stop: weakref.finalize[Any, Any] | None = None

    @property
    def is_of_this_process(self) -> bool:
        """Whether the thread runs here; a fork leaves it behind."""
        return self._loop is not None and self._process == os.getpid()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Return what the work returns, or raise what it raises; it is cancelled when the wait for it is interrupted.

        :raises ClosedError: when the loop is closed before the work is done
        """
        future: Future[T] = asyncio.run_coroutine_threadsafe(work, self._started())
        try:
            return future.result()
        except CancelledError:
            raise ClosedError from None
        except BaseException:
            future.cancel()
            raise

    def close(self, last: Coroutine[Any, Any, object] | None = None) -> None:
        """Cancel what is under way, run the last work, and end the thread."""
        with self._lock:
            loop, stop = self._loop, self._stop
            is_here = self.is_of_this_process
            self._loop = self._stop = None
        if loop is None or stop is None or not is_here:
            if last is not None:
                last.close()
            return
        asyncio.run_coroutine_threadsafe(_end(last), loop).result()
        stop()

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None or not self.is_of_this_process:
                loop = self._loop = asyncio.new_event_loop()
                self._process = os.getpid()
                threading.Thread(target=_run, args=(loop,), name="cpaas-client", daemon=True).start()
                # A client that is not closed takes its thread along when it is collected.
                self._stop = weakref.finalize(self, _stop, loop, self._process)
                self._stop.atexit = False
            return self._loop


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        loop.close()


def _stop(loop: asyncio.AbstractEventLoop, process: int) -> None:
    if process == os.getpid():
        loop.call_soon_threadsafe(loop.stop)


async def _end(last: Coroutine[Any, Any, object] | None) -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    if last is not None:
        await last
