"""One campaign from its beginning to its last report, on an Airflow and a sandbox of its own."""

from __future__ import annotations

import csv
import random
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.reading import results_in
from tests.sandbox import Sandbox, connection_json
from tests.system.delivering.killer import Killer
from tests.system.delivering.oracle import Evidence, violations
from tests.system.delivering.places import Stored, a_store
from tests.system.delivering.service import HELD_BACK, Service
from tests.system.killing.parts import AirflowInParts
from tests.system.standalone import StandaloneError, wait_for

DAG_ID, SEND, WAIT = "delivered", "send", "delivered"
DAGS = Path(__file__).parent / "dags"
CONNECTION = {"sender_id": "Example", "timeout": 20, "recipients_per_request": 100, "callback_secret": "of-callbacks"}
# Airflow's own; the shorter ones of a killing end tasks while a slow machine starts another API server.
PATIENT = {
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "300",
    "AIRFLOW__WORKERS__MAX_FAILED_HEARTBEATS": "30",
}
BEGUN_WITHIN = 180.0
ENDED_WITHIN = 300.0
FAILED = ("failed", "upstream_failed", "skipped")
EVERY = 0.5


@dataclass(frozen=True)
class Plan:
    """What is done.

    :param kills: of the API server, in all
    :param during_sending: how many of them while the campaign is sent already
    :param store: URL of PostgreSQL; ``None`` for SQLite
    """

    recipients: int
    kills: int
    seed: int
    during_sending: int = 0
    store: str | None = None

    @property
    def within(self) -> float:
        """Seconds each part of it may take, on a machine that is busy with other things."""
        return 600.0 + 0.1 * self.recipients + 120.0 * self.kills


@dataclass
class Outcome:
    """What came of it, in figures and words."""

    seen: Evidence
    seconds: dict[str, float]
    died: list[str]

    def violations(self) -> list[str]:
        """Return everything that is not as it must be."""
        return violations(self.seen)

    def __str__(self) -> str:
        seen, progress = self.seen, self.seen.progress
        statuses: dict[str, int] = {}
        for outcome in seen.outcomes.values():
            statuses[outcome] = statuses.get(outcome, 0) + 1
        named = {
            name: seen.report.get(name) for name in ("expected", "delivered", "undelivered", "in_flight", "unreported")
        }
        lines = {
            "kills": len(seen.kills),
            "reports": f"{progress.booked:,} in {progress.sent:,} attempts: {progress.acknowledged:,} acknowledged, "
            f"{progress.refused:,} not, {progress.given_up} given up",
            "kept": f"{len(seen.stored):,} different reports, {sum(seen.stored.values()):,} with repeats",
            "lost": sum((seen.acknowledged - seen.stored).values()),
            "service": dict(sorted(statuses.items())),
            "sensor": named,
            "store": dict(seen.counted),
            "recipients": f"{len(seen.lines):,} in the outcome file, {len(seen.rows):,} in the store",
            "seconds": {what: round(seconds, 1) for what, seconds in self.seconds.items()},
            "died by themselves": self.died or "none",
        }
        return "\n".join(f"{name:18} {value}" for name, value in lines.items())


def deliver(plan: Plan, home: Path, tell: Callable[[str], None]) -> Outcome:
    """Send, kill, wait for the last report, and hear all sides."""
    tell(f"{plan}")
    with ExitStack() as stack:
        delivering = stack.enter_context(_started(plan, home, tell))
        return delivering.to_the_end()


@contextmanager
def _started(plan: Plan, home: Path, tell: Callable[[str], None]) -> Iterator[_Delivering]:
    folder = home / "delivering"
    folder.mkdir(parents=True)
    with ExitStack() as stack:
        url = stack.enter_context(a_store(plan.store, folder))
        sandbox = stack.enter_context(Sandbox(home / "sandbox.log"))
        settings = {"DELIVERING": str(folder), "AIRFLOW__CPAAS__DATABASE": url, **PATIENT}
        airflow = AirflowInParts(home / "airflow", DAGS, settings)
        # Its address is known only now.
        connection = connection_json(sandbox.connection, **CONNECTION, callback_url=f"{airflow.url}/cpaas")
        settings["AIRFLOW_CONN_CPAAS_DEFAULT"] = connection
        stored = Stored(url)
        stack.callback(stored.close)
        stack.enter_context(airflow)
        yield _Delivering(plan, folder, airflow, sandbox, stored, tell)
    if remaining := airflow.remaining():
        raise StandaloneError(f"These still run: {remaining}")


class _Delivering:
    def __init__(
        self,
        plan: Plan,
        folder: Path,
        airflow: AirflowInParts,
        sandbox: Sandbox,
        stored: Stored,
        tell: Callable[[str], None],
    ) -> None:
        self._plan = plan
        self._folder = folder
        self._airflow = airflow
        self._stored = stored
        self._tell = tell
        sends_slowly = plan.during_sending > 0
        self._service = Service(sandbox, plan.seed, held_back=not sends_slowly, slow=sends_slowly)
        self._killer = Killer(airflow, self._service, stored, random.Random(plan.seed), tell)
        self._seconds: dict[str, float] = {}

    def to_the_end(self) -> Outcome:
        """Do all of it, one after the other."""
        plan, killer = self._plan, self._killer
        people = self._write_people()
        with self._timed("sending"):
            run_id = self._airflow.trigger(DAG_ID, within=BEGUN_WITHIN)
            killer.strike_sending(plan.during_sending, plan.recipients, plan.within)
            self._wait_for("the campaign to be sent", run_id, SEND, ("success",), plan.within)
            # Where the killing took long, everything may have been reported by now.
            self._wait_for("the sensor to wait", run_id, WAIT, ("deferred", "success"), BEGUN_WITHIN)
        with self._timed("reporting"):
            self._service.let_pass(HELD_BACK)
            killer.strike_reporting(plan.kills - plan.during_sending, plan.within)
            wait_for("the last report", lambda: killer.all_is_said() or None, plan.within, EVERY)
        with self._timed("ending"):
            state = self._end(run_id)
        return Outcome(self._evidence(run_id, state, people), self._seconds, self._airflow.deaths)

    def _write_people(self) -> list[str]:
        chance = random.Random(self._plan.seed)
        people = [
            f"23480{number:08d}" for number in chance.sample(range(30_000_000, 40_000_000), self._plan.recipients)
        ]
        with (self._folder / "people.csv").open("w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(("phone", "name"))
            rows.writerows((f"+{phone}", f"Person {number}") for number, phone in enumerate(people))
        return people

    def _wait_for(self, what: str, run_id: str, task_id: str, states: tuple[str, ...], within: float) -> None:
        def look() -> bool | None:
            query = "SELECT state FROM task_instance WHERE dag_id = ? AND run_id = ? AND task_id = ?"
            rows = self._airflow.query(query, DAG_ID, run_id, task_id)
            state = rows[0][0] if rows else None
            if state in FAILED:
                raise StandaloneError(f"{task_id} {state}:\n{self._airflow.task_log(DAG_ID, run_id, task_id)}")
            return state in states or None

        wait_for(what, look, within, EVERY)

    def _end(self, run_id: str) -> str:
        """Return how the run ended; of one that did not, the rest of the evidence tells why."""
        try:
            return wait_for("the run to end", lambda: self._ended(run_id), ENDED_WITHIN, EVERY)
        except StandaloneError as error:
            self._tell(f"{error}")
            return "running"

    def _ended(self, run_id: str) -> str | None:
        rows = self._airflow.query("SELECT state FROM dag_run WHERE dag_id = ? AND run_id = ?", DAG_ID, run_id)
        return str(rows[0][0]) if rows and rows[0][0] in ("success", "failed") else None

    def _evidence(self, run_id: str, state: str, people: list[str]) -> Evidence:
        path = f"dags/{DAG_ID}/dagRuns/{run_id}/taskInstances/{WAIT}/xcomEntries/return_value"
        returned = self._airflow.found(path, deserialize="true") or {"value": {}}
        written = self._folder / "delivered.jsonl"
        lines = results_in(written) if written.exists() else []
        return Evidence(
            state=state,
            people=people,
            progress=self._service.progress(),
            statuses=list(self._service.statuses()),
            said=list(self._service.said()),
            report=returned["value"],
            lines=lines,
            rows=self._stored.recipients(),
            counted=self._stored.counts(),
            stored=self._stored.reports(),
            kills=self._killer.kills,
        )

    @contextmanager
    def _timed(self, what: str) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield
        finally:
            self._seconds[what] = time.monotonic() - began
