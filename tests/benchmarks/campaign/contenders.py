"""Who takes part: variants in a process of their own, and tasks of a real Airflow."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple, Protocol

from tests.benchmarks.campaign.recipients import write_csv
from tests.benchmarks.campaign.serving import IMPORTED_FROM, REPOSITORY
from tests.benchmarks.campaign.variants import API_KEY, NO_LIMIT
from tests.system.killing.parts import AirflowInParts
from tests.system.standalone import ENDED, Standalone, wait_for

DAGS = REPOSITORY / "tests" / "benchmarks" / "dags"
# Packages beside those of the environment; see the target of the Makefile.
PEERS = Path(sys.prefix) / "peers"
RUN_WITHIN = 300.0
# Whoever asks more often slows down what he measures.
ASK_EVERY = 1.0

IN_FLIGHT = (8, 32, 128)
RECIPIENTS = (1, 500)


class Point(NamedTuple):
    """What is asked of a contender: so many recipients a request, so many requests in flight."""

    recipients: int
    in_flight: int


ONE_BY_ONE = tuple(Point(recipients, 1) for recipients in RECIPIENTS)
CONCURRENT = tuple(Point(recipients, in_flight) for recipients in RECIPIENTS for in_flight in IN_FLIGHT)


class ContenderError(RuntimeError):
    """A contender did not do what it was asked to; the message holds its last words."""


class Contender(Protocol):
    """Somebody who sends; the bare server sees how fast."""

    name: str
    title: str
    points: tuple[Point, ...]

    def run(self, server_url: str, requests: int, point: Point) -> None: ...


class InProcess:
    """A variant in a fresh process."""

    def __init__(self, name: str, title: str, points: tuple[Point, ...]) -> None:
        self.name, self.title, self.points = name, title, points

    def run(self, server_url: str, requests: int, point: Point) -> None:
        numbers = map(str, (requests, point.in_flight, point.recipients))
        done = subprocess.run(
            [sys.executable, "-m", "tests.benchmarks.campaign.variants", self.name, server_url, *numbers],
            cwd=REPOSITORY,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([*IMPORTED_FROM, str(PEERS)])},
            capture_output=True,
            text=True,
            timeout=RUN_WITHIN,
            check=False,
        )
        if done.returncode:
            raise ContenderError(f"{self.title} failed:\n{done.stderr[-3000:]}")


class InTask:
    """The only task, ``send``, of DAG ``campaign_rate_<name>`` on a real Airflow; its parameters say what to do."""

    def __init__(self, name: str, title: str, airflow: Standalone) -> None:
        self.name, self.title, self.points = name, title, CONCURRENT
        self._airflow = airflow

    def run(self, server_url: str, requests: int, point: Point) -> None:
        dag_id = f"campaign_rate_{self.name}"
        people = self._airflow.home / "people.csv"
        write_csv(people, requests * point.recipients, repeats=False)
        conf = {
            "server_url": server_url,
            "connection": connection_id(point),
            "people": str(people),
            "requests": requests,
            "in_flight": point.in_flight,
            "recipients": point.recipients,
        }
        run_id = self._airflow.trigger(dag_id, conf)

        def look() -> str | None:
            state = str(self._airflow.api("GET", f"dags/{dag_id}/dagRuns/{run_id}")["state"])
            return state if state in ENDED else None

        if wait_for(f"the run of {dag_id} to end", look, RUN_WITHIN, ASK_EVERY) != "success":
            raise ContenderError(f"{self.title} failed:\n{self._airflow.task_log(dag_id, run_id, 'send')}")


def connection_id(point: Point) -> str:
    """Return the id of the connection whose limits are those of a point."""
    return f"bench_{point.in_flight}_{point.recipients}"


def airflow_for(server_url: str, home: Path) -> Standalone:
    """Return an Airflow, not started yet, with the DAGs of this folder and a connection for every point."""
    settings = {"PYTHONPATH": os.pathsep.join(IMPORTED_FROM)}
    for point in CONCURRENT:
        extra = {
            "requests_per_second": NO_LIMIT,
            "max_concurrency": point.in_flight,
            "recipients_per_request": point.recipients,
        }
        connection = {"conn_type": "cpaas", "host": server_url, "password": API_KEY, "extra": extra}
        settings[f"AIRFLOW_CONN_{connection_id(point).upper()}"] = json.dumps(connection)
    return AirflowInParts(home, DAGS, settings)


def local_contenders() -> list[Contender]:
    """Return those that need no Airflow."""
    return [
        InProcess("loop", "loop with one client", ONE_BY_ONE),
        InProcess("http", "http provider's operator", ONE_BY_ONE),
        InProcess("aiohttp", "bare aiohttp", CONCURRENT),
        InProcess("transport", "bare transport", CONCURRENT),
        InProcess("client", "our client", CONCURRENT),
        InProcess("personal", "our client, the campaign's requests", CONCURRENT),
    ]


def airflow_contenders(airflow: Standalone) -> list[Contender]:
    """Return those that are tasks."""
    return [
        InTask("transport_in_task", "bare transport in a task", airflow),
        InTask("unjournaled", "campaign without the journal", airflow),
        InTask("narrow", "campaign, max_pending_requests as by default", airflow),
        InTask("journaled", "campaign, max_pending_requests 4 times max_concurrency", airflow),
    ]
