"""A blocking call, made once for all concurrent callers, each with its own time limit."""

from __future__ import annotations

import asyncio
from asyncio import Task
from collections.abc import Callable
from typing import Generic, TypeVar

Found = TypeVar("Found")


class SingleFlight(Generic[Found]):
    """Shares one call between concurrent callers. For one event loop.

    :param work: is called in a thread
    """

    def __init__(self, work: Callable[[], Found]) -> None:
        self._work = work
        self._task: Task[Found] | None = None

    async def result(self, seconds: float) -> Found:
        """Return or raise what the call returns or raises.

        :raises TimeoutError: when it takes longer; the call goes on, and the next caller waits for it
        """
        if self._task is None:
            self._task = asyncio.create_task(asyncio.to_thread(self._work))
            self._task.add_done_callback(self._ended)
        # Shielded, so that one cancelled caller does not cancel the call for the others.
        return await asyncio.wait_for(asyncio.shield(self._task), seconds)

    def _ended(self, task: Task[Found]) -> None:
        self._task = None
        # Retrieved here, because every caller may have been cancelled.
        if not task.cancelled():
            task.exception()
