"""An Airflow whose parts are processes of their own, so that each can be killed while the others go on."""

from __future__ import annotations

import contextlib
import json
import signal
import sqlite3
import sys
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import psutil

from tests import journals
from tests.airflow_database import make_airflow_database
from tests.processes import Started
from tests.system.standalone import USER, Standalone, is_answering, wait_for

API_SERVER, SCHEDULER = "api-server", "scheduler"
PARTS = (API_SERVER, SCHEDULER, "dag-processor", "triggerer")
AWAY_WITHIN = 90.0
DEAD_WITHIN = 10.0
# Whatever is said by now is all that will be asked for.
STOP_GRACE = 3.0

# A dead supervisor is noticed within 12 to 14 seconds; an outage of the API server shorter than that costs no try.
QUICK_TO_NOTICE = {
    "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
    "AIRFLOW__CORE__PARALLELISM": "8",
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_SEC": "2",
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "12",
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "2",
    "AIRFLOW__SCHEDULER__SCHEDULER_HEARTBEAT_SEC": "2",
    "AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD": "20",
    "AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "15",
    "AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL": "2",
    "AIRFLOW__WORKERS__EXECUTION_API_RETRY_WAIT_MAX": "4",
    "AIRFLOW__API__WORKERS": "1",
    "AIRFLOW__LOGGING__LOGGING_LEVEL": "INFO",
}


_OF_TASK = f"dag_id = ? AND run_id = ? AND task_id = ? AND map_index = ? AND key LIKE '{journals.KEY}%'"


class Try(NamedTuple):
    """A task instance that a process works on: where it stands in the DAG, and its number."""

    task_id: str
    map_index: int
    number: int


@dataclass
class AirflowInParts(Standalone):
    """One Airflow as ``Standalone`` is, of four programs."""

    parts: dict[str, Started] = field(default_factory=dict, init=False)
    deaths: list[str] = field(default_factory=list, init=False)

    def start(self) -> AirflowInParts:
        """Make the database, then start every part."""
        make_airflow_database(self.home)
        passwords = self.home / "simple_auth_manager_passwords.json.generated"
        passwords.write_text(json.dumps({USER: self.password}))
        passwords.chmod(0o600)
        # The secrets in it are made anew by every call, and the parts must agree on them.
        self._environment = self.environment()
        for part in PARTS:
            self.start_part(part)
        return self

    def environment(self) -> dict[str, str]:
        """Return the variables all parts run with."""
        # A server stopped in the middle of a transaction keeps the others from writing for as long.
        database = {"AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{self.database}?timeout=60"}
        return {**super().environment(), **QUICK_TO_NOTICE, **database, **self.settings}

    @property
    def database(self) -> Path:
        """The file of its SQLite database."""
        return self.home / "airflow.db"

    def start_part(self, part: str) -> None:
        """Start one of the parts."""
        command = [str(Path(sys.executable).parent / "airflow"), part]
        self.parts[part] = Started.start(command, self._environment, self.log, self.home)
        # Health checks of the base look at this one.
        self.started = self.parts[API_SERVER]

    def kill_api_server(self) -> None:
        """End the API server without a word; ``start_part`` brings another."""
        for process in self.parts[API_SERVER].processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
                # Its port must be free for the next one, and nobody else buries it.
                process.wait(DEAD_WITHIN)

    def freeze_api_server(self) -> None:
        """Have the API server take connections and answer none, until ``thaw_api_server``."""
        self._signal_api_server(signal.SIGSTOP)

    def thaw_api_server(self) -> None:
        """Let a frozen API server go on."""
        self._signal_api_server(signal.SIGCONT)

    def answers(self) -> bool:
        """Whether the API server does."""
        return is_answering(self._http)

    def revive(self) -> None:
        """Start again what died though nobody killed it, and remember that it did."""
        for part, started in self.parts.items():
            if not psutil.pid_exists(started.session) or not started.alive:
                self.deaths.append(part)
                self.start_part(part)

    def replace_scheduler(self) -> None:
        """Put another scheduler in the place of one that does nothing any more, and remember it."""
        self.parts[SCHEDULER].stop()
        self.deaths.append(f"{SCHEDULER} (stuck)")
        self.start_part(SCHEDULER)

    def supervisors(self) -> dict[psutil.Process, tuple[uuid.UUID, psutil.Process]]:
        """Return the executor's busy workers, with the task instance each supervises and the process it runs in."""
        found = {}
        with contextlib.suppress(psutil.Error):
            family = psutil.Process(self.parts[SCHEDULER].session).children(recursive=True)
            tasks = {parent: child for child in family if (parent := _parent_of(child))}
            for worker in family:
                with contextlib.suppress(psutil.Error, ValueError, KeyError):
                    _, _, id_ = " ".join(worker.cmdline()).strip().partition("LocalExecutor: ")
                    found[worker] = (uuid.UUID(id_), tasks[worker.pid])
        return found

    def task_processes(self, dag_id: str | None = None) -> list[psutil.Process]:
        """Return the processes tasks run in, those whose supervisor is dead included.

        :param dag_id: only those of one DAG
        """
        found = {task: id_ for id_, task in self.supervisors().values()}
        for process in self.parts[SCHEDULER].processes():
            with contextlib.suppress(psutil.Error, ValueError):
                found[process] = uuid.UUID(" ".join(process.cmdline()).strip().removeprefix("airflow worker -- "))
        return [task for task, id_ in found.items() if not dag_id or self._task_instance("dag_id", id_) == [(dag_id,)]]

    def try_of(self, task_instance: uuid.UUID) -> Try | None:
        """Tell which try a task instance's id stands for; asks the database, as the API server may be away."""
        rows = self._task_instance("task_id, map_index, try_number", task_instance)
        return Try(*rows[0]) if rows else None

    def runs(self, task_instance: uuid.UUID) -> bool:
        """Whether Airflow knows that a task instance runs."""
        return self._task_instance("state", task_instance) == [("running",)]

    def query(self, sql: str, *values: Any, file: Path | None = None) -> list[tuple[Any, ...]]:
        """Return what is in its database, or in another file, without a way to change it."""
        address = f"file:{file or self.database}?mode=ro"
        with contextlib.closing(sqlite3.connect(address, uri=True, timeout=60)) as connection:
            return connection.execute(sql, values).fetchall()

    def journal_rows(self, dag_id: str, run_id: str, task_id: str, map_index: int) -> list[tuple[int, str, Any]]:
        """Return row number, key and value of the parts of a journal, wherever tasks keep theirs."""
        task = (dag_id, run_id, task_id, map_index)
        if self.settings.get("AIRFLOW__CPAAS__JOURNAL") != "database":
            return self.query(f"SELECT id, key, value FROM task_state_store WHERE {_OF_TASK}", *task)
        stored = self.home / "cpaas" / "cpaas.db"
        tables = "cpaas_campaign_values JOIN cpaas_task_journals ON campaign = journal"
        # A try that could not name its journal in the task state has sent nothing, and the next one began another.
        newest = f"SELECT max(number) FROM {tables} WHERE {_OF_TASK}"
        query = f"SELECT cpaas_campaign_values.rowid, key, value FROM {tables} WHERE {_OF_TASK} AND number = ({newest})"
        return self.query(query, *task, *task, file=stored) if stored.exists() else []

    def stop(self) -> None:
        """End all its processes, frozen ones too."""
        self._http.close()
        with contextlib.suppress(psutil.Error):
            self.thaw_api_server()
        for started in self.parts.values():
            started.stop(STOP_GRACE)

    def remaining(self) -> list[psutil.Process]:
        """Return those of its processes that still run."""
        return [process for started in self.parts.values() for process in started.processes()]

    def _signal_api_server(self, number: signal.Signals) -> None:
        if API_SERVER in self.parts:
            for process in self.parts[API_SERVER].processes():
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.send_signal(number)

    def _task_instance(self, columns: str, id_: uuid.UUID) -> list[tuple[Any, ...]]:
        # Databases with a type of their own for it aside, it is stored as hexadecimal digits, with or without dashes.
        return self.query(f"SELECT {columns} FROM task_instance WHERE id IN (?, ?)", id_.hex, str(id_))

    def _ask(self, method: str, path: str, body: Any, query: Mapping[str, Any]) -> httpx.Response:
        """Ask once more where the server was killed meanwhile."""
        deadline = time.monotonic() + AWAY_WITHIN
        while True:
            try:
                return super()._ask(method, path, body, query)
            except httpx.TransportError:
                wait_for("the API server to be back", lambda: self.answers() or None, deadline - time.monotonic())


def _parent_of(process: psutil.Process) -> int | None:
    with contextlib.suppress(psutil.Error):
        return process.ppid()
    return None
