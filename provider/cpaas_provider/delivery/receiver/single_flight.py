"""A call that blocks, made once for all who ask at the same time, and waited for no longer than one cares to."""

from __future__ import annotations

import asyncio
from asyncio import Task
from collections.abc import Callable
from typing import Generic, TypeVar

Found = TypeVar("Found")


class SingleFlight(Generic[Found]):
    """However many ask, one thread is busy with it. Made for one event loop.

    :param work: what is called, in a thread
    """

    def __init__(self, work: Callable[[], Found]) -> None:
        self._work = work
        self._task: Task[Found] | None = None

    async def result(self, seconds: float) -> Found:
        """Return what it returns, or raise what it raises.

        :raises TimeoutError: when it takes longer; it goes on, and the next caller waits for the same call
        """
        if self._task is None:
            self._task = asyncio.create_task(asyncio.to_thread(self._work))
            self._task.add_done_callback(self._ended)
        # Shielded: one who gives up must not stop it for the others.
        return await asyncio.wait_for(asyncio.shield(self._task), seconds)

    def _ended(self, task: Task[Found]) -> None:
        self._task = None
        # Asked for here, as all who waited may have given up.
        if not task.cancelled():
            task.exception()
