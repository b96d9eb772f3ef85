"""Ends a worker process when its supervisor, or the process that forked it, has ended."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from multiprocessing import connection

LOOK_SECONDS = 1.0
"""How often a worker checks that the process that forked it still runs."""


def end_with_parent() -> None:
    """Send this process SIGTERM when its supervisor has ended.

    Otherwise the workers of a killed supervisor would keep its port and continue to accept reports. The same holds for
    the process that forked this worker. Without it, the supervisor no longer sees this worker and starts another one.
    """
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    forked_by = os.getppid()

    def wait() -> None:
        while not connection.wait([parent.sentinel], LOOK_SECONDS) and os.getppid() == forked_by:
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, name="cpaas-parent", daemon=True).start()
