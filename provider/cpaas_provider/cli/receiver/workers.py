"""Workers that are forked from one process which has imported everything, instead of each importing Airflow by itself.

That process, multiprocessing's fork server, does nothing else: when it forks it has one thread and no connection to
any database, so that nothing is shared which must not be.
"""

from __future__ import annotations

import gc
import importlib
import multiprocessing
import os
import signal
import sys
from contextlib import suppress

_NEEDED = (
    "cpaas_provider.cli.receiver.command",
    "cpaas_provider.cli.receiver.orphans",
    "cpaas_provider.delivery.receiver.http.connection_limits",
    "cpaas_provider.delivery.receiver.writer",
    "cpaas_provider.delivery.tracking.report_store",
    "cpaas_provider.delivery.receiver.app",
    "cpaas_provider.delivery.tracking.sent_requests",
    "cpaas_provider.hooks._receiver",
    # What these import when they read their first connection, or take their first report.
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
    "uvicorn.lifespan.on",
    "uvicorn.server",
)
_LEFT_TO_SUPERVISOR = (signal.SIGTERM, signal.SIGHUP)


def fork_workers() -> None:
    """Have uvicorn's supervisor fork its workers, and begin with what they need, as that takes a while.

    The environment of the workers is that of this moment. Where it cannot be done, each worker starts anew.
    """
    # Elsewhere libraries of the system do not go on after a fork.
    if sys.platform != "linux":
        return
    from multiprocessing import forkserver

    from uvicorn import _subprocess

    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["__main__", f"{__package__}.preloaded"])
    _subprocess.spawn = context  # type: ignore[assignment]  # it is asked for processes, as it would be otherwise
    forkserver.ensure_running()


def preload() -> None:
    """Import what workers need, in the process that will fork them."""
    # It ends with the last of them. Were it to end before, the supervisor would not see them end.
    before = {number: signal.signal(number, signal.SIG_IGN) for number in _LEFT_TO_SUPERVISOR}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    os.register_at_fork(after_in_child=restore)
    # What cannot be imported here is reported by the worker that needs it.
    with suppress(Exception):
        _import_all()
    # Whatever is looked at for garbage is copied.
    gc.collect()
    gc.freeze()


def _import_all() -> None:
    for name in _NEEDED:
        with suppress(ImportError):
            importlib.import_module(name)
    from airflow.models import import_all_models

    import_all_models()
