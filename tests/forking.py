"""Several processes that share one start, as Airflow takes seconds to import."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable


def run_forked(count: int, work: Callable[[], None]) -> None:
    """Do some work in so many processes at once, and fail if one of them fails. One alone needs no fork."""
    if count == 1:
        work()
        return
    children = [_fork(work) for _ in range(count)]
    failed = [child for child in children if os.waitpid(child, 0)[1]]
    if failed:
        sys.exit(f"{len(failed)} of {count} processes failed")


def _fork(work: Callable[[], None]) -> int:
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        work()
        sys.stdout.flush()
        status = 0
    except Exception:  # noqa: BLE001 - a child must not go on as its parent
        traceback.print_exc()
    os._exit(status)
