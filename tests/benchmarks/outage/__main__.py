"""What an outage does to 10,000 waits: ``python -m tests.benchmarks.outage [--waiters N] [--away SECONDS]``.

Half of the waits are for deliveries, in PostgreSQL, half for passcodes. All are in one process that runs triggers as
the triggerer does. In turn:

1. usual: reports come in, and each ends a wait.
2. away: the database refuses connections for ``--away`` seconds. Reports are stored meanwhile, as the receiver has
   another way to it. Then it is back.
3. restarted: the process is killed, and another one waits for what remains.
4. edited: the service accepts another key only, and a moment later the connection has it.

It prints how long events took (from the report's commit), queries a second, and the time until all waits that could end
had ended. A proxy on the loopback is what refuses: the database itself is not touched.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cpaas_provider.database.database import Database, open_database
from cpaas_provider.delivery.callbacks.tokens import CallbackToken
from cpaas_provider.delivery.tracking.report_store import ReportStore
from tests.airflow_home import settings_for, without_airflow
from tests.benchmarks.waiting.bare_otps import VERIFIED, OtpServer
from tests.benchmarks.waiting.messages import CONN_ID, recipient
from tests.benchmarks.waiting.percentiles import three
from tests.system.delivering.places import a_store
from tests.tcp_proxy import Mode, leading_through, proxy_before
from tests.unit.database.migrated import POSTGRES
from tests.unit.delivery.report_builders import report

REPORTS_PER_SECOND = 100
EDITED_AFTER = 5.0
"""Seconds from the first rejection of the old key until the connection has the new one."""
WITHIN = 120.0
"""Seconds that a phase may take until its last event."""


class Waits:
    """The process that waits, and what it has written."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._environment = environment
        self.ended: dict[str, float] = {}
        self.outcomes: dict[str, str] = {}
        self.queries: list[tuple[float, int]] = []
        self.started = asyncio.Event()

    async def start(self, campaigns: Sequence[str], passcodes: Sequence[str], deadline: str) -> float:
        """Start the process; return the seconds until all its triggers run."""
        began = time.monotonic()
        self.started.clear()
        self.queries.clear()
        self.process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.benchmarks.outage.triggerer", env=self._environment,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        self._reading = asyncio.create_task(self._read())
        await self.write(json.dumps({"campaigns": campaigns, "passcodes": passcodes, "deadline": deadline}))
        async with asyncio.timeout(WITHIN):
            await self.started.wait()
        return time.monotonic() - began

    async def write(self, line: str) -> None:
        assert self.process.stdin
        self.process.stdin.write(line.encode() + b"\n")
        await self.process.stdin.drain()

    async def kill(self) -> None:
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()
        await self._reading

    async def until_ended(self, names: Sequence[str]) -> float:
        """Wait until these waits have ended; return when the last of them did."""
        async with asyncio.timeout(WITHIN):
            while not self.ended.keys() >= set(names):  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.1)
        return max(self.ended[name] for name in names)

    def queries_per_second(self, since: float, until: float) -> float:
        """Return the queries that went to the database in a second, between two moments."""
        within = [(at, count) for at, count in self.queries if since <= at <= until]
        if len(within) < 2:
            return 0.0
        return (within[-1][1] - within[0][1]) / (within[-1][0] - within[0][0])

    async def _read(self) -> None:
        assert self.process.stdout
        async for line in self.process.stdout:
            if not line.startswith(b"{"):
                # Airflow logs to the same stream.
                continue
            values: dict[str, Any] = json.loads(line)
            if "name" in values:
                self.ended[values["name"]], self.outcomes[values["name"]] = values["at"], values["outcome"]
            elif "queries" in values:
                self.queries.append((values["at"], values["queries"]))
            elif "started" in values:
                self.started.set()


async def deliver(database: Database, campaigns: Sequence[str]) -> dict[str, float]:
    """Store a report for each campaign, at the usual rate; return when each was committed."""
    stored, committed = ReportStore(database), dict[str, float]()
    for start in range(0, len(campaigns), REPORTS_PER_SECOND // 10):
        began = time.monotonic()
        batch = campaigns[start : start + REPORTS_PER_SECOND // 10]
        reports = [
            report(recipient(number), "delivered", token=CallbackToken(name, name, 1), conn_id=CONN_ID)
            for number, name in enumerate(batch)
        ]
        await asyncio.to_thread(stored.save, reports)
        committed |= dict.fromkeys(batch, time.monotonic())
        await asyncio.sleep(max(0.0, 0.1 - (time.monotonic() - began)))
    return committed


def connection(url: str, key: str, rate: float) -> str:
    extra = {"requests_per_second": rate, "max_concurrency": 64}
    return json.dumps({"conn_type": "cpaas", "host": url, "password": key, "extra": extra})


async def measure(waiters: int, away: float, home: Path) -> None:
    campaigns = [f"campaign-{number:05}" for number in range(waiters // 2)]
    passcodes = [f"passcode-{number:05}" for number in range(waiters - waiters // 2)]
    share = len(campaigns) // 4
    usual, missed, late = campaigns[:share], campaigns[share : 2 * share], campaigns[2 * share :]
    deadline = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    rate = max(10.0, len(passcodes) / 10)
    with a_store(POSTGRES, home) as url, proxy_before(url) as proxy, open_database(url) as database:
        async with OtpServer(0.02) as service:
            service.keys = {"sk_one"}
            environment = {
                **without_airflow(os.environ), **settings_for(home),
                "AIRFLOW__CPAAS__DATABASE": leading_through(proxy, url),
                f"AIRFLOW_CONN_{CONN_ID.upper()}": connection(service.url, "sk_one", rate),
            }  # fmt: skip
            waits = Waits(environment)
            try:
                took = await waits.start(campaigns, passcodes, deadline)
                print(f"{waiters:,} waits begun in {took:.1f} s.", flush=True)
                await asyncio.sleep(5)

                began = time.monotonic()
                committed = await deliver(database, usual)
                await waits.until_ended(usual)
                delays = [waits.ended[name] - committed[name] for name in usual]
                per_second = waits.queries_per_second(began, time.monotonic())
                print(f"usual: event p50 / p95 / most {three(delays, 95)} ms, {per_second:.1f} queries/s", flush=True)

                proxy.turn(Mode.DROP)
                began, taken = time.monotonic(), proxy.taken
                await deliver(database, missed)
                await asyncio.sleep(max(0.0, away - (time.monotonic() - began)))
                ended = [name for name in missed if name in waits.ended]
                attempts = (proxy.taken - taken) / (time.monotonic() - began)
                proxy.turn(Mode.PASS)
                back = time.monotonic()
                recovered = await waits.until_ended(missed) - back
                print(
                    f"away for {time.monotonic() - began - recovered:.0f} s: {len(ended)} waits ended meanwhile, "
                    f"{attempts:.2f} connections/s tried; {len(missed):,} events {recovered:.1f} s after it was back",
                    flush=True,
                )

                await waits.kill()
                remaining = await deliver(database, late[: len(late) // 2])
                began = time.monotonic()
                took = await waits.start(late, passcodes, deadline)
                recovered = await waits.until_ended(list(remaining)) - began
                print(
                    f"restarted: {len(late) + len(passcodes):,} waits begun in {took:.1f} s; {len(remaining):,} events "
                    f"for reports of meanwhile within {recovered:.1f} s of the start",
                    flush=True,
                )

                service.keys = {"sk_two"}
                began, reads = time.monotonic(), len(service.read)
                await asyncio.sleep(EDITED_AFTER)
                await waits.write(connection(service.url, "sk_two", rate))
                edited = time.monotonic()
                rejected = len(service.read) - reads
                service.says = dict.fromkeys(passcodes, VERIFIED)
                recovered = await waits.until_ended(passcodes) - edited
                print(
                    f"edited: {rejected} reads rejected in {EDITED_AFTER:g} s; {len(passcodes):,} passcodes "
                    f"{recovered:.1f} s after the edit, at {rate:g} requests/s",
                    flush=True,
                )

                committed = await deliver(database, late[len(late) // 2 :])
                await waits.until_ended(list(committed))
                delays = [waits.ended[name] - moment for name, moment in committed.items()]
                print(f"afterwards: event p50 / p95 / most {three(delays, 95)} ms", flush=True)
                wrong = sum(outcome not in ("done", "verified") for outcome in waits.outcomes.values())
                print(f"{len(waits.outcomes):,} waits ended, {wrong} of them wrongly.", flush=True)
            finally:
                await waits.kill()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.outage")
    parser.add_argument("--waiters", type=int, default=10_000, help="half of each kind (default: %(default)s)")
    parser.add_argument("--away", type=float, default=60.0, help="seconds without a database (default: %(default)g)")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        asyncio.run(measure(given.waiters, given.away, Path(home)))


if __name__ == "__main__":
    main()
