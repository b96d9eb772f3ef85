"""``airflow cpaas receiver``: the application that Airflow's API server mounts, in separate processes."""

from __future__ import annotations

import contextlib
import errno
import gc
import logging
import os
import signal
import socket
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from starlette.types import ASGIApp

DRAIN_SECONDS = 30
KEEP_ALIVE_SECONDS = 5
PORT_SECONDS = 5.0
"""How long to wait for the port, which workers of an earlier receiver may still use while they end."""

SWITCH_SECONDS = 0.0001
"""How long one thread may run while another waits. One thread accepts reports, another one stores them."""

OBJECTS = 5000
"""How many new objects start a garbage collection."""

START_SECONDS = 120
"""How long a worker may take to answer its supervisor. On a busy machine the import of Airflow takes long."""

# The environment is the only configuration that uvicorn passes to its worker processes.
_CAUSED_BY_ANY_CLIENT = ("Invalid HTTP request", "Unsupported upgrade request", "No supported WebSocket library")
"""How lines of the server's log begin that any request can cause. They could fill the disk."""

_PREFIX = "CPAAS_RECEIVER_PREFIX"
_DESCRIBED = "CPAAS_RECEIVER_DESCRIBED"


def cpaas_receiver(args: Any) -> None:
    """Receive until a signal arrives, and end with status 0, or 1 if the receiver cannot start."""
    import uvicorn

    from cpaas_provider.cli.receiver.workers import fork_workers, watch_workers
    from cpaas_provider.delivery.receiver.http.connection_limits import LimitedLoop, LimitedProtocol

    os.environ[_PREFIX] = prefix = "/" + args.prefix.strip("/") if args.prefix.strip("/") else ""
    os.environ[_DESCRIBED] = "1" if args.describe else ""
    if args.workers > 1:
        watch_workers()
        fork_workers()
    store = _check(args.host, args.port)
    host = f"[{args.host}]" if ":" in args.host else args.host
    sys.stdout.write(
        f"Receiving delivery reports at http://{host}:{args.port}{prefix} with {args.workers} worker(s).\n"
        f"Storing them in {store}.\n"
        f"Set the connection's callback_url to the public address with {prefix or 'no path'}. Publish only these two "
        "paths, over https:\n"
        f"  POST {prefix}/callback/...\n"
        f"  POST {prefix}/webhook/...\n"
    )
    sys.stdout.flush()
    # uvicorn drains and then raises the signal again, for the handler that was installed before.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with contextlib.suppress(KeyboardInterrupt):
        uvicorn.run(
            f"{__name__}:application",
            factory=True,
            host=args.host,
            port=args.port,
            workers=args.workers,
            loop=f"{LimitedLoop.__module__}:{LimitedLoop.__name__}",
            http=LimitedProtocol,
            ws="none",
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            # An access log would show callback URLs, which are credentials.
            access_log=False,
            log_level="warning",
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=DRAIN_SECONDS,
            timeout_worker_healthcheck=START_SECONDS,
        )


def application() -> ASGIApp:
    """Return the application of one worker."""
    from cpaas_provider.cli.receiver.workers import end_with_parent
    from cpaas_provider.delivery.receiver.app import create_app
    from cpaas_provider.delivery.receiver.http.connection_limits import TrackRequests
    from cpaas_provider.hooks._receiver import (
        get_receiver_connection,
        initialize_metrics,
        list_connections,
        metric_emitter,
    )

    # As in Airflow's API server, so that connections in Airflow's database are found.
    os.environ["_AIRFLOW_PROCESS_CONTEXT"] = "server"
    sys.setswitchinterval(SWITCH_SECONDS)
    initialize_metrics()
    end_with_parent()
    logging.getLogger("uvicorn.error").addFilter(lambda record: not str(record.msg).startswith(_CAUSED_BY_ANY_CLIENT))
    prefix, described = os.environ.get(_PREFIX, ""), bool(os.environ.get(_DESCRIBED))
    app = create_app(
        get_receiver_connection,
        guard=None,
        emit_metric=metric_emitter(),
        expected=list_connections,
        prefix=prefix,
        described=described,
    )
    _keep_out_of_collections()
    return TrackRequests(app)


def _keep_out_of_collections() -> None:
    """Keep all imported objects out of garbage collections: a collection through Airflow takes a fifth of a second."""
    from airflow.sdk import BaseHook  # noqa: F401 - the first report would import it

    from cpaas_provider.delivery.receiver import writer  # noqa: F401 - likewise
    from cpaas_provider.delivery.tracking import report_store  # noqa: F401 - likewise

    gc.collect()
    gc.freeze()
    # Reports in flight are hundreds of short-lived objects. Each collection would examine them.
    gc.set_threshold(OBJECTS, 10, 10)


def _check(host: str, port: int) -> str:
    """Return the database of reports. Check it and the port now, so that errors show before the first report."""
    from cpaas_provider.database.database import open_database
    from cpaas_provider.database.errors import DatabaseError
    from cpaas_provider.delivery.tracking.report_store import ReportStore

    try:
        with open_database() as database:
            ReportStore(database)
            where = database.redacted_url
        _bind(host, port)
    except DatabaseError as error:
        raise SystemExit(str(error)) from None
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or error
        raise SystemExit(f"Cannot listen on {host}:{port} ({why}). Choose another with --host and --port.") from None
    return where


def _bind(host: str, port: int) -> None:
    """Check that the port is free. Wait for it while workers of a killed receiver still use it.

    :raises OSError: when the port cannot be used
    """
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    deadline = time.monotonic() + PORT_SECONDS
    while True:
        with socket.socket(family, kind, protocol) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                return listener.bind(address)
            except OSError as error:
                if error.errno != errno.EADDRINUSE or time.monotonic() > deadline:
                    raise
        time.sleep(0.1)
