"""An executor that runs tasks as Kubernetes does: each try is a program of its own, in a new home, told by variables.

The program is the one that Airflow's KubernetesExecutor starts in a pod. Airflow loads the class in the scheduler.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from airflow.executors.base_executor import BaseExecutor

from tests.system.cluster.nodes import POD, PODS_FOLDER, home_settings

WITHOUT_DATABASE = "without-database"
"""The queue of tasks whose pods are not told where the provider's database is."""

# What only the scheduler knows.
HIDDEN = ("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN", "AIRFLOW__API_AUTH__JWT_SECRET")
DATABASE = "AIRFLOW__CPAAS__DATABASE"


class PodExecutor(BaseExecutor):
    """Runs each try by itself; what it leaves on disk, no other reads."""

    def start(self) -> None:
        """Remember no pod."""
        self._pods: dict[Any, subprocess.Popen[bytes]] = {}

    def sync(self) -> None:
        """Tell which pods ended, and how."""
        for key, pod in list(self._pods.items()):
            if pod.poll() is not None:
                del self._pods[key]
                (self.fail if pod.returncode else self.success)(key)

    def end(self) -> None:
        """End all pods."""
        self.terminate()

    def terminate(self) -> None:
        """End all pods without a word."""
        for pod in self._pods.values():
            pod.kill()

    def _process_workloads(self, workload_items: Sequence[Any]) -> None:
        for workload in workload_items:
            del self.queued_tasks[workload.key]
            self.running.add(workload.key)
            self._pods[workload.key] = _run(workload)


def _run(workload: Any) -> subprocess.Popen[bytes]:
    key = workload.key
    # A task that was deferred continues in another pod, with the same number of its try.
    place = f"{key.task_id}-{key.map_index}" if key.map_index >= 0 else key.task_id
    name = f"{POD}{key.dag_id}-{place}-{key.try_number}-"
    home = Path(tempfile.mkdtemp(prefix=name, dir=os.environ[PODS_FOLDER]))
    (home / "tmp").mkdir()
    shutil.copytree(os.environ["AIRFLOW__CORE__DAGS_FOLDER"], home / "dags")
    environment = {name: value for name, value in os.environ.items() if name not in HIDDEN} | home_settings(home)
    if workload.ti.queue == WITHOUT_DATABASE:
        del environment[DATABASE]
    with (home / "pod.log").open("ab") as output:
        return subprocess.Popen(
            [
                sys.executable,
                "-m",
                "airflow.sdk.execution_time.execute_workload",
                "--json-string",
                workload.model_dump_json(),
            ],
            env=environment,
            cwd=home,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
