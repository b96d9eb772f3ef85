"""One transaction that writes: carried out by one thread, made durable by the same or another."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Generic, TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from cpaas_provider.database._engine.failures import is_conflict, translate_errors
from cpaas_provider.database._engine.sqlite_file import DatabaseFile, Identity
from cpaas_provider.database._engine.timeouts import TimeLimit, ends_session

Result = TypeVar("Result")

_MAX_CONFLICT_RETRIES = 5

HAS_LOG = "cpaas_has_log"
"""Says of a connection to SQLite that what is committed is in a write-ahead log, and not on the disk by that alone."""

_LOG = "cpaas_log"
"""Which log that is: there is another once the last connection was closed."""


class WriteTransaction(Generic[Result]):
    """What was written and is not durable before it is finished.

    On PostgreSQL it is committed then, so that whoever needs the same rows waits for it. In SQLite, where one writes at
    a time, it is committed already, so that the next can begin; what is left is to wait for the disk.

    :param work: is called anew where it clashed with what another process wrote at the same time
    :param file: of SQLite
    :param limit: keeps to the seconds, up to the end, on PostgreSQL
    :raises RejectedDataError: when the database rejected the values; nothing of it was written
    :raises DatabaseError: when the database cannot be written; nothing of it was
    """

    result: Result

    def __init__(
        self,
        work: Callable[[Connection], Result],
        engine: Engine,
        file: DatabaseFile | None,
        limit: TimeLimit | None,
        seconds: float | None,
    ) -> None:
        self._engine = engine
        self._file = file
        self._limit = limit
        self._running = None if limit is None or seconds is None else limit.begin(seconds, writes=True)
        self._connection: Connection | None = None
        self._log: Identity | None = None
        self._in_log = False
        try:
            with translate_errors(engine.url, self._running, writes=True), self._in_this_thread():
                self.result = self._carry_out(work)
        except BaseException:
            self._end()
            raise

    def finish(self) -> None:
        """Return once it is durable. Called once, by any thread.

        :raises DatabaseError: when it may not be; it has to be written again, which may find it there
        """
        try:
            with translate_errors(self._engine.url, self._running, writes=True), self._in_this_thread():
                if self._connection is not None:
                    self._connection.commit()
                elif self._in_log and self._file is not None:
                    self._file.sync_log(self._log)
        finally:
            self._end()

    def _carry_out(self, work: Callable[[Connection], Result]) -> Result:
        for left in reversed(range(_MAX_CONFLICT_RETRIES)):
            begun = False
            connection = self._engine.connect()
            try:
                connection.begin()
                begun = True
                result = work(connection)
                if self._file is None:
                    self._connection = connection
                    return result
                connection.commit()
                if connection.info.get(HAS_LOG):
                    self._in_log = True
                    self._log = connection.info[_LOG] = connection.info.get(_LOG) or self._file.log
            except DBAPIError as error:
                # One more time on another session, where this one has ended since or its server has become read-only.
                useless = ends_session(error.orig) or (error.connection_invalidated and not begun)
                if not (left == _MAX_CONFLICT_RETRIES - 1 and useless) and not (left and is_conflict(error)):
                    raise
            else:
                self._file.check_current()
                return result
            finally:
                if self._connection is None:
                    connection.close()
        raise AssertionError  # the last round returns or raises

    def _in_this_thread(self) -> contextlib.AbstractContextManager[None]:
        if self._limit is None or self._running is None:
            return contextlib.nullcontext()
        return self._limit.in_this_thread(self._running)

    def _end(self) -> None:
        connection, self._connection = self._connection, None
        try:
            if connection is not None:
                connection.close()
        finally:
            if self._limit is not None and self._running is not None:
                self._limit.end(self._running)
