"""A process whose tasks fail and notify: ``python -m tests.airflow.notifications.callers ALERTS THREADS``.

It reports when it is ready, begins when a line arrives, and reports when all of its notifiers have returned.
"""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from cpaas_provider.notifications import SmsNotifier

ROOT = Path(__file__).parents[3]
ON_CALL = "+2348035550001"


def context(number: int) -> dict[str, Any]:
    """Return what a notifier reads of the context of a task that failed."""
    instance = SimpleNamespace(dag_id="orders", task_id="load", state="failed", map_index=number, try_number=1)
    return {"dag": SimpleNamespace(dag_id="orders"), "run_id": "now", "ti": instance, "exception": ValueError("no")}


class Callers:
    """One such process.

    :param environment: with the connection and the database
    """

    def __init__(self, alerts: int, threads: int, environment: dict[str, str]) -> None:
        command = [sys.executable, "-m", "tests.airflow.notifications.callers", str(alerts), str(threads)]
        self.process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )

    def read(self) -> str:
        """Return the next of its two reports, waiting for it; nothing when it has ended."""
        assert self.process.stdout
        lines = (line.decode().strip() for line in self.process.stdout)
        # Airflow logs on standard output.
        return next((line for line in lines if line in ("ready", "returned")), "")

    def begin(self) -> None:
        assert self.process.stdin
        self.process.stdin.write(b"begin\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe
            pipe.close()


if __name__ == "__main__":
    alerts, threads = map(int, sys.argv[1:])
    notifier = SmsNotifier(recipients=ON_CALL)
    print("ready", flush=True)
    sys.stdin.readline()
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(lambda number: notifier(context(number)), range(alerts)))
    print("returned", flush=True)
