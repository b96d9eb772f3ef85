"""Syncs of one list, killed again and again, until their runs have ended."""

from __future__ import annotations

import contextlib
import json
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import psutil

from tests.system.killing.parts import AirflowInParts
from tests.system.killing.strikes import SUPERVISOR, TASK
from tests.system.killing_contacts.key_maps import unknown_names
from tests.system.killing_contacts.oracle import violations
from tests.system.killing_contacts.services import CONN_ID, ContactList, RowServiceList, SandboxList
from tests.system.killing_contacts.sources import (
    PHONES,
    REFUSED,
    Contact,
    first_version,
    next_version,
    to_upsert,
    with_refused,
    write,
)
from tests.system.standalone import wait_for
from tests.unit.contacts.listed import NAME

DAGS = Path(__file__).parent / "dags"
ROUND_WITHIN = 900.0
BEGUN_WITHIN = 150.0
STUCK_SECONDS = 45.0
ENDED = ("success", "failed")
PAUSES = (0.3, 4.0)
SUPERVISORS = 0.25
WHILE_STARTING = 0.2
MOST_WRITES = 300
PARTS = 4
FIRST = {"whole": 10_000_000, "parted": 20_000_000}
# For the new contacts of one version. With more, the fiftieth version of a source would have numbers of the other.
ROOM = 200_000
UPSERTS, REFUSED_TOGETHER, VANISHED = 12, 25, 15
UPSERTS_WITHIN = 300.0


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
    """One Airflow, one contact list and one database for key maps; a context manager.

    :param database: the URL of the database; ``None`` for the default in Airflow's home
    :param readings: have the list at a row service that follows other readings of the contract in each round, with
        rows that it rejects and rows that another client deletes, instead of at the sandbox
    """

    home: Path
    seed: int
    database: str | None = None
    readings: bool = False
    outcome: Outcome = field(default_factory=Outcome)

    def __enter__(self) -> Killing:
        self._chance = random.Random(self.seed)
        self._folder = self.home / "contacts"
        (self._folder / "results").mkdir(parents=True)
        self._versions: dict[str, list[list[Contact]]] = {"whole": [], "parted": []}
        for name in self._versions:
            write(self._folder / f"{name}.csv", [])
        self.list: ContactList = RowServiceList() if self.readings else SandboxList(self.home / "sandbox.log")
        try:
            settings = {"KILLED_CONTACTS": str(self._folder)}
            if self.database is not None:
                settings["AIRFLOW__CPAAS__DATABASE"] = self.database
            self.airflow = AirflowInParts(self.home / "airflow", DAGS, settings).__enter__()
            self.airflow.api("POST", "connections", self.list.connection)
        except BaseException:
            self.list.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.airflow.stop()
        self.list.stop()

    def move_to_row_service(self) -> None:
        """Have the list of further rounds at a row service, see ``readings``; for sources that were not synced yet."""
        self.list.stop()
        self.list, self.readings = RowServiceList(), True

    def round(self, name: str, *, size: int, kills: int, foul: bool, upserts: bool = False) -> None:
        """Sync a first or a further version of a source, kill meanwhile, and look at the list.

        :param name: ``whole`` or ``parted``
        :param upserts: run keyed upserts of rows of the same version beside the sync
        """
        began = time.monotonic()
        versions = self._versions[name]
        turned = ""
        first = FIRST[name] + len(versions) * ROOM
        contacts = next_version(versions[-1], self._chance, first) if versions else first_version(size, first)
        if self.readings:
            contacts = with_refused(contacts, self._chance, REFUSED_TOGETHER)
            turned = self.list.turn(self._chance)
            self.airflow.api("PATCH", f"connections/{CONN_ID}", self.list.connection)
        before = versions[-1] if versions else []
        if self.readings:
            self._vanish(before, contacts)
        versions.append(contacts)
        write(self._folder / f"{name}.csv", contacts)
        to_upsert(self._folder / f"{name}_upserts.json", before, contacts, self._chance, UPSERTS)
        since = time.time()
        self.list.weather(self._chance, foul=foul)
        upsert_run = self._begin_upserts(name) if upserts else None
        run_id = wait_for(f"{name} to begin", lambda: self._triggered(name), BEGUN_WITHIN)
        struck = self._kill(name, run_id, kills)
        state = self._state(name, run_id)
        self.list.clear_faults()
        upserted = "none" if upsert_run is None else self.airflow.ended(f"{name}_upserts", upsert_run, UPSERTS_WITHIN)
        unknown = self._unknown(name)
        wrongs = violations(contacts, self._listed(name), unknown)
        wrongs += [f"{file} has rows after a kill" for file in self._spooled()]
        wrongs += self._unnamed(name, run_id, contacts, unknown, since)
        if state != "success":
            wrongs.append(f"the run ended as {state}: {self.airflow.task_log(name, run_id, 'sync')}")
        kind = "first" if len(versions) == 1 else "mixed"
        wrongs = [f"{name}, {kind}, seed {self.seed}: {wrong}" for wrong in wrongs]
        self.outcome.wrongs += wrongs
        self.outcome.lines.append(
            f"{name}, {kind}, {len(contacts)} rows, foul {foul}, upserts {upserted}{turned}: {dict(struck)} killed, "
            f"{len(unknown)} unknown, {len(wrongs)} wrong, {time.monotonic() - began:.0f} s"
        )
        print(self.outcome.lines[-1], *wrongs, sep="\n", flush=True)

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
            if running and struck.total() < kills and now >= due and self.list.writes() >= writes:
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
        return 0.0, self.list.writes() + self._chance.randrange(1, MOST_WRITES)

    def _begin_upserts(self, name: str) -> str:
        dag_id = f"{name}_upserts"
        return str(wait_for(f"{dag_id} to begin", lambda: self._triggered(dag_id), BEGUN_WITHIN))

    def _vanish(self, before: list[Contact], contacts: list[Contact]) -> None:
        """Have another client delete rows that the sync will change or delete, so that it has to notice."""
        now = {contact.id: contact for contact in contacts}
        changed = [one.name for one in before if (new := now.get(one.id)) != one and (not new or new.plan != REFUSED)]
        self.list.delete_by_other(self._chance.sample(changed, min(VANISHED, len(changed))))

    def _unnamed(self, name: str, run_id: str, contacts: list[Contact], unknown: set[str], since: float) -> list[str]:
        """Return what the reports and results files of a run do not name, or name as complete."""
        refused = {contact.id for contact in contacts if contact.plan == REFUSED and contact.name not in unknown}
        named: set[str] = set()
        for file in (self._folder / "results").glob(f"{name}_*.jsonl"):
            if file.stat().st_mtime >= since:
                lines = [json.loads(line) for line in file.read_text().splitlines()]
                named |= {line["key"] for line in lines if line["outcome"] == "rejected"}
        wrongs = [f"{len(refused - named)} rejected rows are not named"] if refused - named else []
        indexes = range(PARTS) if name == "parted" else [-1]
        path = f"dags/{name}/dagRuns/{run_id}/taskInstances/sync/xcomEntries/return_value"
        reports = [self.airflow.found(path, map_index=index, deserialize=True) for index in indexes]
        complete = all(report and report["value"]["complete"] for report in reports)
        if complete and (refused or unknown):
            wrongs.append(f"complete is true with {len(refused)} rejected rows and {len(unknown)} unknown creations")
        return wrongs

    def _triggered(self, name: str) -> str | None:
        return self.airflow.trigger(name)

    def _state(self, name: str, run_id: str) -> str:
        return str(self.airflow.api("GET", f"dags/{name}/dagRuns/{run_id}")["state"])

    def _listed(self, name: str) -> dict[str, dict[str, Any]]:
        """Return the list's rows that are of this source."""
        low, high = (f"Person {FIRST[name] + part}" for part in (0, 9_999_999))
        return {row_id: row for row_id, row in self.list.rows().items() if low <= str(row.get(NAME)) <= high}

    def _spooled(self) -> list[Path]:
        """Return the temporary files that contain a phone number."""
        files = [file for file in (self._folder / "spool").rglob("*") if file.is_file()]
        return [file for file in files if PHONES in file.read_bytes()]

    def _unknown(self, name: str) -> set[str]:
        """Return the names of contacts whose creation the map has as unknown."""
        url = self.database or f"sqlite:///{self.airflow.home / 'cpaas' / 'cpaas.db'}"
        return unknown_names(url, CONN_ID, name, chain.from_iterable(self._versions[name]))
