"""A receiver that is killed again and again while reports come in: all of it, a worker, or what forks the workers."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections import Counter
from dataclasses import dataclass, field

import psutil

from tests.receivers import forking, workers
from tests.system.attacking.places import Place
from tests.system.attacking.sender import LOOK, PATIENCE, Acknowledged, Sender, sending

TIMEOUT = 10.0

WORKER, FIRST, FORKER = "worker", "first process", "process that forks"
VICTIMS = (WORKER, FIRST, FORKER)

QUIET = (0.5, 2.5)
"""Seconds from one recovery to the next kill."""


@dataclass
class Outcome(Acknowledged):
    """What came of it.

    :param back: seconds from each kill until a report that was sent once the killed had ended was acknowledged
    """

    kills: Counter[str] = field(default_factory=Counter)
    back: dict[str, list[float]] = field(default_factory=dict)

    def __str__(self) -> str:
        back = "; ".join(f"{victim}: {min(took):.1f} to {max(took):.1f} s" for victim, took in self.back.items())
        return f"{dict(self.kills)} killed, {super().__str__()}; back after {back}"


def killed(place: Place, kills: int, seed: int) -> Outcome:
    """Kill a receiver so often, and return what was seen."""
    outcome = Outcome()
    sender = Sender(place, TIMEOUT)
    asyncio.run(_run(place, kills, random.Random(seed), sender, outcome))
    sender.count(outcome)
    return outcome


async def _run(place: Place, kills: int, chance: random.Random, sender: Sender, outcome: Outcome) -> None:
    async with sending(sender):
        for number in range(kills):
            await asyncio.sleep(chance.uniform(*QUIET))
            await _kill(place, chance, sender, outcome, VICTIMS[number % len(VICTIMS)])


async def _kill(place: Place, chance: random.Random, sender: Sender, outcome: Outcome, victim: str) -> None:
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
    # Until then, those who are ending may take some.
    while any(_runs(one) for one in ending):
        if time.monotonic() > begun + PATIENCE:
            raise TimeoutError(f"what should end with it was there {PATIENCE:g} s after a kill ({victim})")
        await asyncio.sleep(LOOK)
    await sender.until_one_sent_from_now_on_is_acknowledged(f"a kill ({victim})")
    outcome.kills[victim] += 1
    outcome.back.setdefault(victim, []).append(time.monotonic() - begun)


def _runs(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False
