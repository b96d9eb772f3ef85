"""A server that is not the service: it gives every request the same response, or the next of several."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

from tests.unit.api.loopback import Loopback, Seen, http


@contextlib.contextmanager
def fixed_response_server(status: int, body: bytes = b"", **headers: str) -> Iterator[str]:
    """Respond to every request with a status, a body and headers (``_`` for ``-``); yield the base URL."""
    with response_sequence_server((status, body), **headers) as url:
        yield url


@contextlib.contextmanager
def response_sequence_server(*responses: tuple[int, bytes], **headers: str) -> Iterator[str]:
    """Respond with one status and body after the other, the last one for ever; yield the base URL."""
    remaining = list(responses)

    def respond(connection: socket.socket, _: Seen) -> None:
        status, body = remaining.pop(0) if len(remaining) > 1 else remaining[0]
        connection.sendall(http(status, body, **headers))

    with Loopback(respond) as server:
        yield server.url
