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
    command = [sys.executable, "-m", "tests.unit.hooks.stopped", str(PROCESSES), sandbox.url, sandbox.api_key]
    environment = {**os.environ, "AIRFLOW__CPAAS__DATABASE": url}
    with (
        open_database(url) as database,
        subprocess.Popen(command, cwd=ROOT, env=environment, text=True, stdout=subprocess.PIPE) as started,
        contextlib.ExitStack() as stack,
    ):
        stack.callback(started.kill)
        assert started.stdout
        assert [started.stdout.readline() for _ in range(PROCESSES)] == ["sending\n"] * PROCESSES
        StopTable(database).stop("busy", "ada", "the text is wrong")
        stopped = time.time()
        # The other lines are logs.
        lines = started.communicate(timeout=120)[0].splitlines()
    ends = [line for line in lines if line.partition(" ")[0].isdecimal()]
    assert (started.returncode, len(ends)) == (0, PROCESSES)
    moments = arrivals(sandbox)
    assert max(moments) <= stopped + INTERVAL + LATE
    # What was in flight was accepted, and each process knows of it.
    assert sum(int(end.split()[0]) for end in ends) == len(moments)
    assert all("ada stopped connection 'busy'" in end for end in ends)
    print(f"The last of {len(moments)} requests arrived {max(moments) - stopped:.2f} s after the stop.")
