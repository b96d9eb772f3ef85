"""A proxy that stands between a program and a server and fails as networks and servers do: on demand."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from enum import Enum

from sqlalchemy import make_url

from tests.ports import listening

_PIECE = 65536


class Mode(Enum):
    """What the proxy does with connections and with what they carry."""

    PASS = "pass"
    HANG = "hang"
    """Connections stand and are taken, and nothing gets through."""
    DROP = "drop"
    """All are closed, and so is each that comes."""
    HALF_CLOSE = "half-close"
    """What the server says no longer arrives, and its end is told; what it is told still does."""


class Proxy:
    """Passes bytes to and fro between those who connect to ``port`` and the server.

    :param listener: where it listens
    :param target: host and port of the server
    """

    def __init__(self, listener: socket.socket, target: tuple[str, int]) -> None:
        self.port: int = listener.getsockname()[1]
        self.taken = 0
        self._listener = listener
        self._target = target
        self._lock = threading.Lock()
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._passing = threading.Event()
        self._passing.set()
        self._mode = Mode.PASS
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def turn(self, mode: Mode) -> None:
        """Do something else from now on, with the connections there are too."""
        with self._lock:
            self._mode = mode
            pairs, closing = list(self._pairs), mode is Mode.DROP
            if closing:
                self._pairs.clear()
        for client, server in pairs:
            if closing:
                _end(client)
                _end(server)
            elif mode is Mode.HALF_CLOSE:
                with contextlib.suppress(OSError):
                    client.shutdown(socket.SHUT_WR)
        if mode is Mode.HANG:
            self._passing.clear()
        else:
            self._passing.set()

    def close(self) -> None:
        """End it, with all its connections."""
        self.turn(Mode.DROP)
        _end(self._listener)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self.taken += 1
                if self._mode is Mode.DROP:
                    _end(client)
                    continue
                try:
                    server = socket.create_connection(self._target, timeout=10)
                except OSError:
                    _end(client)
                    continue
                server.settimeout(None)
                with self._lock:
                    self._pairs.append((client, server))
                for source, sink in ((client, server), (server, client)):
                    threading.Thread(target=self._pass, args=(source, sink), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while piece := source.recv(_PIECE):
                self._passing.wait()
                sink.sendall(piece)
        # Whoever hangs is not told of the end of the other side either.
        self._passing.wait()
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)


def _end(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()


@contextlib.contextmanager
def proxy_to(host: str, port: int) -> Iterator[Proxy]:
    """Run a proxy in front of a server."""
    with listening() as (listener, _):
        proxy = Proxy(listener, (host, port))
        try:
            yield proxy
        finally:
            proxy.close()


@contextlib.contextmanager
def proxy_before(url: str) -> Iterator[Proxy]:
    """Run a proxy in front of the PostgreSQL that a URL leads to."""
    address = make_url(url)
    with proxy_to(str(address.host), int(address.port or 5432)) as proxy:
        yield proxy


def leading_through(proxy: Proxy, url: str, user: str | None = None) -> str:
    """Return the URL with a proxy in it, and another user if one is given."""
    address = make_url(url).set(host="127.0.0.1", port=proxy.port)
    return (address.set(username=user) if user else address).render_as_string(hide_password=False)
