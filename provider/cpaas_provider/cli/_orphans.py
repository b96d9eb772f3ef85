"""A worker process that ends with the supervisor that started it."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from multiprocessing import connection


def end_with_parent() -> None:
    """Have this process told to end, as by SIGTERM, when its parent is gone, however that ended.

    Otherwise the workers of a supervisor that was killed would keep its port, and take reports for nobody.
    """
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def wait() -> None:
        connection.wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, name="cpaas-parent", daemon=True).start()
