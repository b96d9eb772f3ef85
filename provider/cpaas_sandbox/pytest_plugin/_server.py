"""ASGI applications on free ports, each in a thread of pytest's own process."""

from __future__ import annotations

import contextlib
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from cpaas_sandbox.pytest_plugin.errors import SandboxError

if TYPE_CHECKING:
    import uvicorn

_START_SECONDS = 60.0
_STOP_SECONDS = 15.0
_PAUSE = 0.01


@contextlib.contextmanager
def serving(server: uvicorn.Server, listener: socket.socket) -> Iterator[None]:
    """Run a server in a thread until the block ends.

    :raises SandboxError: when it does not start
    """
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True, name="cpaas-test-server")
    thread.start()
    until = time.monotonic() + _START_SECONDS
    while not server.started and thread.is_alive() and time.monotonic() < until:
        time.sleep(_PAUSE)
    try:
        if not server.started:
            raise SandboxError("The server of the tests did not start. Its log has the reason.")
        yield
    finally:
        server.should_exit = True
        thread.join(_STOP_SECONDS)


@contextlib.contextmanager
def sandbox_server() -> Iterator[tuple[str, str]]:
    """Run a sandbox on a free port, its state in memory. Yield its base URL and its API key."""
    from cpaas_sandbox.core.context import Options
    from cpaas_sandbox.server import bind, make_server, url_of

    api_key = f"sk_test_{secrets.token_hex(16)}"
    with bind("127.0.0.1", 0) as listener:
        server = make_server(Options(api_key))
        with serving(server, listener):
            yield url_of(listener), api_key
