"""Two campaigns at a time over the same 10,000 recipients with a cap of one, on a real Airflow, and under kills.

Each recipient gets exactly one message, by the sandbox. After kills, a recipient may have none only if the results file
of the campaign that was killed names it as unknown.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.reading import results_in
from tests.sandbox import Sandbox, connection_json
from tests.system.standalone import Standalone, wait_for
from tests.unit.database.conftest import postgres_url as postgres_url
from tests.unit.database.conftest import sqlite_url as sqlite_url
from tests.unit.database.conftest import url as url

pytestmark = pytest.mark.skipif(
    not os.environ.get("TORTURE"), reason="make torture: the slow tests do the same with processes"
)

DAGS = Path(__file__).parent / "capped" / "dags"
RECIPIENTS = 10_000
KILLS = 6
MORNING, EVENING = "morning", "evening"


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Sandbox]:
    with Sandbox(tmp_path / "sandbox.log") as running:
        yield running


@pytest.fixture
def airflow(tmp_path: Path, service: Sandbox, url: str) -> Iterator[Standalone]:
    connection = connection_json(service.connection, recipients_per_request=50, max_concurrency=4)
    settings = {"AIRFLOW_CONN_CPAAS_DEFAULT": connection, "AIRFLOW__CPAAS__DATABASE": url}
    with Standalone(tmp_path / "airflow", DAGS, settings) as running:
        yield running


def people(folder: Path, first: int) -> tuple[list[str], dict[str, Path]]:
    """Write the same recipients in two orders, and return them and the files."""
    numbers = [f"23480{first + number:08d}" for number in range(RECIPIENTS)]
    files = {}
    for name, ordered in ((MORNING, numbers), (EVENING, [*numbers[RECIPIENTS // 2 :], *numbers[: RECIPIENTS // 2]])):
        files[name] = folder / f"{name}-{first}.csv"
        files[name].write_text("phone\n" + "".join(f"+{number}\n" for number in ordered))
    return numbers, files


def reached(service: Sandbox) -> Counter[str]:
    """Return how many messages each recipient got."""
    found: Counter[str] = Counter()
    offset = 0
    while items := service.inbox("sms", limit=1000, offset=offset)["items"]:
        found.update(item["recipient"] for item in items)
        offset += len(items)
    return found


def outcomes(folder: Path, dag_id: str) -> dict[str, str]:
    """Return the status of each recipient in a results file."""
    return {line["recipient"]: line["outcome"] for line in results_in(folder / f"{dag_id}.jsonl")}


def task_process(airflow: Standalone, dag_id: str, run_id: str) -> psutil.Process | None:
    """Return the process that a task runs in, while there is one."""
    task: dict[str, Any] = airflow.api("GET", f"dags/{dag_id}/dagRuns/{run_id}/taskInstances/send")
    for process in airflow.started.processes() if airflow.started else ():
        with contextlib.suppress(psutil.Error):
            if " ".join(process.cmdline()).strip() == f"airflow worker -- {task['id']}":
                return process
    return None


def start(airflow: Standalone, category: str, files: dict[str, Path], out: Path) -> dict[str, str]:
    """Start both campaigns of a category, and return the ids of their runs."""
    out.mkdir()
    return {
        f"{name}_{category}": airflow.trigger(f"{name}_{category}", {"source": str(files[name]), "out": str(out)})
        for name in (MORNING, EVENING)
    }


def has_sent(service: Sandbox, recipients: int) -> bool | None:
    """Return whether so many recipients were sent to, ``None`` if not."""
    return service.counters()["sms"]["recipients"] >= recipients or None


def test_each_recipient_gets_exactly_one_message_also_under_kills(
    airflow: Standalone, service: Sandbox, tmp_path: Path
) -> None:
    numbers, files = people(tmp_path, 31_000_000)
    out = tmp_path / "undisturbed"
    for dag_id, run_id in start(airflow, "undisturbed", files, out).items():
        assert airflow.ended(dag_id, run_id, 300) == "success"
    assert reached(service) == Counter(numbers)
    for name in (MORNING, EVENING):
        found = Counter(outcomes(out, f"{name}_undisturbed").values())
        assert found.total() == found["sent"] + found["frequency_capped"] == RECIPIENTS

    service.reset()
    # So long that both can be killed in the middle.
    service.control("POST", "faults", {"operation": "send_sms", "kind": "latency", "ms": 500})
    numbers, files = people(tmp_path, 32_000_000)
    out, draw = tmp_path / "killed", random.Random(7)
    runs = start(airflow, "killed", files, out)
    killed = 0
    for number in range(1, KILLS + 1):
        wait_for("further messages", partial(has_sent, service, number * RECIPIENTS // (KILLS + 2)), 180)
        dag_id = draw.choice(sorted(runs))
        process = task_process(airflow, dag_id, runs[dag_id])
        if process is not None:
            os.kill(process.pid, signal.SIGKILL)
            killed += 1
    for dag_id, run_id in runs.items():
        assert airflow.ended(dag_id, run_id, 600) == "success"
    assert killed >= KILLS // 2
    found = reached(service)
    assert set(found.values()) == {1}
    missed = set(numbers) - found.keys()
    named = {
        recipient for dag_id in runs for recipient, outcome in outcomes(out, dag_id).items() if outcome == "unknown"
    }
    print(f"{killed} kills: {len(found)} recipients got one message, {len(missed)} none, {len(named)} unknown.")
    assert missed <= named
