"""A campaign and a contact sync on the cluster: fill the source, strike in the middle, wait, and hear all sides."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from tests.reading import results_in
from tests.sandbox import Sandbox, connection_json
from tests.system.cluster.moments import WAITING, Moment
from tests.system.cluster.nodes import API_SERVER, TRIGGERER, Cluster, running
from tests.system.cluster.oracle import Evidence, violations
from tests.system.cluster.servers import Servers
from tests.system.cluster.shop import Shop
from tests.system.delivering.places import Stored
from tests.system.delivering.service import HOUR, fates
from tests.system.killing_contacts.key_maps import resolve
from tests.system.killing_contacts.sources import Contact, first_version
from tests.system.standalone import ENDED, StandaloneError, wait_for
from tests.unit.contacts.listed import listed

T = TypeVar("T")

DAG_ID, SEND, WAIT, SYNC_AGAIN = "cluster", "send", "delivered", "sync_again"
DAGS = Path(__file__).parent / "dags"
CONTACTS_CONNECTION = "cpaas_contacts"
PARTS = 4
PER_REQUEST = 100
LATENCY_MS = 50
BEGUN_WITHIN = 180.0
SENDING_SECONDS = 25
"""What the rate limits are made for: so long both take, where nothing disturbs them."""

UNKNOWN_TIMEOUT = 75
HELD_BACK = 0.4
"""The final reports of messages after this share wait for the service's clock, so that somebody waits for them.

A small campaign goes out in three waves of requests: only messages after the first can be held back for certain.
"""

SETTINGS: dict[str, Any] = {
    "report_undelivered_rate": 0.1,
    "report_duplicate_rate": 0.05,
    "report_disorder": 0.2,
    "report_concurrency": 16,
    # The receiver is away for some seconds.
    "report_interval_seconds": 2.0,
    "report_timeout_seconds": 20.0,
    "report_attempts": 1000,
}
EVERY = 0.2
FIRST_PERSON, FIRST_CONTACT, ROOM = 30_000_000, 60_000_000, 1_000_000
SETTLED = ("success", "failed", "deferred", "upstream_failed", "skipped")


@dataclass(frozen=True)
class Size:
    """How much is sent and synced in a round."""

    recipients: int = 10_000
    contacts: int = 2_000

    @property
    def within(self) -> float:
        """Seconds each part of a round may take, on a machine that is busy with other things."""
        return 600.0 + 0.02 * self.recipients + 0.05 * self.contacts


@dataclass(frozen=True)
class Round:
    """One round and what came of it.

    :param tasks: what the killed worker ran
    """

    run_id: str
    number: int
    moment: Moment
    seen: Evidence
    tasks: list[str]
    seconds: float

    def violations(self) -> list[str]:
        """Return everything that is not as it must be."""
        found = violations(self.seen)
        if not self.tasks and self.moment.after < WAITING:
            found.append("The worker that was killed ran no task.")
        return found

    def __str__(self) -> str:
        return (
            f"round {self.number}: {self.moment}; it ran {', '.join(self.tasks) or 'nothing'}\n  {self.seen}\n"
            f"  {len(self.violations())} violations, {self.seconds:.0f} s"
        )


@dataclass
class Rounds:
    """Rounds on one cluster, one after the other."""

    cluster: Cluster
    sandbox: Sandbox
    shop: Shop
    stored: Stored
    servers: Servers
    size: Size
    tell: Callable[[str], None]
    contacts: list[Contact] = field(default_factory=list)
    number: int = 0

    def round(self, moment: Moment) -> Round:
        """Send and sync once, with a worker killed at a moment."""
        began = time.monotonic()
        self.number += 1
        people = self._fill()
        self.tell(f"Round {self.number}: {len(people):,} recipients, {len(self.contacts):,} contacts; {moment}.")
        with self._reports_held_back():
            run_id = self.cluster.trigger(DAG_ID, {"round": self.number}, BEGUN_WITHIN)
            tasks = self._strike(run_id, moment)
            self._restart_while_waiting(run_id, moment)
        state = self._wait_for("the run to end", lambda: self.ended(run_id))
        self._wait_for("the last report", lambda: not self.sandbox.counters()["reports"]["pending"] or None)
        self._sync_what_is_unknown()
        seen = self.evidence(run_id, state, people)
        return Round(run_id, self.number, moment, seen, tasks, time.monotonic() - began)

    def evidence(self, run_id: str, state: str, people: Iterable[str]) -> Evidence:
        """Ask all sides."""
        everybody = set(people)
        return Evidence(
            state=state,
            tasks={f"{task}[{place}]": state for task, place, state in self._tasks(run_id)},
            people=everybody,
            arrived=[(one.recipient, one.outcome) for one in fates(self.sandbox)],
            reports=[self._returned(run_id, SEND, place) for place in range(PARTS)],
            lines=list(self._lines()),
            awaited=self._returned(run_id, WAIT, -1),
            stored=[
                (row["recipient"], row["outcome"]) for row in self.stored.recipients() if row["recipient"] in everybody
            ],
            contacts=self.contacts,
            listed=listed(self.sandbox),
        )

    def _sync_what_is_unknown(self) -> None:
        """Resolve what a killed task left unknown, as a person does who looks at the list, and sync once more."""
        url = self.servers.databases.provider
        resolved = resolve(url, CONTACTS_CONNECTION, self.contacts, listed(self.sandbox), self.sandbox)
        self.tell(f"  Unknown creations: {resolved.created} had made a row, {resolved.not_created} had not.")
        if sum(resolved):
            run_id = self.cluster.trigger(SYNC_AGAIN, {"round": self.number})
            self._wait_for("the second sync to end", lambda: self.ended(run_id, SYNC_AGAIN))

    def _fill(self) -> list[str]:
        """Have the service forget the messages of earlier rounds, and give the tasks another source."""
        size, first = self.size, FIRST_PERSON + self.number * ROOM
        people = [f"23480{number:08d}" for number in range(first, first + size.recipients)]
        self.contacts = _next_contacts(self.contacts, size.contacts, FIRST_CONTACT + self.number * ROOM)
        self.shop.put_people(people)
        self.shop.put_contacts(self.contacts)
        self.sandbox.control("POST", "reset", {"keep_seeding": True})
        self.sandbox.control("PUT", "settings", {**SETTINGS, "report_seed": self.number, "report_delay_seconds": 0})
        self.sandbox.control("PUT", "balance", {"balance": 1_000_000_000})
        for operation in ("send_sms", "create_contact_row", "update_contact_row", "delete_contact_row"):
            latency = {"kind": "latency", "params": {"ms": LATENCY_MS}, "operation": operation, "seed": self.number}
            self.sandbox.control("POST", "faults", latency)
        return people

    def _strike(self, run_id: str, moment: Moment) -> list[str]:
        """Kill the busier worker at the moment, start another, and restart the API server if it is time."""
        self._wait_for("the moment", lambda: self._has_come(run_id, moment))
        sent = self._sent()
        done, tasks = self.cluster.strike()
        self.tell(f"  {done}, after {sent:,} messages; it ran {', '.join(tasks) or 'nothing'}.")
        if moment.server_with_worker:
            self._restart(API_SERVER)
        return tasks

    def _has_come(self, run_id: str, moment: Moment) -> bool | None:
        if not moment.after:
            return self.cluster.is_busy() or None
        if moment.after >= WAITING:
            return ("deferred" in self._states(run_id, WAIT)) or None
        return self._sent() >= moment.after * self.size.recipients or None

    def _restart_while_waiting(self, run_id: str, moment: Moment) -> None:
        """Restart the triggerer while a task is deferred, and the API server while reports come in."""
        self._wait_for("a task to wait for reports", lambda: self._somebody_waits(run_id))
        self._restart(TRIGGERER)
        self.sandbox.control("PUT", "settings", {"report_delay_seconds": 0})
        self.sandbox.control("POST", "clock/advance", {"seconds": HOUR})
        if not moment.server_with_worker:
            self._restart(API_SERVER)

    def _somebody_waits(self, run_id: str) -> bool | None:
        sending, waiting = self._states(run_id, SEND), self._states(run_id, WAIT)
        if waiting[:1] == ["success"]:
            raise StandaloneError("Delivery was not awaited: all reports had come in before the triggerer restarted.")
        if self.ended(run_id):
            # It failed; the evidence tells where.
            return True
        settled = all(state in SETTLED for state in sending)
        return (settled and "deferred" in (*sending, *waiting)) or None

    def _restart(self, node: str) -> None:
        began, sent = time.monotonic(), self._sent()
        self.cluster.restart(node)
        self.tell(f"  {node} restarted in {time.monotonic() - began:.0f} s, after {sent:,} messages.")

    @contextmanager
    def _reports_held_back(self) -> Iterator[None]:
        """Hold back the final reports of the last messages, from the moment in which enough are sent."""
        over = threading.Event()

        def watch() -> None:
            while not over.wait(EVERY / 2):
                if self._sent() >= HELD_BACK * self.size.recipients:
                    self.sandbox.control("PUT", "settings", {"report_delay_seconds": HOUR})
                    return

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield
        finally:
            over.set()
            watcher.join()

    def _sent(self) -> int:
        return int(self.sandbox.counters()["sms"]["recipients"])

    def _wait_for(self, what: str, look: Callable[[], T | None], every: float = EVERY) -> T:
        return wait_for(what, look, self.size.within, every)

    def ended(self, run_id: str, dag_id: str = DAG_ID) -> str | None:
        """Return how a run ended, ``None`` while it has not."""
        rows = self.cluster.query(
            "SELECT state FROM dag_run WHERE dag_id = :dag AND run_id = :run", dag=dag_id, run=run_id
        )
        return str(rows[0][0]) if rows and rows[0][0] in ENDED else None

    def _tasks(self, run_id: str) -> list[tuple[str, int, str]]:
        query = (
            "SELECT task_id, map_index, coalesce(state, 'none') FROM task_instance "
            "WHERE dag_id = :dag AND run_id = :run ORDER BY task_id, map_index"
        )
        return [
            (str(task), int(place), str(state))
            for task, place, state in self.cluster.query(query, dag=DAG_ID, run=run_id)
        ]

    def _states(self, run_id: str, task_id: str) -> list[str]:
        return [state for task, _, state in self._tasks(run_id) if task == task_id]

    def _returned(self, run_id: str, task_id: str, place: int) -> dict[str, Any]:
        path = f"dags/{DAG_ID}/dagRuns/{run_id}/taskInstances/{task_id}/xcomEntries/return_value"
        entry = self.cluster.found(path, map_index=place, deserialize="true")
        return dict(entry["value"]) if entry else {}

    def _lines(self) -> Iterator[dict[str, Any]]:
        """Yield the lines of each partition's newest results file, on whichever disk it is."""
        newest: dict[str, Path] = {}
        for home in self.cluster.homes():
            for file in (home / "results" / str(self.number)).glob(f"{SEND}_*.jsonl"):
                known = newest.get(file.name)
                if known is None or known.stat().st_mtime < file.stat().st_mtime:
                    newest[file.name] = file
        for file in newest.values():
            yield from results_in(file)


def _next_contacts(contacts: list[Contact], size: int, first: int) -> list[Contact]:
    """Return as many: a third as they were, a third changed, the rest new; at first all are new."""
    third = min(size // 3, len(contacts) // 2)
    changed = [replace(one, points=one.points + ROOM) for one in contacts[third : 2 * third]]
    return [*contacts[:third], *changed, *first_version(size - third - len(changed), first)]


@contextmanager
def rounds(
    servers: Servers,
    folder: Path,
    size: Size,
    tell: Callable[[str], None],
    kind: type[Cluster] = Cluster,
    *,
    journal: str = "task_state",
) -> Iterator[Rounds]:
    """Start everything, give rounds to hold, and end everything.

    :param journal: where tasks store their journals
    """
    with ExitStack() as stack:
        shop = Shop(servers.databases.shop)
        stack.callback(shop.close)
        sandbox = stack.enter_context(Sandbox(folder / "sandbox.log"))
        settings = {
            "AIRFLOW_CONN_SHOP": shop.connection,
            "AIRFLOW__CPAAS__JOURNAL": journal,
            "CLUSTER_UNKNOWN_TIMEOUT": str(UNKNOWN_TIMEOUT),
        }
        cluster = kind(folder / "homes", DAGS, settings, servers=servers)
        # Its address is known only now.
        shared = {"sender_id": "Example", "timeout": 10, "recipients_per_request": PER_REQUEST, "max_concurrency": 8}
        campaign = {
            **shared,
            "requests_per_second": max(4.0, size.recipients / PER_REQUEST / SENDING_SECONDS),
            "callback_url": f"{cluster.url}/cpaas",
            "callback_secret": "of-the-callbacks-of-this-cluster",
        }
        contacts = {**shared, "requests_per_second": min(200.0, max(20.0, size.contacts / SENDING_SECONDS))}
        settings["AIRFLOW_CONN_CPAAS_DEFAULT"] = connection_json(sandbox.connection, **campaign)
        settings[f"AIRFLOW_CONN_{CONTACTS_CONNECTION.upper()}"] = connection_json(sandbox.connection, **contacts)
        stored = Stored(servers.databases.provider)
        stack.callback(stored.close)
        tell("Starting Airflow and the sandbox ...")
        began = time.monotonic()
        stack.enter_context(running(cluster))
        tell(f"All are running after {time.monotonic() - began:.0f} s.")
        yield Rounds(cluster, sandbox, shop, stored, servers, size, tell)
    if remaining := cluster.remaining():
        raise StandaloneError(f"These still run: {remaining}")
