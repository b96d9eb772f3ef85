"""Waiters in this process alone, driven as the triggerer drives them; what they cost, as the last line of output.

python -m tests.benchmarks.waiting.measured CONTENDER --passcodes N --deliveries N --seconds S --poke-interval I

Says that it is ready once all of them wait, and goes on when a line comes in.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import json
import logging
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict

import psutil
from airflow.triggers.base import BaseTrigger

# What is imported is not what a waiter costs.
import cpaas_provider.api.client
import cpaas_provider.hooks.connection  # noqa: F401
from cpaas_provider.triggers.delivery import DeliveryTrigger
from tests.benchmarks.waiting.contenders import KINDS, common_store, triggers
from tests.benchmarks.waiting.cost import Collections, Cost, Counting, StoreUse, lag_noted
from tests.benchmarks.waiting.messages import Messages
from tests.benchmarks.waiting.reporting import READY

MIB = 1024 * 1024
TOLD_WITHIN = 30.0
"""Seconds until the last report that came in has ended its wait."""
ENDS_WITHIN = 60.0


async def run_trigger(trigger: BaseTrigger, cost: Cost) -> None:
    """Do with a trigger what the triggerer does: take its events, and clean up whatever ends it."""
    try:
        async for event in trigger.run():
            if isinstance(trigger, DeliveryTrigger) and event.payload["outcome"] == "done":
                cost.told[trigger.campaigns[0]] = time.monotonic()
    finally:
        with contextlib.suppress(Exception):
            await trigger.cleanup()


async def start(waiting: Iterator[BaseTrigger], cost: Cost) -> list[asyncio.Task[None]]:
    began, tasks = time.perf_counter(), []
    for trigger in waiting:
        # As create_triggers() does between two of them.
        await asyncio.sleep(0)
        tasks.append(asyncio.create_task(run_trigger(trigger, cost)))
    cost.started = time.perf_counter() - began
    return tasks


async def told_to_go_on() -> None:
    """Return when a line comes in."""
    loop, told = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), told.set)
    await told.wait()
    loop.remove_reader(sys.stdin.fileno())


async def watch(messages: Messages, cost: Cost, use: StoreUse) -> None:
    """Note what waiting costs while reports come in, then see the last of them told."""
    process, asked, began = psutil.Process(), use.statements, time.perf_counter()
    cpu = process.cpu_times()
    await asyncio.sleep(messages.seconds)
    spent, lasted = process.cpu_times(), time.perf_counter() - began
    cost.cpu = (spent.user + spent.system - cpu.user - cpu.system) / lasted
    cost.queries = (use.statements - asked) / lasted
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(TOLD_WITHIN):
            while len(cost.told) < len(messages.ended):  # noqa: ASYNC110 - nothing tells
                await asyncio.sleep(0.1)


async def end(tasks: list[asyncio.Task[None]], cost: Cost) -> None:
    began = time.perf_counter()
    for task in tasks:
        # As cancel_triggers() does.
        task.cancel()
        await asyncio.sleep(0)
    async with asyncio.timeout(ENDS_WITHIN):
        await asyncio.gather(*tasks, return_exceptions=True)
    cost.ended = time.perf_counter() - began


async def measure(contender: str, passcodes: int, messages: Messages, poke_interval: float) -> Cost:
    process, cost = psutil.Process(), Cost()
    if messages.waiters:
        # What a first connection loads is not what a waiter costs either.
        common_store().close()
    gc.collect()
    collections, use = Collections(), StoreUse()
    before = process.memory_info().rss
    async with lag_noted(cost.lags, cost.busy):
        tasks = await start(triggers(contender, passcodes, messages, poke_interval), cost)
        print(READY, flush=True)
        await told_to_go_on()
        waiting = process.memory_info().rss
        await watch(messages, cost, use)
        cost.memory = (max(waiting, process.memory_info().rss) - before) / MIB
        await end(tasks, cost)
    cost.longest_collection, cost.store_connections = collections.longest, use.most_open
    return cost


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.waiting.measured")
    parser.add_argument("contender", choices=KINDS)
    parser.add_argument("--passcodes", type=int, required=True)
    parser.add_argument("--deliveries", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--poke-interval", type=float, required=True)
    given = parser.parse_args()
    counting = Counting()
    logging.getLogger("cpaas_provider").addHandler(counting)
    messages = Messages(given.deliveries, given.seconds)
    cost = asyncio.run(measure(given.contender, given.passcodes, messages, given.poke_interval))
    cost.log_lines = counting.count
    print(json.dumps(asdict(cost)))


if __name__ == "__main__":
    main()
