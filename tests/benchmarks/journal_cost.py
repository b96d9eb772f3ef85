"""What the journal costs a single send, on a real Airflow: ``python -m tests.benchmarks.journal_cost``.

The same SMS is sent with the journal and without it, in task instances that take turns, and each says how long its
``execute`` took and how long it waited for the task's state. Printed are medians; the machine's noise is in both.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.benchmarks.dags.journal_cost import SENDS
from tests.sandbox import Sandbox, connection_json
from tests.system.standalone import Standalone

DAGS = Path(__file__).parent / "dags"
DAG_ID = "journal_cost"
LATENCY_MS = 20


def main() -> None:
    """Send, and print the table."""
    with tempfile.TemporaryDirectory() as folder, Sandbox(Path(folder) / "sandbox.log") as sandbox:
        sandbox.control("POST", "faults", {"operation": "send_sms", "kind": "latency", "ms": LATENCY_MS})
        connection = connection_json(sandbox.connection, requests_per_second=1000)
        with Standalone(Path(folder) / "airflow", DAGS, {"AIRFLOW_CONN_CPAAS_DEFAULT": connection}) as airflow:
            run_id = airflow.trigger(DAG_ID)
            if airflow.ended(DAG_ID, run_id, 900) != "success":
                sys.exit(f"The run failed:\n{airflow.task_log(DAG_ID, run_id, 'timed')}")
            measured = {task: _results(airflow, run_id, task) for task in ("timed", "unjournaled")}
        accepted = sandbox.counters()["sms"]["recipients"]
    print(_table(measured))
    print(f"\n{accepted} of {2 * SENDS} messages accepted; the service answers after {LATENCY_MS} ms.")


def _results(airflow: Standalone, run_id: str, task_id: str) -> list[dict[str, Any]]:
    path = f"dags/{DAG_ID}/dagRuns/{run_id}/taskInstances/{task_id}/xcomEntries/return_value"
    return [airflow.api("GET", path, map_index=index)["value"] for index in range(SENDS)]


def _table(measured: dict[str, list[dict[str, Any]]]) -> str:
    lines = ["| | with the journal | without |", "|---|---|---|"]
    columns = [measured["timed"], measured["unjournaled"]]
    lines.append(_line("execute, median ms", columns, lambda one: one["execute"]))
    for kind in ("reads", "writes"):
        lines.append(_line(f"{kind} a send", columns, lambda one, kind=kind: len(one[kind]), 0))
        lines.append(_line(f"{kind}, median ms of all together", columns, lambda one, kind=kind: sum(one[kind])))
    return "\n".join(lines)


def _line(what: str, columns: list[list[dict[str, Any]]], value: Any, digits: int = 1) -> str:
    figures = [f"{statistics.median(map(value, column)):.{digits}f}" for column in columns]
    return f"| {what} | {figures[0]} | {figures[1]} |"


if __name__ == "__main__":
    main()
