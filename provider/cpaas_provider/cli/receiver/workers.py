"""How the receiver's workers start and end.

They are forked from one process that has imported Airflow, so that each worker need not import it. That process is the
fork server of multiprocessing, and does nothing else. It has one thread and no connection to a database, so the workers
share no lock and no connection.
"""

from __future__ import annotations

import gc
import importlib
import multiprocessing
import os
import signal
import sys
import threading
from contextlib import suppress
from multiprocessing import connection

from uvicorn.supervisors import multiprocess as supervisor

_NEEDED = (
    "cpaas_provider.cli.receiver.command",
    "cpaas_provider.delivery.receiver.http.connection_limits",
    "cpaas_provider.delivery.receiver.writer",
    "cpaas_provider.delivery.tracking.report_store",
    "cpaas_provider.delivery.receiver.app",
    "cpaas_provider.delivery.tracking.sent_requests",
    "cpaas_provider.hooks._receiver",
    # The modules above import these with their first connection or their first report.
    "cpaas_provider.api.recipients.reader",
    "airflow.models.connection",
    "airflow.observability.metrics.stats_utils",
    "airflow.observability.stats",
    "airflow.sdk.bases.hook",
    "airflow.sdk.definitions.connection",
    "airflow.sdk.execution_time.cache",
    "airflow.sdk.execution_time.supervisor",
    "airflow.utils.session",
    "psycopg2",
    "sqlalchemy.dialects.sqlite",
    "uvicorn",
)
LOOK_SECONDS = 1.0
"""How often a worker checks that the process that forked it still runs."""

_LEFT_TO_SUPERVISOR = (signal.SIGTERM, signal.SIGHUP)


class WatchedWorker(supervisor.Process):
    """A worker whose end its supervisor sees at once, also during a health check."""

    def start(self) -> None:
        """Start the worker, and leave it the only one that holds its end of the connection."""
        super().start()
        self.child_conn.close()


def watch_workers() -> None:
    """Have uvicorn's supervisor replace a worker as soon as it has ended.

    The supervisor checks the health of each worker in turn. It would wait for one that was killed meanwhile as long as
    for one that starts on a busy machine.
    """
    # uvicorn has no public way to choose what it starts.
    supervisor.Process = WatchedWorker  # type: ignore[misc]  # a class of a module is no variable to mypy


def fork_workers() -> None:
    """Make uvicorn's supervisor fork its workers, and start the imports now, because they take a while.

    The workers get the environment of this moment. On other systems than Linux, each worker starts as a new process.
    """
    # On other systems, libraries of the system may not work after a fork.
    if sys.platform != "linux":
        return
    from multiprocessing import forkserver

    # Private: uvicorn has no public way to choose how its workers start.
    from uvicorn import _subprocess

    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["__main__", f"{__package__}.preloaded"])
    _subprocess.spawn = context  # type: ignore[assignment]  # it has the same methods for processes
    forkserver.ensure_running()


def preload() -> None:
    """Import the modules that workers need, in the process that will fork them."""
    # This process must end after its workers. Otherwise the supervisor would not see them end.
    before = {number: signal.signal(number, signal.SIG_IGN) for number in _LEFT_TO_SUPERVISOR}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    os.register_at_fork(after_in_child=restore)
    # The worker reports an import that fails.
    with suppress(Exception):
        _import_all()
    # A garbage collection in a worker would copy the memory that it shares with this process.
    gc.collect()
    gc.freeze()


def _import_all() -> None:
    for name in _NEEDED:
        with suppress(ImportError):
            importlib.import_module(name)
    from airflow.models import import_all_models

    import_all_models()


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
