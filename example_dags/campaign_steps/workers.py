"""Many requests at a time, but not more than the connection allows."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

log = logging.getLogger(__name__)

SECONDS_BETWEEN_REPORTS = 5.0


async def for_each(items: Sequence[Any], work: Callable[[Any], Awaitable[None]], *, workers: int, doing: str) -> None:
    """Do the work for every item, some at a time, and log the progress at a steady pace.

    After an error no new item is begun, but what is under way is awaited: a request that is cut off in the middle may
    or may not have been carried out, and nobody could tell. Then the first error is raised.
    """
    waiting = iter(items)
    errors: list[Exception] = []
    done = 0
    told = time.monotonic()

    async def worker() -> None:
        nonlocal done, told
        for item in waiting:
            try:
                await work(item)
            except Exception as error:  # noqa: BLE001 - it is raised below, when the others have come to an end
                errors.append(error)
            if errors:
                return
            done += 1
            if time.monotonic() - told >= SECONDS_BETWEEN_REPORTS:
                told = time.monotonic()
                log.info("%s: %d of %d", doing, done, len(items))

    async with asyncio.TaskGroup() as group:
        for _ in range(min(workers, len(items))):
            group.create_task(worker())
    log.info("%s: %d of %d", doing, done, len(items))
    if errors:
        raise errors[0]
