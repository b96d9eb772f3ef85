"""Senders that speak HTTP themselves, and take their time."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

from cpaas_provider.delivery.callbacks.signatures import sign
from tests.unit.delivery.running_receiver import PATIENCE, Served

UNREAD = {"callback": "", "webhook": f"X-Signature: {sign(b'other', 'of-webhooks')}\r\n"}
"""What lets a request in at an endpoint before its body is there: its signature can only be checked with the body."""


def head(served: Served, url: str, length: int | None = None, headers: str = "") -> bytes:
    """Return a request up to its body."""
    framing = "Transfer-Encoding: chunked" if length is None else f"Content-Length: {length}"
    path = url.removeprefix(served.url)
    return (
        f"POST {path} HTTP/1.1\r\nHost: here\r\nContent-Type: application/json\r\n{headers}{framing}\r\n\r\n"
    ).encode()


def read_response(connection: socket.socket) -> bytes:
    with contextlib.suppress(ConnectionResetError):
        return connection.makefile("rb").read()
    return b""


@contextlib.contextmanager
def trickling(connection: socket.socket) -> Iterator[None]:
    """Send a byte now and then, until the connection or the patience ends."""
    over = threading.Event()

    def trickle() -> None:
        with contextlib.suppress(OSError):
            while not over.wait(0.02):
                connection.sendall(b" ")

    thread = threading.Thread(target=trickle, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(PATIENCE)
