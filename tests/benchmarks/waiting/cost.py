"""What waiting costs the process it happens in."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Engine, event
from sqlalchemy.pool import Pool

LAG_EVERY = 0.010


@dataclass
class Cost:
    """What so many waiters cost a process; times in seconds, memory in MiB over what it was before the first."""

    started: float = 0.0
    memory: float = 0.0
    cpu: float = 0.0
    lags: list[float] = field(default_factory=list)
    busy: list[float] = field(default_factory=list)
    ended: float = 0.0
    told: dict[str, float] = field(default_factory=dict)
    """When each that was waited for until it is delivered was told to be so, by the machine's monotonic clock."""
    queries: float = 0.0
    """A second."""
    store_connections: int = 0
    log_lines: int = 0
    longest_collection: float = 0.0


class Collections:
    """Times the garbage collector: a full collection walks all of Airflow, and holds the loop of any triggerer."""

    def __init__(self) -> None:
        self.longest = self._began = 0.0
        gc.callbacks.append(self._noted)

    def _noted(self, phase: str, _: object) -> None:
        now = time.thread_time()
        if phase == "start":
            self._began = now
        else:
            self.longest = max(self.longest, now - self._began)


class Counting(logging.Handler):
    """DeliveryCounts what the triggers log."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.count += 1


class StoreUse:
    """DeliveryCounts the statements that go to the store, and the connections to it that are open at once."""

    def __init__(self) -> None:
        self.statements = self.most_open = self._open = 0
        event.listen(Engine, "before_cursor_execute", self._asked)
        event.listen(Pool, "connect", self._opened)
        event.listen(Pool, "close", self._closed)

    def _asked(self, *_: Any) -> None:
        self.statements += 1

    def _opened(self, *_: Any) -> None:
        self._open += 1
        self.most_open = max(self.most_open, self._open)

    def _closed(self, *_: Any) -> None:
        self._open -= 1


@contextlib.asynccontextmanager
async def lag_noted(lags: list[float], busy: list[float]) -> AsyncIterator[None]:
    """Note how late a coroutine goes on that sleeps 10 ms, and how long the processor worked on the loop meanwhile."""
    task = asyncio.create_task(_lag_into(lags, busy))
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def _lag_into(lags: list[float], busy: list[float]) -> None:
    while True:
        began, worked = time.perf_counter(), time.thread_time()
        await asyncio.sleep(LAG_EVERY)
        lags.append(time.perf_counter() - began - LAG_EVERY)
        busy.append(time.thread_time() - worked)
