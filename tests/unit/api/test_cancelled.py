"""A request that is cancelled at whatever point leaves the client as it was, for all who go on using it."""

from __future__ import annotations

import asyncio
import gc
import itertools
import types
from collections.abc import Callable, Coroutine, Generator
from typing import Any

import pytest

from cpaas_provider.api.client import AsyncCpaasClient
from tests.proxies import proxy_server
from tests.waiting import until

from .conftest import KEY
from .loopback import Loopback, answering

TABLE = {"id": "table-1", "name": "people", "columns": []}


@types.coroutine
def cancelled_at(point: int, call: Coroutine[Any, Any, Any]) -> Generator[Any, Any, int]:
    """Carry out a call whose task is cancelled where it waits for the so-manieth time; return how often it waited."""
    step: Callable[[Any], Any] = call.send
    given: Any = None
    for waits in itertools.count():
        try:
            awaited = step(given)
        except StopIteration:
            return waits
        if waits == point and (task := asyncio.current_task()):
            task.cancel()
        try:
            step, given = call.send, (yield awaited)
        except asyncio.CancelledError as error:
            step, given = call.throw, error
    raise AssertionError("unreachable")


async def was_cancelled(point: int, call: Coroutine[Any, Any, Any]) -> bool:
    """Carry out a call that is cancelled at a point; return whether it got as far as that."""

    async def carry_out() -> int:
        return await cancelled_at(point, call)

    task = asyncio.create_task(carry_out())
    await asyncio.wait((task,))
    return task.cancelled() or task.result() > point


@pytest.mark.parametrize("way", ["direct", "forwarded", "SOCKS"])
@pytest.mark.parametrize("connected", [False, True], ids=["connecting", "on a kept connection"])
async def test_after_a_request_cancelled_at_any_point_the_next_is_answered(connected: bool, way: str) -> None:
    with Loopback(answering(200, TABLE)) as server, proxy_server() as proxy:
        at: dict[str, Any] = {"base_url": server.url}
        if way != "direct":
            at["proxy"] = f"socks5://127.0.0.1:{proxy.port}" if way == "SOCKS" else proxy.url
        for point in itertools.count():
            # A lost connection would be waited for until this time is over.
            async with AsyncCpaasClient(api_key=KEY, max_concurrency=1, timeout=1.0, max_retries=0, **at) as client:
                if connected:
                    await client.get_contact_table()
                cancelled = await was_cancelled(point, client.get_contact_table())
                assert (await client.get_contact_table()).id == TABLE["id"], point
            if not cancelled:
                break
        assert point > (0 if connected else 3), "the points a request waits at were not found"
        # Older versions of anyio leave a connection that came about too late to whoever collects garbage.
        gc.collect()
        until(lambda: not server.open)
