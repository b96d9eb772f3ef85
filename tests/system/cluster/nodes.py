"""The programs of a cluster, each with a home of its own: nothing on disk is shared by any two."""

from __future__ import annotations

import contextlib
import itertools
import json
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import sqlalchemy

from tests.airflow_home import settings_for
from tests.processes import Started
from tests.system.cluster.compose import common_settings
from tests.system.cluster.servers import Servers
from tests.system.killing.parts import QUICK_TO_NOTICE
from tests.system.standalone import USER, Standalone, StandaloneError, is_answering, wait_for

API_SERVER, SCHEDULER, DAG_PROCESSOR, TRIGGERER = "api-server", "scheduler", "dag-processor", "triggerer"
CONTROL = (API_SERVER, SCHEDULER, DAG_PROCESSOR, TRIGGERER)
CELERY = "CeleryExecutor"
POD, PODS_FOLDER = "pod-", "CLUSTER_PODS"
WORKERS = 2
SLOTS = 4
REPOSITORY = Path(__file__).parents[3]
MIGRATED_WITHIN = 180.0
HEALTHY_WITHIN = 300.0
BACK_WITHIN = 600.0
WORKER_WITHIN = 300.0
STOP_GRACE = 5.0
TASK = "airflow worker -- "

# A dead worker is noticed within 35 seconds. A restart of the API server that takes less than that costs no try.
SETTINGS = {
    **QUICK_TO_NOTICE,
    "AIRFLOW__CORE__PARALLELISM": "16",
    "AIRFLOW__CORE__MAX_ACTIVE_TASKS_PER_DAG": "16",
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "30",
    # A task that a dead worker had fetched and not begun. A task's token ends then, too: it must have begun before.
    "AIRFLOW__SCHEDULER__TASK_QUEUED_TIMEOUT": "90",
    "AIRFLOW__SCHEDULER__TASK_QUEUED_TIMEOUT_CHECK_INTERVAL": "5",
    "AIRFLOW__SCHEDULER__NUM_STUCK_IN_QUEUED_RETRIES": "9",
    "AIRFLOW__WORKERS__MAX_FAILED_HEARTBEATS": "30",
    "AIRFLOW__WORKERS__EXECUTION_API_RETRIES": "15",
    "AIRFLOW__CELERY__WORKER_CONCURRENCY": str(SLOTS),
    "AIRFLOW__CELERY__WORKER_PREFETCH_MULTIPLIER": "1",
    "AIRFLOW__CELERY__SYNC_PARALLELISM": "1",
}


@dataclass
class Cluster(Standalone):
    """One Airflow of many programs; ``home`` is the folder of their homes.

    :param servers: its databases and its broker
    :param executor: ``CeleryExecutor``, or the path of a class
    """

    servers: Servers = field(kw_only=True)
    executor: str = field(default=CELERY, kw_only=True)
    nodes: dict[str, Started] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._numbers = itertools.count(1)
        self._engine = sqlalchemy.create_engine(self.servers.databases.airflow)

    @property
    def log(self) -> Path:
        """What the API server writes."""
        return self.log_of(API_SERVER)

    @property
    def workers(self) -> list[str]:
        """The names of the workers that were started and not killed."""
        return [name for name in self.nodes if name not in CONTROL]

    def log_of(self, node: str) -> Path:
        """Return what a program writes."""
        return self.home / node / f"{node}.log"

    def start(self) -> Cluster:
        """Make the database, then start every program."""
        # The secrets in it are made anew by every call, and the programs must agree on them.
        self._shared = self.environment()
        for node in CONTROL:
            self._make_home(node)
        passwords = self.home / API_SERVER / "simple_auth_manager_passwords.json.generated"
        passwords.write_text(json.dumps({USER: self.password}))
        passwords.chmod(0o600)
        self._migrate()
        for node in CONTROL:
            self.start_node(node)
        if self.executor == CELERY:
            for _ in range(WORKERS):
                self.start_worker()
        return self

    def environment(self) -> dict[str, str]:
        """Return the variables that all programs have in common."""
        celery = {
            "AIRFLOW__CELERY__BROKER_URL": self.servers.redis,
            "AIRFLOW__CELERY__RESULT_BACKEND": f"db+{self.servers.databases.airflow}",
        }
        return {
            **super().environment(),
            **common_settings(),
            **SETTINGS,
            **(celery if self.servers.redis else {}),
            "AIRFLOW__CORE__EXECUTOR": self.executor,
            "AIRFLOW__CPAAS__DATABASE": self.servers.databases.provider,
            "PYTHONPATH": str(REPOSITORY),
            PODS_FOLDER: str(self.home),
            **self.settings,
        }

    def start_node(self, node: str) -> None:
        """Start one of the programs that are no workers, in the home it has."""
        metadata = {"AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": self.servers.databases.airflow}
        self._start(node, [node], metadata)
        # Health checks of the base look at this one.
        self.started = self.nodes[API_SERVER]

    def start_worker(self) -> str:
        """Start a worker in a new home, and return its name. It is not told where Airflow's metadata is."""
        name = f"worker-{next(self._numbers)}"
        self._make_home(name)
        self._start(name, ["celery", "worker", "--celery-hostname", name, "--skip-serve-logs"], {})
        return name

    def restart(self, node: str) -> None:
        """End a program, start it again, and wait until it is well."""
        self.nodes[node].stop(STOP_GRACE)
        self.start_node(node)
        if node == API_SERVER:
            wait_for("the API server to be back", lambda: self.answers() or None, BACK_WITHIN)

    def is_busy(self) -> bool:
        """Tell whether a worker runs a task."""
        return any(self.tasks_of(name) for name in self.workers)

    def strike(self) -> tuple[str, list[str]]:
        """Kill the busier worker and start another; return what was done, and the tasks that it ran."""
        victim = max(self.workers, key=lambda name: len(self.tasks_of(name)))
        tasks = self.kill_worker(victim)
        return f"{victim} killed, {self.start_worker()} started in a new home", tasks

    def kill_worker(self, name: str) -> list[str]:
        """End all processes of a worker without a word and put its home out of reach; return the tasks it ran."""
        tasks = [self.named(id_) for id_ in self.tasks_of(name)]
        started = self.nodes.pop(name)
        # Airflow gives each task a process group of its own; with the machine all of them go.
        while processes := started.processes():
            kill(processes)
        (self.home / name).rename(self.home / f"dead-{name}")
        return sorted(tasks)

    def tasks_of(self, node: str) -> list[uuid.UUID]:
        """Return the ids of the task instances that a program's processes run."""
        return task_instances(self.nodes[node].processes())

    def named(self, task_instance: uuid.UUID) -> str:
        """Return a task instance in words."""
        rows = self.query(
            "SELECT task_id, map_index, try_number FROM task_instance WHERE id = :id", id=task_instance
        ) or [("a task that is over", -1, 0)]
        task_id, map_index, number = rows[0]
        return f"{task_id}{f'[{map_index}]' if map_index >= 0 else ''}, try {number}"

    def answers(self) -> bool:
        """Whether the API server does."""
        return is_answering(self._http)

    def wait_for_workers(self) -> None:
        """Return when every worker takes tasks."""
        for name in self.workers:
            log = self.log_of(name)
            wait_for(
                f"{name} to be ready",
                lambda log=log: (" ready." in log.read_text(errors="replace")) or None,
                WORKER_WITHIN,
            )

    def query(self, sql: str, **values: Any) -> list[tuple[Any, ...]]:
        """Return what is in Airflow's database; the API server may be away."""
        with self._engine.connect() as connection:
            return [tuple(row) for row in connection.execute(sqlalchemy.text(sql), values)]

    def homes(self) -> Iterator[Path]:
        """Yield the homes that tasks ran in, those of dead workers included."""
        yield from (folder for folder in self.home.iterdir() if folder.name.removeprefix("dead-") not in CONTROL)

    def stop(self) -> None:
        """End all processes."""
        self._http.close()
        self._engine.dispose()
        # Workers first: what they still ask the others is answered.
        for name in sorted(self.nodes, key=CONTROL.__contains__):
            self.nodes[name].stop(STOP_GRACE)

    def remaining(self) -> list[psutil.Process]:
        """Return those of its processes that still run."""
        return [process for started in self.nodes.values() for process in started.processes()]

    def _make_home(self, node: str) -> None:
        home = self.home / node
        (home / "tmp").mkdir(mode=0o700, parents=True)
        shutil.copytree(self.dags, home / "dags", ignore=shutil.ignore_patterns("__pycache__"))

    def _start(self, node: str, arguments: list[str], settings: dict[str, str]) -> None:
        command = [str(Path(sys.executable).parent / "airflow"), *arguments]
        self.nodes[node] = Started.start(
            command, {**self._environment_of(node), **settings}, self.log_of(node), self.home / node
        )

    def _environment_of(self, node: str) -> dict[str, str]:
        return {**self._shared, **home_settings(self.home / node)}

    def _migrate(self) -> None:
        metadata = {"AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": self.servers.databases.airflow}
        with self.log.open("ab") as output:
            done = subprocess.run(
                [str(Path(sys.executable).parent / "airflow"), "db", "migrate"],
                env={**self._environment_of(API_SERVER), **metadata},
                cwd=self.home / API_SERVER,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=MIGRATED_WITHIN,
                check=False,
            )
        if done.returncode:
            raise StandaloneError(f"airflow db migrate failed:\n{self.last_words()}")


def home_settings(home: Path) -> dict[str, str]:
    """Return the variables that differ from program to program: nothing they name is anywhere else."""
    return {**settings_for(home), "TMPDIR": str(home / "tmp")}


def task_instances(processes: Iterable[psutil.Process]) -> list[uuid.UUID]:
    """Return the ids of the task instances that processes run."""
    found = set()
    for process in processes:
        with contextlib.suppress(psutil.Error, ValueError):
            found.add(uuid.UUID(" ".join(process.cmdline()).strip().removeprefix(TASK)))
    return list(found)


def kill(processes: Iterable[psutil.Process]) -> None:
    """End processes without a word."""
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


@contextmanager
def running(cluster: Cluster) -> Iterator[Cluster]:
    """Start a cluster, and end it at last."""
    try:
        cluster.start()
        cluster.wait_until_healthy(HEALTHY_WITHIN)
        cluster.wait_for_workers()
        yield cluster
    finally:
        cluster.stop()
