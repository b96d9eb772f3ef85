"""Syncs of one list, killed again and again, until their runs have ended."""

from __future__ import annotations

import contextlib
import random
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import psutil

from tests.sandbox import Sandbox, connection_json
from tests.system.killing.parts import AirflowInParts
from tests.system.killing.strikes import SUPERVISOR, TASK
from tests.system.killing_contacts.key_maps import unknown_names
from tests.system.killing_contacts.oracle import violations
from tests.system.killing_contacts.sources import PHONES, Contact, first_version, next_version, write
from tests.system.standalone import wait_for
from tests.unit.contacts.listed import listed

DAGS = Path(__file__).parent / "dags"
ROUND_WITHIN = 900.0
BEGUN_WITHIN = 150.0
STUCK_SECONDS = 45.0
ENDED = ("success", "failed")
WRITES = ("create_contact_row", "update_contact_row", "delete_contact_row")
PAUSES = (0.3, 4.0)
SUPERVISORS = 0.25
WHILE_STARTING = 0.2
MOST_WRITES = 300
FIRST = {"whole": 10_000_000, "parted": 20_000_000}
ROOM = 1_000_000
CONNECTION = {"timeout": 3, "requests_per_second": 150, "max_concurrency": 8}

LATENCIES = ((5, 1.0), (60, 0.1))
FAULTS: tuple[dict[str, Any], ...] = (
    {"kind": "rate_limit", "params": {"retry_after": 1}, "rate": 0.005},
    {"kind": "error_500", "rate": 0.005},
    {"kind": "error_500_after", "rate": 0.005},
    {"kind": "cut_before", "rate": 0.005},
    {"kind": "cut_after", "rate": 0.005},
    {"kind": "stall_body", "params": {"seconds": 4}, "rate": 0.002},
    {"kind": "broken_json", "rate": 0.002},
)
STORM: dict[str, Any] = {"kind": "rate_limit", "params": {"retry_after": 1}, "times": 40}


@dataclass
class Outcome:
    """What came of all rounds so far."""

    strikes: Counter[str] = field(default_factory=Counter)
    wrongs: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    @property
    def died(self) -> int:
        """How many processes were killed."""
        return self.strikes.total()

    def __str__(self) -> str:
        return "\n".join([*self.lines, f"killed: {dict(self.strikes)}"])


@dataclass
class Killing:
    """One Airflow, one sandbox and one database for key maps; a context manager.

    :param database: the URL of the database; ``None`` for the default in Airflow's home
    """

    home: Path
    seed: int
    database: str | None = None
    outcome: Outcome = field(default_factory=Outcome)

    def __enter__(self) -> Killing:
        self._chance = random.Random(self.seed)
        self._folder = self.home / "contacts"
        (self._folder / "results").mkdir(parents=True)
        self._versions: dict[str, list[list[Contact]]] = {"whole": [], "parted": []}
        for name in self._versions:
            write(self._folder / f"{name}.csv", [])
        self.sandbox = Sandbox(self.home / "sandbox.log").start()
        try:
            settings = {
                "KILLED_CONTACTS": str(self._folder),
                "AIRFLOW_CONN_CPAAS_DEFAULT": connection_json(self.sandbox.connection, **CONNECTION),
            }
            if self.database is not None:
                settings["AIRFLOW__CPAAS__DATABASE"] = self.database
            self.airflow = AirflowInParts(self.home / "airflow", DAGS, settings).__enter__()
        except BaseException:
            self.sandbox.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.airflow.stop()
        self.sandbox.stop()

    def round(self, name: str, *, size: int, kills: int, foul: bool) -> None:
        """Sync a first or a further version of a source, kill meanwhile, and look at the list.

        :param name: ``whole`` or ``parted``
        """
        began = time.monotonic()
        versions = self._versions[name]
        first = FIRST[name] + len(versions) * ROOM
        contacts = next_version(versions[-1], self._chance, first) if versions else first_version(size, first)
        versions.append(contacts)
        write(self._folder / f"{name}.csv", contacts)
        self._weather(foul)
        run_id = wait_for(f"{name} to begin", lambda: self._triggered(name), BEGUN_WITHIN)
        struck = self._kill(name, run_id, kills)
        state = self._state(name, run_id)
        self.sandbox.control("DELETE", "faults")
        unknown = self._unknown(name)
        wrongs = violations(contacts, self._listed(name), unknown)
        wrongs += [f"{file} has rows after a kill" for file in self._spooled()]
        if state != "success":
            wrongs.append(f"the run ended as {state}: {self.airflow.task_log(name, run_id, 'sync')}")
        kind = "first" if len(versions) == 1 else "mixed"
        self.outcome.wrongs += [f"{name}, {kind}, seed {self.seed}: {wrong}" for wrong in wrongs]
        self.outcome.lines.append(
            f"{name}, {kind}, {len(contacts)} rows, foul {foul}: {dict(struck)} killed, {len(unknown)} unknown, "
            f"{len(wrongs)} wrong, {time.monotonic() - began:.0f} s"
        )
        print(self.outcome.lines[-1], flush=True)

    def _kill(self, name: str, run_id: str, kills: int) -> Counter[str]:
        """Strike at random moments until the run has ended."""
        struck: Counter[str] = Counter()
        due, writes = self._moment()
        deadline = time.monotonic() + ROUND_WITHIN
        look, busy = 0.0, time.monotonic()
        while time.monotonic() < deadline:
            now = time.monotonic()
            if now > look:
                if self._state(name, run_id) in ENDED:
                    break
                self.airflow.revive()
                look = now + 1.0
            running = self.airflow.supervisors()
            busy = now if running else busy
            if now - busy > STUCK_SECONDS:
                self.airflow.replace_scheduler()
                busy = now
            if running and struck.total() < kills and now >= due and self._writes() >= writes:
                supervisor, (instance, task) = self._chance.choice(list(running.items()))
                victim = SUPERVISOR if self._chance.random() < SUPERVISORS and self.airflow.runs(instance) else TASK
                with contextlib.suppress(psutil.NoSuchProcess):
                    (supervisor if victim == SUPERVISOR else task).kill()
                    struck[victim] += 1
                due, writes = self._moment()
            time.sleep(0.05)
        # What a dead supervisor left goes on alone: its requests must be over before the list is looked at.
        wait_for("the last task to end", lambda: not self.airflow.task_processes() or None, 120.0)
        self.outcome.strikes += struck
        return struck

    def _moment(self) -> tuple[float, int]:
        """Return when to strike next: from when on, and after how many requests that write; mostly while it sends."""
        later = time.monotonic() + self._chance.uniform(*PAUSES)
        if self._chance.random() < WHILE_STARTING:
            return later, 0
        return 0.0, self._writes() + self._chance.randrange(1, MOST_WRITES)

    def _writes(self) -> int:
        requests = self.sandbox.counters()["requests"]
        return sum(int(requests.get(operation, 0)) for operation in WRITES)

    def _weather(self, foul: bool) -> None:
        self.sandbox.control("DELETE", "faults")
        for operation in WRITES:
            for milliseconds, rate in LATENCIES:
                self._strike(operation, {"kind": "latency", "params": {"ms": milliseconds}, "rate": rate})
            for fault in FAULTS if foul else ():
                self._strike(operation, fault)
            if foul:
                self._strike(operation, {**STORM, "after": self._chance.randrange(50, 400)})

    def _strike(self, operation: str, fault: Mapping[str, Any]) -> None:
        body = {**fault, "operation": operation, "seed": self._chance.randrange(2**31)}
        self.sandbox.control("POST", "faults", body)

    def _triggered(self, name: str) -> str | None:
        return self.airflow.trigger(name)

    def _state(self, name: str, run_id: str) -> str:
        return str(self.airflow.api("GET", f"dags/{name}/dagRuns/{run_id}")["state"])

    def _listed(self, name: str) -> dict[str, dict[str, Any]]:
        """Return the list's rows that are of this source."""
        low, high = (f"Person {FIRST[name] + part}" for part in (0, 9_999_999))
        rows = listed(self.sandbox)
        return {row_id: row for row_id, row in rows.items() if low <= str(row.get("col_7f3a01")) <= high}

    def _spooled(self) -> list[Path]:
        """Return the temporary files that contain a phone number."""
        files = [file for file in (self._folder / "spool").rglob("*") if file.is_file()]
        return [file for file in files if PHONES in file.read_bytes()]

    def _unknown(self, name: str) -> set[str]:
        """Return the names of contacts whose creation the map has as unknown."""
        url = self.database or f"sqlite:///{self.airflow.home / 'cpaas' / 'cpaas.db'}"
        return unknown_names(url, "cpaas_default", name, chain.from_iterable(self._versions[name]))
