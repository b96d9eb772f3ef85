"""A worker process that ends with the supervisor that started it, and with the process that forked it."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from multiprocessing import connection

LOOK_SECONDS = 1.0
"""How often a worker looks whether the process that forked it is still there."""


def end_with_parent() -> None:
    """Send this process SIGTERM when its parent has ended, in whatever way.

    Otherwise the workers of a killed supervisor would keep its port, and accept reports that it no longer serves. Where
    another process forked this one, likewise when that is gone: the supervisor no longer sees this one, and starts
    another in its place.
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
