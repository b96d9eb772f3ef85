"""Waiters in this process alone, driven as the triggerer drives them; what they cost, as the last line of output.

python -m tests.benchmarks.waiting.measured CONTENDER --waiters N --seconds S --poke-interval I
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import json
import logging
import time
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass, field

import psutil
from airflow.triggers.base import BaseTrigger

# What is imported is not what a waiter costs.
import cpaas_provider.api.client
import cpaas_provider.hooks.connection  # noqa: F401
from tests.benchmarks.waiting.contenders import CONTENDERS

LAG_EVERY = 0.010
MIB = 1024 * 1024
ENDS_WITHIN = 60.0


@dataclass
class Cost:
    """What so many waiters cost a process; times in seconds, memory in MiB over what it was before the first."""

    started: float = 0.0
    memory: float = 0.0
    cpu: float = 0.0
    lags: list[float] = field(default_factory=list)
    busy: list[float] = field(default_factory=list)
    ended: float = 0.0
    events: int = 0
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
    """Counts what the triggers log."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.count += 1


async def run_trigger(trigger: BaseTrigger, cost: Cost) -> None:
    """Do with a trigger what the triggerer does: take its events, and clean up whatever ends it."""
    try:
        async for _ in trigger.run():
            cost.events += 1
    finally:
        with contextlib.suppress(Exception):
            await trigger.cleanup()


async def lag_into(lags: list[float], busy: list[float]) -> None:
    """Note how late a coroutine goes on that sleeps 10 ms, and how long the processor worked on the loop meanwhile."""
    while True:
        began, worked = time.perf_counter(), time.thread_time()
        await asyncio.sleep(LAG_EVERY)
        lags.append(time.perf_counter() - began - LAG_EVERY)
        busy.append(time.thread_time() - worked)


@contextlib.asynccontextmanager
async def lag_noted(lags: list[float], busy: list[float]) -> AsyncIterator[None]:
    task = asyncio.create_task(lag_into(lags, busy))
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def measure(name: str, waiters: int, seconds: float, poke_interval: float) -> Cost:
    process, cost = psutil.Process(), Cost()
    make = CONTENDERS[name]
    gc.collect()
    collections = Collections()
    before = process.memory_info().rss
    async with lag_noted(cost.lags, cost.busy):
        began = time.perf_counter()
        tasks = []
        for number in range(waiters):
            # As create_triggers() does between two of them.
            await asyncio.sleep(0)
            tasks.append(asyncio.create_task(run_trigger(make(number, poke_interval), cost)))
        cost.started = time.perf_counter() - began
        cpu = process.cpu_times()
        began = time.perf_counter()
        await asyncio.sleep(seconds)
        spent = process.cpu_times()
        cost.cpu = (spent.user + spent.system - cpu.user - cpu.system) / (time.perf_counter() - began)
        cost.memory = (process.memory_info().rss - before) / MIB
        began = time.perf_counter()
        for task in tasks:
            # As cancel_triggers() does.
            task.cancel()
            await asyncio.sleep(0)
        async with asyncio.timeout(ENDS_WITHIN):
            await asyncio.gather(*tasks, return_exceptions=True)
        cost.ended = time.perf_counter() - began
    cost.longest_collection = collections.longest
    return cost


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.waiting.measured")
    parser.add_argument("contender", choices=CONTENDERS)
    parser.add_argument("--waiters", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--poke-interval", type=float, required=True)
    arguments = parser.parse_args()
    counting = Counting()
    logging.getLogger("cpaas_provider").addHandler(counting)
    cost = asyncio.run(measure(arguments.contender, arguments.waiters, arguments.seconds, arguments.poke_interval))
    cost.log_lines = counting.count
    print(json.dumps(asdict(cost)))


if __name__ == "__main__":
    main()
