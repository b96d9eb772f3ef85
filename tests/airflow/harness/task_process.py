"""Runs tasks in processes of their own, as an executor does, and measures what each loads and costs.

``python -m tests.airflow.harness.task_process [ROUNDS]`` prints the figures. Supervisor and task processes are
Airflow's own. Only its execution API is a dictionary in memory, so that nothing of an API server is loaded or measured.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.airflow_home import settings_for, without_airflow
from tests.sandbox import Sandbox, connection_json

DAGS = Path(__file__).parent / "dags"
KINDS = ("empty", "sms")


def measure(sandbox: Sandbox, rounds: int = 1) -> dict[str, list[dict[str, Any]]]:
    """Run each kind of task in turn, and return what was measured of each process."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {
            **without_airflow(os.environ),
            **settings_for(Path(folder)),
            "AIRFLOW__CORE__DAGS_FOLDER": str(DAGS),
            "AIRFLOW_CONN_CPAAS_DEFAULT": connection_json(sandbox.connection, requests_per_second=1000),
        }
        # A process that has nothing loaded but what an executor has.
        command = [sys.executable, "-m", __name__ if __name__ != "__main__" else __spec__.name, "run", str(rounds)]
        done = subprocess.run([*command, folder], env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(done.stdout + done.stderr)
        found: dict[str, list[dict[str, Any]]] = json.loads((Path(folder) / "measured.json").read_text())
    return found


def _run(rounds: int, folder: Path) -> None:
    from airflow.executors import workloads as _  # noqa: F401 - what an executor has loaded
    from airflow.sdk.execution_time import supervisor as __  # noqa: F401

    # As executors do. Otherwise a garbage collection of all that they have loaded falls into one task or the other.
    gc.freeze()
    found: dict[str, list[dict[str, Any]]] = {kind: [] for kind in KINDS}
    for _round in range(rounds):
        for kind in KINDS:
            found[kind].append(_run_task(kind, folder))
    (folder / "measured.json").write_text(json.dumps(found))


def _run_task(kind: str, folder: Path) -> dict[str, Any]:
    from airflow.sdk.api.datamodels._generated import BundleInfo, TaskInstance
    from airflow.sdk.execution_time.supervisor import supervise_task

    result, log = folder / "result.json", folder / "task.log"
    os.environ.update(TASK_PROCESS=kind, TASK_PROCESS_RESULT=str(result))
    instance = TaskInstance(
        id=uuid.uuid4(),
        dag_id="one_task",
        run_id="run",
        task_id="task",
        try_number=1,
        dag_version_id=uuid.uuid4(),
    )
    before = _cpu_of_children()
    status = supervise_task(
        ti=instance,
        bundle_info=BundleInfo(name="dags-folder"),
        dag_rel_path="one_task.py",
        token="",
        client=_execution_api(),
        log_path=str(log),
    )
    if status or not result.exists():
        raise RuntimeError(log.read_text())
    measured: dict[str, Any] = json.loads(result.read_text())
    result.unlink()
    return {**measured, "process_ms": (_cpu_of_children() - before) * 1000}


def _cpu_of_children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _execution_api() -> Any:
    """Return a client of an execution API that holds the state of one task in memory."""
    import httpx
    from airflow.sdk.api.client import Client

    state: dict[str, Any] = {}
    now = datetime.now(UTC).isoformat()
    run = {
        **dict.fromkeys(("data_interval_start", "data_interval_end", "end_date", "partition_key")),
        **dict.fromkeys(("logical_date", "run_after", "start_date"), now),
        "dag_id": "one_task",
        "run_id": "run",
        "run_type": "manual",
        "state": "running",
        "consumed_asset_events": [],
    }

    def answer(request: httpx.Request) -> httpx.Response:
        path = request.url.path
        if path.endswith("/run"):
            return httpx.Response(200, json={"dag_run": run, "max_tries": 0, "should_retry": False})
        if path.endswith("/variables/keys"):
            return httpx.Response(200, json={"keys": [], "total_entries": 0})
        if request.method == "PUT" and "/store/" in path:
            state[path] = json.loads(request.read())["value"]
        elif request.method == "GET" and path in state:
            return httpx.Response(200, json={"value": state[path]})
        elif request.method == "GET":
            return httpx.Response(404, json={"detail": {"reason": "not_found"}})
        return httpx.Response(200, json={"ok": True})

    # A dry run's client may have a transport of its own.
    client = Client(base_url=None, token="", dry_run=True, transport=httpx.MockTransport(answer))
    client.base_url = "http://in-memory./"
    return client


def _print_figures(rounds: int) -> None:
    with tempfile.TemporaryDirectory() as folder, Sandbox(Path(folder) / "sandbox.log") as sandbox:
        found = measure(sandbox, rounds)
    print("| | CPU ms of the process | of execute | modules |\n|---|---|---|---|")
    for kind, processes in found.items():
        figures = [statistics.median(process[name] for process in processes) for name in ("process_ms", "execute_ms")]
        print(f"| {kind} | {figures[0]:.0f} | {figures[1]:.0f} | {len(processes[-1]['modules'])} |")


if __name__ == "__main__":
    if sys.argv[1:2] == ["run"]:
        _run(int(sys.argv[2]), Path(sys.argv[3]))
    else:
        _print_figures(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
