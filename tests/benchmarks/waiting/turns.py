"""One contender's turn: those who wait, the service and the receiver, each in a process of its own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import tempfile
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from tests.airflow_home import settings_for, without_airflow
from tests.benchmarks.campaign.bare_server import LATENCY
from tests.benchmarks.waiting.bare_otps import OtpServer
from tests.benchmarks.waiting.messages import CONN_ID
from tests.benchmarks.waiting.reporting import READY
from tests.system.delivering.places import a_store
from tests.unit.database.migrated import POSTGRES

REPOSITORY = Path(__file__).parents[3]
STORES = {"SQLite": None, "PostgreSQL": POSTGRES}
SPARE = 180.0
"""Seconds that all may take for start and end."""
SETTLES_WITHIN = 90.0
AT_ONCE = 64
"""Requests in flight that the connection allows; at the default of 8 no rate above 400 a second is reached."""
_MODULE = "tests.benchmarks.waiting"


class Turn(NamedTuple):
    """A contender, with how many of each kind, at what rate of the connection, on what store."""

    contender: str
    passcodes: int
    deliveries: int
    rate: float
    store: str

    @property
    def waiters(self) -> int:
        return self.passcodes + self.deliveries

    def __str__(self) -> str:
        return f"{self.contender}, {self.waiters:,} waiters, {self.rate:g} requests/s allowed, {self.store}"


@dataclass
class Found:
    """What a turn came to.

    :param cost: a ``Cost``, as its process wrote it
    :param delays: seconds from a report's arrival at the store to the event, of each report that ended a wait
    :param untold: how many reports ended no wait though they should have
    :param took: seconds each transaction of the receiver took
    """

    turn: Turn
    cost: dict[str, Any]
    requests: float
    connections: int
    delays: list[float]
    untold: int
    took: list[float]


async def take(turn: Turn, seconds: float, poke_interval: float) -> Found:
    """Have a contender wait, and return what that cost."""
    with tempfile.TemporaryDirectory(prefix="cpaas-waiting-") as folder:
        home = Path(folder)
        with a_store(STORES[turn.store], home) as store:
            async with OtpServer(LATENCY) as service, asyncio.timeout(seconds + SPARE):
                try:
                    return await _take(turn, seconds, poke_interval, home, store, service)
                except ChildProcessError:
                    sys.exit(_complaints(home))


async def _take(turn: Turn, seconds: float, poke_interval: float, home: Path, store: str, service: OtpServer) -> Found:
    extra = {"requests_per_second": turn.rate, "max_concurrency": AT_ONCE}
    connection = {"conn_type": "cpaas", "host": service.url, "password": "sk_bench", "extra": extra}
    environment = {
        **without_airflow(os.environ),
        **settings_for(home),
        "AIRFLOW__CPAAS__DATABASE": store,
        f"AIRFLOW_CONN_{CONN_ID.upper()}": json.dumps(connection),
        "PYTHONPATH": os.pathsep.join((str(REPOSITORY), str(REPOSITORY / "provider"))),
    }
    both = ["--seconds", str(seconds)]
    receiver = [f"{_MODULE}.reporting", store, "--waiters", str(turn.deliveries), *both]
    waiters = [f"{_MODULE}.measured", turn.contender, "--passcodes", str(turn.passcodes)]
    waiters += ["--deliveries", str(turn.deliveries), "--poke-interval", str(poke_interval), *both]
    async with _running(receiver, environment, home) as reporting, _running(waiters, environment, home) as measured:
        await _with_resolutions(turn, service)
        began = time.monotonic()
        for process in (reporting, measured):
            assert process.stdin
            process.stdin.write(b"\n")
        reported, cost = await asyncio.gather(_last_words(reporting), _last_words(measured))
    came, told = reported["came"], cost["told"]
    return Found(
        turn,
        cost,
        requests=sum(began <= arrival < began + seconds for arrival in service.notes.arrivals) / seconds,
        connections=service.notes.connections,
        delays=[told[name] - arrived for name, arrived in came.items() if name in told],
        untold=len(came.keys() - told.keys()),
        took=reported["took"],
    )


async def _with_resolutions(turn: Turn, service: OtpServer) -> None:
    """Let those who have clients of their own make them first, which takes a while and happens once."""
    wanted = turn.passcodes if turn.contender == "each" else min(turn.passcodes, 1)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(SETTLES_WITHIN):
            while service.notes.connections < wanted:  # noqa: ASYNC110 - nothing tells
                await asyncio.sleep(0.1)


def _complaints(home: Path) -> str:
    said = [f"{log.name}:\n{log.read_text()[-3000:]}" for log in home.glob("*.log")]
    return "\n".join(("Not all of it began, or came to its end.", *said))


@contextlib.asynccontextmanager
async def _running(arguments: list[str], environment: Mapping[str, str], home: Path) -> AsyncIterator[Process]:
    """Run a module until it is over, out of the reach of Ctrl-C; give it once it is ready."""
    with (home / f"{arguments[0]}.log").open("wb") as complained:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", *arguments, cwd=REPOSITORY, env=environment,
            stdin=PIPE, stdout=PIPE, stderr=complained, start_new_session=True,
        )  # fmt: skip
    try:
        assert process.stdout
        if (await process.stdout.readline()).strip() != READY.encode():
            raise ChildProcessError
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _last_words(process: Process) -> dict[str, Any]:
    said, _ = await process.communicate()
    if process.returncode:
        raise ChildProcessError
    return dict(json.loads(said.splitlines()[-1]))
