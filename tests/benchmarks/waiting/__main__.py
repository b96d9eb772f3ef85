"""What it costs to wait: ``python -m tests.benchmarks.waiting [--waiters N] [--seconds S] [--contenders ...]``.

Each contender waits in a process of its own for passcodes that stay open. This process is the service meanwhile, which
takes 20 ms for an answer. ``shared`` waits twice: at the rate a connection has by default, where a round takes long,
and at one that keeps up with all waiters. Whoever cannot cope with as many waiters gets fewer, and it is said.

Lag is how late a coroutine goes on that sleeps 10 ms. What else runs on the machine is in it; in "busy", the time the
processor worked on the loop without such a coroutine getting its turn, it is not. "GC" is the longest collection of
garbage: a full one walks all that Airflow has loaded, whoever makes objects, and is part of both.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from tests.airflow_home import settings_for, without_airflow
from tests.benchmarks.campaign.bare_server import LATENCY
from tests.benchmarks.waiting.bare_otps import OtpServer

REPOSITORY = Path(__file__).parents[3]
DEFAULT_RATE = 10.0
SPARE = 180.0
"""Seconds a contender may take for its start and end."""
COPES_WITH = {"each": 500}
"""Waiters that are left to a contender on a machine of two cores."""
COLUMNS = (
    "contender", "waiters", "requests/s allowed", "requests/s seen", "connections", "memory MiB", "KiB a waiter",
    "CPU %", "lag p50 ms", "lag p99 ms", "lag most ms", "busy most ms", "GC most ms", "started in s", "ended in s",
    "log lines",
)  # fmt: skip


class Turn(NamedTuple):
    """A contender, with how many waiters and at what rate of the connection."""

    contender: str
    waiters: int
    rate: float


async def main() -> None:
    arguments = _arguments()
    print(f"Every passcode is to be read every {arguments.poke_interval:g} s, for {arguments.seconds:g} s.\n")
    print(f"| {' | '.join(COLUMNS)} |\n|---|{'--:|' * (len(COLUMNS) - 1)}", flush=True)
    turns = [turn for turn in _turns(arguments) if turn.contender in arguments.contenders]
    for turn in turns:
        async with OtpServer(LATENCY) as server:
            cost = await _cost(turn, server.url, arguments)
            print(_line(turn, cost, server), flush=True)
    for turn in turns:
        if turn.contender in COPES_WITH and turn.waiters < arguments.waiters:
            print(f"\n{turn.contender}: {turn.waiters} waiters only; {arguments.waiters} would be too much for it.")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.waiting", description="What it costs to wait")
    parser.add_argument("--waiters", type=int, default=5000)
    parser.add_argument("--seconds", type=float, default=20.0, help="how long each contender is watched")
    parser.add_argument("--poke-interval", type=float, default=10.0, help="seconds between two reads of a passcode")
    parser.add_argument("--contenders", nargs="+", choices=("shared", "each"), default=("shared", "each"))
    return parser.parse_args()


def _turns(arguments: argparse.Namespace) -> list[Turn]:
    keeps_up = max(DEFAULT_RATE, 2 * arguments.waiters / arguments.poke_interval)
    few = min(arguments.waiters, COPES_WITH["each"])
    return [
        Turn("shared", arguments.waiters, DEFAULT_RATE),
        Turn("shared", arguments.waiters, keeps_up),
        Turn("shared", few, keeps_up),
        Turn("each", few, DEFAULT_RATE),
    ]


async def _cost(turn: Turn, url: str, arguments: argparse.Namespace) -> dict[str, Any]:
    extra = {"requests_per_second": turn.rate}
    connection = {"conn_type": "cpaas", "host": url, "password": "sk_bench", "extra": extra}
    command = [sys.executable, "-m", "tests.benchmarks.waiting.measured", turn.contender, "--waiters"]
    command += [str(turn.waiters), "--seconds", str(arguments.seconds), "--poke-interval", str(arguments.poke_interval)]
    with tempfile.TemporaryDirectory() as home:
        environment = {
            **without_airflow(os.environ),
            **settings_for(Path(home)),
            "PYTHONPATH": os.pathsep.join((str(REPOSITORY), str(REPOSITORY / "provider"))),
            "AIRFLOW_CONN_CPAAS_BENCH": json.dumps(connection),
        }
        piped = {"stdout": asyncio.subprocess.PIPE, "stderr": asyncio.subprocess.PIPE}
        measured = await asyncio.create_subprocess_exec(*command, cwd=REPOSITORY, env=environment, **piped)
        try:
            async with asyncio.timeout(arguments.seconds + SPARE):
                said, complained = await measured.communicate()
        except BaseException:
            measured.kill()
            raise
    if measured.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{complained.decode()[-3000:]}")
    told: dict[str, Any] = json.loads(said.splitlines()[-1])
    return told


def _line(turn: Turn, cost: dict[str, Any], server: OtpServer) -> str:
    arrivals = server.notes.arrivals
    seen = (len(arrivals) - 1) / (arrivals[-1] - arrivals[0]) if len(arrivals) > 1 else 0.0
    lags = statistics.quantiles(cost["lags"], n=100, method="inclusive")
    cells = [
        f"{turn.rate:g}", f"{seen:.1f}", str(server.notes.connections), f"{cost['memory']:.1f}",
        f"{cost['memory'] * 1024 / turn.waiters:.1f}", f"{cost['cpu'] * 100:.1f}",
        *(f"{lag * 1000:.1f}" for lag in (lags[49], lags[98], max(cost["lags"]))),
        f"{max(cost['busy']) * 1000:.1f}", f"{cost['longest_collection'] * 1000:.1f}",
        f"{cost['started']:.2f}", f"{cost['ended']:.2f}", str(cost["log_lines"]),
    ]  # fmt: skip
    return f"| {turn.contender} | {turn.waiters} | {' | '.join(cells)} |"


if __name__ == "__main__":
    asyncio.run(main())
