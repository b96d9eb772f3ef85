"""WaitTrigger: a moment, whoever waits for it."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import time

from airflow.sdk import timezone
from airflow.sdk._shared.module_loading import import_string

from cpaas_provider.triggers.wait import WaitTrigger


def in_(seconds: float) -> str:
    return (timezone.utcnow() + dt.timedelta(seconds=seconds)).isoformat()


async def fired(trigger: WaitTrigger) -> object:
    return [event.payload async for event in trigger.run()]


async def test_trigger_fires_once_at_its_moment() -> None:
    until, begin = in_(0.2), time.monotonic()
    assert await fired(WaitTrigger(until)) == [{"until": until}]
    assert 0.15 <= time.monotonic() - begin < 2


async def test_trigger_with_a_past_moment_fires_at_once() -> None:
    async with asyncio.timeout(1):
        assert len(await fired(WaitTrigger(in_(-3600)))) == 1


async def test_deserialized_trigger_waits_for_the_same_moment() -> None:
    path, kwargs = WaitTrigger(in_(0.5)).serialize()
    again = import_string(path)(**json.loads(json.dumps(kwargs)))
    await asyncio.sleep(0.5)
    async with asyncio.timeout(0.4):
        assert await fired(again) == [kwargs]


async def test_waiting_trigger_does_not_block_the_loop() -> None:
    waiting = asyncio.create_task(fired(WaitTrigger(in_(0.3))))
    turns = 0
    while not waiting.done():
        await asyncio.sleep(0.01)
        turns += 1
    assert turns > 5
