"""A client that a process used before it was forked: each process has moments of its own afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

PER_SECOND = 20.0
TIMES = 6
_FORKING = """
import os, sys, time
from cpaas_provider.hooks._rate_limit.limiter import SharedRateLimiter
from cpaas_provider.hooks._rate_limit.stored import StoredReservations

per_second, times = float(sys.argv[1]), int(sys.argv[2])
limiter = SharedRateLimiter(per_second, StoredReservations("forked"), "connection 'forked'")
for _ in range(8):
    limiter.wait(time.sleep)
child = os.fork()
for _ in range(times):
    limiter.wait(time.sleep)
    os.write(1, f"{time.monotonic()}\\n".encode())
limiter.close()
if child:
    assert os.waitpid(child, 0)[1] == 0
    limiter.wait(time.sleep)
    # A process that makes no request must not end the sessions of the other, either.
    idle = os.fork()
    if idle:
        assert os.waitpid(idle, 0)[1] == 0
        limiter.wait(time.sleep)
    limiter.close()
"""


def _run(url: str, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program on the database."""
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=Path(__file__).parents[3],
        env={**os.environ, "AIRFLOW__CPAAS__DATABASE": url},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_forked_processes_share_no_moment(url: str) -> None:
    done = _run(url, _FORKING, str(PER_SECOND), str(TIMES))
    assert done.returncode == 0, done.stderr
    left = sorted(map(float, done.stdout.split()))
    assert len(left) == 2 * TIMES
    # A busy machine may delay one of two that follow each other, and never all of them.
    assert left[-1] - left[0] >= (2 * TIMES - 1) / PER_SECOND - 0.1, [
        after - before for before, after in pairwise(left)
    ]


_FORKING_WHILE_OTHERS_WAIT = """
import os, signal, sys, threading, time
from cpaas_provider.hooks._rate_limit.limiter import SharedRateLimiter
from cpaas_provider.hooks._rate_limit.stored import StoredReservations

signal.alarm(50)
limiter = SharedRateLimiter(4.0, StoredReservations("forked"), "connection 'forked'")
limiter.wait(time.sleep)
threads = [threading.Thread(target=limiter.wait, args=(time.sleep,)) for _ in range(6)]
for one in threads:
    one.start()
# Threads wait for their turn, sleep until their moment, or reserve one.
for _ in range(int(sys.argv[1])):
    time.sleep(0.05)
    if not os.fork():
        signal.alarm(20)
        limiter.wait(time.sleep)
        os.write(1, b"left\\n")
        os._exit(0)
for _ in range(int(sys.argv[1])):
    assert os.wait()[1] == 0
for one in threads:
    one.join()
limiter.close()
"""


def test_process_forked_while_requests_wait_gets_its_own_moment(url: str) -> None:
    done = _run(url, _FORKING_WHILE_OTHERS_WAIT, "8")
    assert (done.returncode, done.stdout) == (0, "left\n" * 8), done.stderr
