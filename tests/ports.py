"""Ports of the loopback address that no two tests get at once, however many processes the tests run in."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import random
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

# Below where Linux takes the ports of outgoing connections from, so that no connection gets one meanwhile.
_RESERVABLE = range(15_000, 32_000)
_locks = Path(tempfile.gettempdir()) / f"cpaas-test-ports-{os.getuid()}"
# A port is ours for as long as its lock file is open: the system gives it back when this process ends, however it ends.
_held: list[IO[bytes]] = []


@contextlib.contextmanager
def listening() -> Iterator[tuple[socket.socket, str]]:
    """Yield a socket that listens on a free port, and the base URL that leads to it: for a server in this process."""
    with _bound(0) as listener:
        listener.listen(2048)
        yield listener, url_of(listener)


@contextlib.contextmanager
def closed_port() -> Iterator[str]:
    """Yield the base URL of a port where every connection is refused, and no other program can begin to listen."""
    with _bound(0) as silent:
        yield url_of(silent)


def reserved_ports(count: int) -> list[int]:
    """Return different free ports for programs that must be told their port before they start.

    They stay reserved until this process ends. Prefer port 0 where the program says what it got.
    """
    return list(itertools.islice(_reserve(), count))


def url_of(listener: socket.socket) -> str:
    """Return the base URL that leads to a bound socket."""
    return f"http://127.0.0.1:{listener.getsockname()[1]}"


def _reserve() -> Iterator[int]:
    _locks.mkdir(mode=0o700, exist_ok=True)
    # Not by the common generator: a test that seeds it would have all processes ask for the same ports.
    for port in random.SystemRandom().sample(_RESERVABLE, len(_RESERVABLE)):
        lock = (_locks / str(port)).open("ab")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _bound(port).close()
        except OSError:
            lock.close()
            continue
        _held.append(lock)
        yield port
    raise RuntimeError(f"No port between {_RESERVABLE.start} and {_RESERVABLE.stop} is free.")


def _bound(port: int) -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        # Without SO_REUSEADDR, which lets a second socket have the port of one that does not listen.
        made.bind(("127.0.0.1", port))
    except OSError:
        made.close()
        raise
    return made
