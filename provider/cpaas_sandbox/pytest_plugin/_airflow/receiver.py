"""The receiver of delivery reports that a provider adds to Airflow's API server, on a port of its own."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from importlib.metadata import entry_points

from cpaas_sandbox.pytest_plugin._server import serving
from cpaas_sandbox.pytest_plugin.errors import SandboxError

_PLUGIN = "cpaas"


@contextlib.contextmanager
def receiver_server() -> Iterator[str]:
    """Run the receiver on a free port. Yield its base URL, the ``callback_url`` of connections.

    :raises SandboxError: when no plugin of Airflow has a receiver
    """
    import uvicorn

    from cpaas_sandbox.server import bind, url_of

    found = list(entry_points(group="airflow.plugins", name=_PLUGIN))
    if not found:
        raise SandboxError(f"There is no plugin {_PLUGIN!r} of Airflow, so there is no receiver of delivery reports.")
    # One of its own for each test: an application keeps the database that it opened.
    app = found[0].load()().fastapi_apps[0]["app"]
    with bind("127.0.0.1", 0) as listener:
        config = uvicorn.Config(app, access_log=False, log_level="warning", lifespan="off", ws="none")
        with serving(uvicorn.Server(config), listener):
            yield url_of(listener)
