"""An overall limit on the time a transaction takes, also where the database has stopped answering."""

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
from sqlalchemy.engine.interfaces import ExceptionContext
from sqlalchemy.exc import InvalidatePoolError

LEAST_CONNECT_SECONDS = 2
"""PostgreSQL's client takes no less."""

_TICKS = 10

# The session is of no use any more, though the connection is: the server has become read-only, is being shut down,
# does not take sessions yet, or has ended this one.
_END_OF_SESSION = ("25006", "25P03", "57P01", "57P02", "57P03", "57P05")


@dataclass(eq=False)
class TimedTransaction:
    """A transaction that is under way.

    :param writes: it begins by a statement of its own, which tells whether the session lives
    :param connection: the driver's, once there is one
    :param over: its time was up, and the connection was cut for that
    """

    seconds: float
    deadline: float
    writes: bool
    connection: Any = None
    over: bool = False


class TimeLimit:
    """Cuts the connection of a transaction whose time is up.

    Limits that the server keeps to are of no use where the server, or the way to it, hangs: the driver then waits for
    as long as the connection stands, and nothing but the end of the connection wakes it.
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
        """The transaction of this thread, if it is limited."""
        return getattr(self._mine, "running", None)

    def begin(self, seconds: float, *, writes: bool = False) -> TimedTransaction:
        """Limit a transaction from now on until its end, whatever threads it runs in."""
        running = TimedTransaction(seconds, time.monotonic() + seconds, writes)
        with self._lock:
            self._running.add(running)
            self._tick = min(self._tick, seconds / _TICKS)
            if self._thread is None:
                self._thread = threading.Thread(target=self._watch, name="cpaas-database-time-limit", daemon=True)
                self._thread.start()
        return running

    @contextlib.contextmanager
    def in_this_thread(self, running: TimedTransaction) -> Iterator[None]:
        """Have what this thread does with the database be of a transaction until the end of the block."""
        before = self.running
        self._mine.running = running
        try:
            yield
        finally:
            self._mine.running = before

    def end(self, running: TimedTransaction) -> None:
        """Let go of a transaction."""
        with self._lock:
            self._running.discard(running)

    def close(self) -> None:
        """End the watch."""
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
    # Of a copy of the file descriptor: the driver's own stays its to close.
    with contextlib.suppress(Exception), socket.socket(fileno=os.dup(connection.fileno())) as copy:
        copy.shutdown(socket.SHUT_RDWR)


def enforce_time_limit(engine: Engine, limit: TimeLimit) -> None:
    """Have an engine of PostgreSQL keep to a limit: in connecting, in looking whether a session lives, and in all else.

    It takes the place of ``pool_pre_ping``, which looks before the caller can be told of the connection, and before
    transactions that find out by themselves.
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


def discard_lost_sessions(engine: Engine) -> None:
    """Have an engine let go of all its sessions when one of them fails for a reason that no later use of it mends."""

    @event.listens_for(engine, "handle_error")
    def look(context: ExceptionContext) -> None:
        if ends_session(context.original_exception):
            context.is_disconnect = True


def ends_session(error: BaseException | None) -> bool:
    """Tell whether an error of the driver is one after which its session stays useless."""
    state = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None) or ""
    # A file that was opened when it could not be written stays so for the process that opened it.
    return state in _END_OF_SESSION or getattr(error, "sqlite_errorname", "").startswith("SQLITE_READONLY")
