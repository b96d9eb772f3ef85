"""A receiver that is killed again and again while reports come in: all of it, a worker, or what forks the workers."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import random
import time
from collections import Counter
from dataclasses import dataclass, field

import httpx
import psutil

from cpaas_provider.delivery.tickets import Ticket
from tests.receivers import forking, workers
from tests.system.attacking.places import HONEST, Place

RATE = 50.0
TIMEOUT = 10.0
PAUSE = 0.2
PATIENCE = 120.0
"""Seconds until a receiver that was killed has to take reports again, and a report has to be acknowledged."""

WORKER, FIRST, FORKER = "worker", "first process", "process that forks"
VICTIMS = (WORKER, FIRST, FORKER)

QUIET = (0.5, 2.5)
"""Seconds from one recovery to the next kill."""


@dataclass
class Outcome:
    """What came of it.

    :param lost: reports that were acknowledged and are not in the database
    :param back: seconds from each kill, or from the start that followed it, until a new report was acknowledged
    """

    kills: Counter[str] = field(default_factory=Counter)
    acknowledged: int = 0
    repeated: int = 0
    unacknowledged: int = 0
    lost: int = 0
    back: dict[str, list[float]] = field(default_factory=dict)

    def violations(self) -> list[str]:
        """Return what must not be, in words."""
        found = [
            (self.lost, f"{self.lost} acknowledged reports are lost"),
            (self.unacknowledged, f"{self.unacknowledged} reports were never acknowledged"),
        ]
        return [words for is_so, words in found if is_so]

    def __str__(self) -> str:
        back = "; ".join(f"{victim}: {min(took):.1f} to {max(took):.1f} s" for victim, took in self.back.items())
        return (
            f"{dict(self.kills)} killed, {self.acknowledged} reports acknowledged ({self.repeated} after a repeat), "
            f"{self.lost} lost, {self.unacknowledged} never acknowledged; back after {back}"
        )


def killed(place: Place, kills: int, seed: int) -> Outcome:
    """Kill a receiver so often, and return what was seen."""
    outcome = Outcome()
    sender = _Sender(place, outcome)
    asyncio.run(_run(place, kills, random.Random(seed), sender))
    stored = set(place.stored(HONEST))
    outcome.acknowledged = len(sender.acknowledged)
    outcome.lost = len(sender.acknowledged - stored)
    return outcome


async def _run(place: Place, kills: int, chance: random.Random, sender: _Sender) -> None:
    over = asyncio.Event()
    sending = asyncio.create_task(sender.send_at_rate(over))
    try:
        for number in range(kills):
            await asyncio.sleep(chance.uniform(*QUIET))
            await _kill(place, chance, sender, VICTIMS[number % len(VICTIMS)])
    finally:
        over.set()
    await sending


async def _kill(place: Place, chance: random.Random, sender: _Sender, victim: str) -> None:
    """Kill a victim; the first process, which is then started again, where there is none such."""
    first = place.started.session
    forker, working = forking(first), workers(first)
    begun = time.monotonic()
    if victim == WORKER and working:
        ending = [chance.choice(working)]
        ending[0].kill()
    elif victim == FORKER and forker:
        ending = [forker, *working]
        forker.kill()
    else:
        victim = FIRST
        ending = place.started.processes()
        with contextlib.suppress(psutil.NoSuchProcess):
            psutil.Process(first).kill()
        place.start_again()
    while any(_runs(one) for one in ending):
        await asyncio.sleep(0.02)
    # One that was sent after the last of them ended, so that others took it.
    before = sender.number
    while sender.last_acknowledged <= before:
        if time.monotonic() > begun + PATIENCE:
            raise TimeoutError(f"no report was taken within {PATIENCE:g} s of a kill ({victim})")
        await asyncio.sleep(0.02)
    sender.outcome.kills[victim] += 1
    sender.outcome.back.setdefault(victim, []).append(time.monotonic() - begun)


def _runs(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


class _Sender:
    """Sends reports at a steady rate, each of them until it is acknowledged."""

    def __init__(self, place: Place, outcome: Outcome) -> None:
        self.outcome = outcome
        self.acknowledged: set[str] = set()
        self.number = 0
        self.last_acknowledged = -1
        self._url = place.url
        self._path = place.path(Ticket("killed", "killed-1", 100_000))

    async def send_at_rate(self, over: asyncio.Event) -> None:
        """Send until it is over, and until all of it is acknowledged."""
        # As a service does that calls back: each report by a connection of its own.
        limits = httpx.Limits(max_keepalive_connections=0)
        begun, running = time.monotonic(), set[asyncio.Task[None]]()
        async with httpx.AsyncClient(
            base_url=self._url, timeout=TIMEOUT, trust_env=False, verify=False, limits=limits
        ) as client:
            for number in itertools.count():
                if over.is_set():
                    break
                await asyncio.sleep(max(0.0, begun + number / RATE - time.monotonic()))
                self.number = number
                running.add(asyncio.create_task(self._send(client, number)))
            await asyncio.gather(*running)

    async def _send(self, client: httpx.AsyncClient, number: int) -> None:
        body = json.dumps({"id": f"killed-{number}", "recipient": f"23480400{number:05d}", "status": "delivered"})
        headers = {"content-type": "application/json"}
        give_up_at = time.monotonic() + PATIENCE
        for attempt in itertools.count():
            with contextlib.suppress(httpx.TransportError):
                if (await client.post(self._path, content=body, headers=headers)).status_code == 200:
                    self.acknowledged.add(body)
                    self.last_acknowledged = max(self.last_acknowledged, number)
                    self.outcome.repeated += bool(attempt)
                    return
            if time.monotonic() > give_up_at:
                self.outcome.unacknowledged += 1
                return
            await asyncio.sleep(PAUSE)
