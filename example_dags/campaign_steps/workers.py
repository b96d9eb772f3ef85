"""Several requests at a time, within the connection's limit."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

log = logging.getLogger(__name__)

PROGRESS_INTERVAL = 5.0  # seconds between progress log lines


async def for_each(items: Sequence[Any], work: Callable[[Any], Awaitable[None]], *, workers: int, doing: str) -> None:
    """Do the work for every item, some at a time, and log the progress regularly.

    After an error no new item is started. Items in progress are awaited, because the outcome of an interrupted request
    would be unknown. Then the first error is raised.
    """
    waiting = iter(items)
    errors: list[Exception] = []
    done = 0
    logged = time.monotonic()

    async def worker() -> None:
        nonlocal done, logged
        for item in waiting:
            try:
                await work(item)
            except Exception as error:  # noqa: BLE001 - it is raised below, when the others have ended
                errors.append(error)
            if errors:
                return
            done += 1
            if time.monotonic() - logged >= PROGRESS_INTERVAL:
                logged = time.monotonic()
                log.info("%s: %d of %d", doing, done, len(items))

    async with asyncio.TaskGroup() as group:
        for _ in range(min(workers, len(items))):
            group.create_task(worker())
    log.info("%s: %d of %d", doing, done, len(items))
    if errors:
        raise errors[0]
