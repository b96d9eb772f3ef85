"""A time limit for whole transactions, also when the database has stopped responding."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Engine, event
from sqlalchemy.exc import InvalidatePoolError

LEAST_CONNECT_SECONDS = 2
"""The shortest connect timeout of PostgreSQL's client."""

_TICKS = 10


@dataclass(eq=False)
class TimedTransaction:
    """A transaction in progress.

    :param writes: it begins with a statement of its own, which shows whether the session lives
    :param connection: the driver's connection, once there is one
    :param over: the time limit was reached and the connection cut
    """

    seconds: float
    deadline: float
    writes: bool
    connection: Any = None
    over: bool = False


class TimeLimit:
    """Cuts the connection of a transaction that reaches its time limit.

    The server's own timeouts do not help when the server or the network hangs. The driver then waits as long as the
    connection stands, and only the end of the connection wakes it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[TimedTransaction] = set()
        self._mine = threading.local()
        self._closed = threading.Event()
        self._tick = 1.0
        self._thread: threading.Thread | None = None

    @property
    def running(self) -> TimedTransaction | None:
        """The limited transaction of this thread, if there is one."""
        return getattr(self._mine, "running", None)

    @contextlib.contextmanager
    def limited(self, seconds: float, *, writes: bool) -> Iterator[TimedTransaction]:
        """Limit the time of a transaction, and attribute this thread's use of the database to it, during the block."""
        before = self.running
        running = self._mine.running = TimedTransaction(seconds, time.monotonic() + seconds, writes)
        with self._lock:
            self._running.add(running)
            self._tick = min(self._tick, seconds / _TICKS)
            if self._thread is None:
                self._thread = threading.Thread(target=self._watch, name="cpaas-database-time-limit", daemon=True)
                self._thread.start()
        try:
            yield running
        finally:
            self._mine.running = before
            with self._lock:
                self._running.discard(running)

    def close(self) -> None:
        """End the thread that watches the limits."""
        self._closed.set()

    def _watch(self) -> None:
        while not self._closed.wait(self._tick):
            now = time.monotonic()
            with self._lock:
                for running in self._running:
                    if now >= running.deadline and running.connection is not None and not running.over:
                        running.over = True
                        _cut(running.connection)


def _cut(connection: Any) -> None:
    # Through a copy of the file descriptor: the driver closes its own.
    with contextlib.suppress(Exception), socket.socket(fileno=os.dup(connection.fileno())) as copy:
        copy.shutdown(socket.SHUT_RDWR)


def enforce_time_limit(engine: Engine, limit: TimeLimit) -> None:
    """Enforce a limit on an engine of PostgreSQL, when connecting, when checking a pooled session, and after that.

    It replaces ``pool_pre_ping``, which pings before the limit knows the connection, and also before transactions whose
    first statement shows whether the session lives.
    """

    @event.listens_for(engine, "do_connect")
    def connect(dialect: Any, record: Any, args: Any, parameters: dict[str, Any]) -> Any:
        if (running := limit.running) is None:
            return None
        if (left := running.deadline - time.monotonic()) <= 0:
            running.over = True
            raise engine.dialect.loaded_dbapi.OperationalError("no time is left to connect")
        parameters["connect_timeout"] = max(LEAST_CONNECT_SECONDS, min(_seconds(parameters), int(left)))
        made = dialect.connect(*args, **parameters)
        running.connection = made
        record.info["fresh"] = True
        return made

    @event.listens_for(engine, "checkout")
    def look(connection: Any, record: Any, _: Any) -> None:
        if (running := limit.running) is not None:
            running.connection = connection
        if record.info.pop("fresh", False) or (running is not None and running.writes):
            return
        try:
            engine.dialect.do_ping(connection)
        except engine.dialect.loaded_dbapi.Error:
            raise InvalidatePoolError from None


def _seconds(parameters: dict[str, Any]) -> int:
    with contextlib.suppress(KeyError, ValueError):
        return int(parameters["connect_timeout"]) or LEAST_CONNECT_SECONDS
    return LEAST_CONNECT_SECONDS
