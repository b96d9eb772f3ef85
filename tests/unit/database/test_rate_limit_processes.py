"""Processes with one rate limit keep to it together, by the sandbox's own record of when their requests came."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from tests.sandbox import Sandbox
from tests.waiting import until

ROOT = Path(__file__).parents[3]
PROCESSES = 4
EARLY = 0.05
"""Seconds that the clocks of the sandbox and of the test may be apart, on the same machine."""


@contextlib.contextmanager
def senders(sandbox: Sandbox, url: str, per_second: float, count: int) -> Iterator[list[subprocess.Popen[str]]]:
    """Start processes that are ready to send."""
    command = [sys.executable, "-m", "tests.unit.database.rate_limited", sandbox.url, sandbox.api_key, url]
    with contextlib.ExitStack() as stack:
        started = []
        for _ in range(PROCESSES):
            process = stack.enter_context(
                subprocess.Popen(
                    [*command, str(per_second), str(count)],
                    cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                )
            )  # fmt: skip
            stack.callback(process.kill)
            started.append(process)
        for process in started:
            assert process.stdout
            assert process.stdout.readline() == "ready\n"
        yield started


def go(processes: list[subprocess.Popen[str]]) -> float:
    """Let all begin, and return when that was."""
    began = time.time()
    for process in processes:
        assert process.stdin
        process.stdin.write("\n")
        process.stdin.flush()
    return began


def arrivals(sandbox: Sandbox) -> list[float]:
    moments: list[float] = []
    while items := sandbox.inbox("sms", limit=200, offset=len(moments))["items"]:
        moments += [datetime.fromisoformat(one["created_datetime"]).timestamp() for one in items]
    return sorted(moments)


def assert_kept(moments: list[float], began: float, per_second: float) -> None:
    """The moments that were reserved begin at ``began`` and are evenly spaced: no load lets a request come before its
    own."""
    early = [number for number, moment in enumerate(moments) if moment < began + number / per_second - EARLY]
    assert not early, (early, [moment - began for moment in moments])


def test_four_processes_together_stay_within_the_limit(sandbox: Sandbox, url: str) -> None:
    with senders(sandbox, url, 50, 25) as processes:
        began = go(processes)
        assert [process.wait(120) for process in processes] == [0] * PROCESSES
    moments = arrivals(sandbox)
    assert len(moments) == 100
    assert_kept(moments, began, 50)


def test_remaining_processes_stay_within_the_limit_after_a_kill(sandbox: Sandbox, url: str) -> None:
    with senders(sandbox, url, 50, 25) as processes:
        began = go(processes)
        until(lambda: sandbox.counters()["sms"]["requests"] >= 15)
        processes[0].kill()
        assert [process.wait(120) for process in processes[1:]] == [0] * (PROCESSES - 1)
        assert processes[0].wait() < 0
    moments = arrivals(sandbox)
    assert 75 <= len(moments) < 100
    assert_kept(moments, began, 50)
