"""A cluster without workers: each try is a program in a home of its own, as a pod is."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.system.cluster.nodes import POD, SCHEDULER, Cluster, kill, task_instances


@dataclass
class PodCluster(Cluster):
    """Runs tasks by ``PodExecutor``."""

    executor: str = field(default="tests.system.cluster.pods.PodExecutor", kw_only=True)

    def is_busy(self) -> bool:
        """Tell whether a pod runs a task."""
        return bool(task_instances(self._pods()))

    def strike(self) -> tuple[str, list[str]]:
        """Kill all pods, as on a machine that is gone; return what was done, and the tasks that they ran."""
        pods = self._pods()
        tasks = sorted(map(self.named, task_instances(pods)))
        kill(pods)
        return f"{len(tasks)} pods killed", tasks

    def _pods(self) -> list[psutil.Process]:
        """Return the processes of all pods, told by the home they run in: Airflow gives them titles of its own."""
        found = []
        for process in self.nodes[SCHEDULER].processes():
            with contextlib.suppress(psutil.Error):
                if Path(process.cwd()).name.startswith(POD):
                    found.append(process)
        return found
