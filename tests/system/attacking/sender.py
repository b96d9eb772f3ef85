"""Honest reports at a steady rate, each of them sent until it is acknowledged."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import random
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import httpx

from cpaas_provider.delivery.callbacks.tokens import CallbackToken
from tests.system.attacking.places import HONEST, Place

RATE = 50.0
PAUSES = (0.2, 3.0)
"""Seconds from an answer to the first repeat, and to any repeat at most: all that wait must not come at once."""

PATIENCE = 120.0
"""Seconds until a receiver that was stopped has to take reports again, and a report has to be acknowledged."""

LOOK = 0.02


@dataclass
class Acknowledged:
    """What came of reports.

    :param repeated: of those acknowledged, how many were sent more than once
    :param lost: how many were acknowledged and are not in the database
    :param twice: how many are in the database more than once
    """

    acknowledged: int = 0
    repeated: int = 0
    unacknowledged: int = 0
    lost: int = 0
    twice: int = 0

    def violations(self) -> list[str]:
        """Return what must not be, in words."""
        found = [
            (not self.acknowledged, "no report was acknowledged"),
            (self.lost, f"{self.lost} acknowledged reports are lost"),
            (self.twice, f"{self.twice} reports are stored more than once"),
            (self.unacknowledged, f"{self.unacknowledged} reports were never acknowledged"),
        ]
        return [words for is_so, words in found if is_so]

    def __str__(self) -> str:
        return (
            f"{self.acknowledged} reports acknowledged ({self.repeated} after a repeat), {self.lost} lost, "
            f"{self.twice} stored twice, {self.unacknowledged} never acknowledged"
        )


@dataclass
class Sender:
    """Sends reports as a service does that calls back: each by a connection of its own.

    :param timeout: seconds until it takes a report for not answered
    :param answers: what reports were answered, or the errors there were instead
    """

    place: Place
    timeout: float
    number: int = 0
    answers: Counter[str] = field(default_factory=Counter)
    acknowledged: set[str] = field(default_factory=set)
    newest: int = -1
    """The highest number that was acknowledged."""
    last: float = field(default_factory=time.monotonic)
    """When a report was acknowledged for the last time."""
    _chance: random.Random = field(default_factory=lambda: random.Random(7))
    _repeated: int = 0
    _unacknowledged: int = 0

    async def send_until(self, over: asyncio.Event) -> None:
        """Send until it is over, and until all of it is acknowledged."""
        begun, running = time.monotonic(), set[asyncio.Task[None]]()
        path = self.place.path(CallbackToken("steady", "steady-1", 100_000))
        async with httpx.AsyncClient(
            base_url=self.place.url,
            timeout=self.timeout,
            trust_env=False,
            verify=False,
            limits=httpx.Limits(max_keepalive_connections=0),
        ) as client:
            for number in itertools.count():
                if over.is_set():
                    break
                await asyncio.sleep(max(0.0, begun + number / RATE - time.monotonic()))
                self.number = number
                running.add(asyncio.create_task(self._send(client, path, number)))
            await asyncio.gather(*running)

    async def _send(self, client: httpx.AsyncClient, path: str, number: int) -> None:
        body = json.dumps({"id": f"steady-{number}", "recipient": f"23480400{number:05d}", "status": "delivered"})
        headers = {"content-type": "application/json"}
        give_up_at = time.monotonic() + PATIENCE
        for attempt in itertools.count():
            try:
                answer = str((await client.post(path, content=body, headers=headers)).status_code)
            except httpx.TransportError as error:
                answer = type(error).__name__
            self.answers[answer] += 1
            if answer == "200":
                self.acknowledged.add(body)
                self.newest, self.last = max(self.newest, number), time.monotonic()
                self._repeated += bool(attempt)
                return
            if time.monotonic() > give_up_at:
                self._unacknowledged += 1
                return
            await asyncio.sleep(min(PAUSES[0] * 2 ** min(attempt, 10), PAUSES[1]) * self._chance.uniform(0.5, 1.0))

    async def until_one_is_acknowledged(self, after: str) -> float:
        """Wait for that, whenever it was sent, and return how many seconds it took.

        :raises TimeoutError: when it takes too long
        """
        begun = time.monotonic()
        while self.last <= begun:
            if time.monotonic() > begun + PATIENCE:
                raise TimeoutError(f"no report was taken within {PATIENCE:g} s of {after}")
            await asyncio.sleep(LOOK)
        return self.last - begun

    async def until_one_sent_from_now_on_is_acknowledged(self, after: str) -> float:
        """Wait for that, and return how many seconds it took.

        :raises TimeoutError: when it takes too long
        """
        begun, before = time.monotonic(), self.number
        while self.newest <= before:
            if time.monotonic() > begun + PATIENCE:
                raise TimeoutError(f"no report was taken within {PATIENCE:g} s of {after}")
            await asyncio.sleep(LOOK)
        return time.monotonic() - begun

    async def until_none_is_acknowledged(self, seconds: float, by: str) -> None:
        """Wait until no report has been acknowledged for some time.

        :raises TimeoutError: when that does not come to be
        """
        begun = time.monotonic()
        while time.monotonic() < max(begun, self.last) + seconds:
            if time.monotonic() > begun + PATIENCE:
                raise TimeoutError(f"reports were taken for {PATIENCE:g} s in spite of {by}")
            await asyncio.sleep(LOOK)

    def count(self, outcome: Acknowledged) -> None:
        """Compare what was acknowledged with what is in the database, once all is sent."""
        stored = Counter(self.place.stored(HONEST))
        outcome.acknowledged = len(self.acknowledged)
        outcome.repeated, outcome.unacknowledged = self._repeated, self._unacknowledged
        outcome.lost = len(self.acknowledged - stored.keys())
        outcome.twice = sum(1 for times in stored.values() if times > 1)


@contextlib.asynccontextmanager
async def sending(sender: Sender) -> AsyncIterator[None]:
    """Have reports sent for as long as the block lasts, and until all of them are acknowledged."""
    over = asyncio.Event()
    running = asyncio.create_task(sender.send_until(over))
    try:
        yield
    finally:
        over.set()
    await running
