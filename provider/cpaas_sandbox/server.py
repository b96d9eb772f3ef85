"""Runs the application under uvicorn on a socket of our own, so that a port in use is an error at once."""

from __future__ import annotations

import logging
import socket

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from cpaas_sandbox.app import App
from cpaas_sandbox.core.context import Options, Sandbox
from cpaas_sandbox.core.state import begin_closing, open_sandbox
from cpaas_sandbox.guard import HEADERS, Guard

_GRACE_SECONDS = 3


class _Protocol(HttpToolsProtocol):
    """uvicorn's protocol, which shows the guard a host in the request target: ASGI has only the path after it."""

    def on_headers_complete(self) -> None:
        """Add the target as a second Host header, which the guard refuses."""
        if not self.url.startswith(b"/"):
            self.headers.append((b"host", self.url))
        super().on_headers_complete()


class Server(uvicorn.Server):
    """A uvicorn server that ends the sandbox's paused responses before it shuts down."""

    def __init__(self, config: uvicorn.Config, sandbox: Sandbox) -> None:
        super().__init__(config)
        self._sandbox = sandbox

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End paused responses first, because uvicorn waits for open responses."""
        begin_closing(self._sandbox)
        await super().shutdown(sockets)


def bind(host: str, port: int) -> socket.socket:
    """Return a listening socket; raise OSError if the address is in use or not of this machine."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(2048)
    except BaseException:
        listener.close()
        raise
    return listener


def url_of(listener: socket.socket) -> str:
    """Return the base URL of a listening socket; for a wildcard address, that of the loopback."""
    host, port = listener.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - compared, not bound
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def make_server(options: Options, access_log: bool = False) -> Server:
    """Return a server ready to run; its access log has operations and statuses, but no path and no number."""
    sandbox = open_sandbox(options)
    if access_log:
        logging.basicConfig(format="%(asctime)s %(message)s")
        logging.getLogger("cpaas_sandbox").setLevel(logging.INFO)
    config = uvicorn.Config(
        Guard(App(sandbox), options.allowed_hosts),
        http=_Protocol,
        headers=HEADERS,
        access_log=False,
        log_level="warning",
        server_header=False,
        lifespan="on",
        ws="none",
        timeout_graceful_shutdown=_GRACE_SECONDS,
    )
    return Server(config, sandbox)
