"""Waits in this process alone, driven as the triggerer drives them: ``python -m tests.benchmarks.outage.triggerer``.

The first line of input is the arguments as JSON: ``{"campaigns": [...], "passcodes": [...], "deadline": "..."}``. Each
later line is the connection as JSON, from when on it is edited. The output has one line of JSON for each event, and one
a second with the number of queries until then.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from typing import Any

from airflow.triggers.base import BaseTrigger

from cpaas_provider.triggers.delivery import DeliveryTrigger
from cpaas_provider.triggers.otp import OtpStatusTrigger
from tests.benchmarks.waiting.cost import StoreUse
from tests.benchmarks.waiting.messages import CONN_ID

PASSCODE_INTERVAL = 10.0


def write(**values: Any) -> None:
    print(json.dumps({**values, "at": time.monotonic()}), flush=True)


async def run(name: str, trigger: BaseTrigger) -> None:
    async for event in trigger.run():
        write(name=name, outcome=event.payload["outcome"])


async def write_queries(use: StoreUse) -> None:
    while True:
        write(queries=use.statements)
        await asyncio.sleep(1)


async def edit_connection() -> None:
    while line := await asyncio.to_thread(sys.stdin.readline):
        os.environ[f"AIRFLOW_CONN_{CONN_ID.upper()}"] = line.strip()


async def main() -> None:
    arguments = json.loads(sys.stdin.readline())
    deadline, tasks = arguments["deadline"], []
    reporting = asyncio.create_task(write_queries(StoreUse()))
    editing = asyncio.create_task(edit_connection())
    for name in arguments["campaigns"]:
        tasks.append(asyncio.create_task(run(name, DeliveryTrigger([name], 1, None, deadline, 1.0))))
        # As create_triggers() does between two of them.
        await asyncio.sleep(0)
    for name in arguments["passcodes"]:
        tasks.append(asyncio.create_task(run(name, OtpStatusTrigger(CONN_ID, name, deadline, PASSCODE_INTERVAL))))
        await asyncio.sleep(0)
    write(started=len(tasks))
    await asyncio.gather(*tasks)
    reporting.cancel()
    editing.cancel()
    # The thread that reads the input does not end by itself.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(main())
