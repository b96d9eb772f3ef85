"""Small servers on the loopback address that answer as badly as a test wants."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True)
class Seen:
    """A request as it came over the wire."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes


Script = Callable[[socket.socket, Seen], None]


def http(status: int = 200, body: Any = b"", **headers: str) -> bytes:
    """Return the bytes of an answer; a body that is not bytes is sent as JSON."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(content)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + content


def answering(status: int = 200, body: Any = b"", **headers: str) -> Script:
    """Return a script that gives the same answer to everything."""
    return lambda connection, _: connection.sendall(http(status, body, **headers))


def reset(connection: socket.socket) -> None:
    """Break a connection off as a crash does, by RST: the last thing a script does."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    raise ConnectionAbortedError


class Loopback:
    """A server that reads whole requests, remembers them and lets the script answer. Use it as a context manager.

    ``over`` is set when the test is done with it: a script that keeps a client waiting waits for that.
    """

    def __init__(self, script: Script, tls: ssl.SSLContext | None = None) -> None:
        self.seen: list[Seen] = []
        self.connections = 0
        self.open = 0
        self.over = threading.Event()
        self._lock = threading.Lock()
        self._script = script
        self._tls = tls
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with self._lock:
            self.connections += 1
            self.open += 1
        try:
            self._converse(connection)
        finally:
            with self._lock:
                self.open -= 1

    def _converse(self, connection: socket.socket) -> None:
        # A client that goes away, or does not like our certificate, ends the conversation.
        with contextlib.suppress(OSError, ValueError), connection:
            if self._tls is not None:
                connection = self._tls.wrap_socket(connection, server_side=True)
            with connection.makefile("rb") as incoming:
                while line := incoming.readline().decode():
                    method, target, _ = line.split(" ")
                    headers = {}
                    while field := incoming.readline().decode().strip():
                        name, _, value = field.partition(":")
                        name, value = name.lower(), value.strip()
                        headers[name] = f"{headers[name]}, {value}" if name in headers else value
                    seen = Seen(method, target, headers, incoming.read(int(headers.get("content-length", 0))))
                    self.seen.append(seen)
                    self._script(connection, seen)
