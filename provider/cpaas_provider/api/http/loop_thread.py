"""An event loop in a thread of its own, on which blocking code runs coroutines."""

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
    """The loop was closed while a coroutine was running."""


class LoopThread:
    """Runs coroutines for any number of threads. Its thread starts with the first coroutine and ends with ``close``."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._process = 0
        self._stop: weakref.finalize[Any, Any] | None = None

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine and return its result or raise its error. An interrupted wait cancels the coroutine.

        :raises ClosedError: when the loop is closed before the coroutine ends
        """
        future: Future[T] = asyncio.run_coroutine_threadsafe(work, self._started())
        try:
            return future.result()
        except CancelledError:
            raise ClosedError from None
        except BaseException:
            future.cancel()
            raise

    def close(self, cleanup: Coroutine[Any, Any, object]) -> None:
        """Cancel all coroutines, run ``cleanup`` on the loop if its thread runs here, and end the thread."""
        with self._lock:
            loop, stop, process = self._loop, self._stop, self._process
            self._loop = self._stop = None
        if loop is None or stop is None or process != os.getpid():
            cleanup.close()
            return
        asyncio.run_coroutine_threadsafe(_cancel_all(cleanup), loop).result()
        stop()

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            # A forked process does not have its parent's threads.
            if self._loop is None or self._process != os.getpid():
                loop = self._loop = asyncio.new_event_loop()
                self._process = os.getpid()
                threading.Thread(target=_run, args=(loop,), name="cpaas-client", daemon=True).start()
                # Ends the thread if this object is collected without a call of close.
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


async def _cancel_all(cleanup: Coroutine[Any, Any, object]) -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await cleanup
