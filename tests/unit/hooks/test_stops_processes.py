"""A stop reaches processes that are sending, within the documented bound, by the sandbox's own record."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

from cpaas_provider.database.activity.stops import StopTable
from cpaas_provider.database.database import open_database
from cpaas_provider.hooks._account.guard import INTERVAL
from tests.sandbox import Sandbox
from tests.unit.database.conftest import postgres_url as postgres_url
from tests.unit.database.conftest import sqlite_url as sqlite_url
from tests.unit.database.conftest import url as url
from tests.unit.database.test_rate_limit_processes import arrivals

ROOT = Path(__file__).parents[3]
PROCESSES = 3
LATE = 1.0
"""Seconds that a busy machine may take to read the database and to send a request."""


def test_no_request_leaves_three_processes_after_the_interval(sandbox: Sandbox, url: str) -> None:
    command = [sys.executable, "-m", "tests.unit.hooks.stopped", sandbox.url, sandbox.api_key]
    environment = {**os.environ, "AIRFLOW__CPAAS__DATABASE": url}
    with open_database(url) as database, contextlib.ExitStack() as stack:
        processes = []
        for _ in range(PROCESSES):
            process = stack.enter_context(
                subprocess.Popen(command, cwd=ROOT, env=environment, text=True, stdout=subprocess.PIPE)
            )
            stack.callback(process.kill)
            processes.append(process)
        for process in processes:
            assert process.stdout
            assert process.stdout.readline() == "sending\n"
        StopTable(database).stop("busy", "ada", "the text is wrong")
        stopped = time.time()
        ends = [process.communicate(timeout=60)[0] for process in processes]
    moments = arrivals(sandbox)
    assert max(moments) <= stopped + INTERVAL + LATE
    # What was in flight was accepted, and each process knows of it.
    assert sum(int(end.split()[0]) for end in ends) == len(moments)
    assert all("ada stopped connection 'busy'" in end for end in ends)
    print(f"The last of {len(moments)} requests arrived {max(moments) - stopped:.2f} s after the stop.")
