"""One transaction that writes, and is durable when it returns."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from cpaas_provider.database._engine.failures import is_conflict, translate_errors
from cpaas_provider.database._engine.sqlite_file import DatabaseFile
from cpaas_provider.database._engine.timeouts import TimeLimit, ends_session

Result = TypeVar("Result")

_MAX_CONFLICT_RETRIES = 5

HAS_LOG = "cpaas_has_log"
"""Says of a connection to SQLite that what is committed is in a write-ahead log, and not on the disk by that alone."""

_LOG = "cpaas_log"
"""Which log that is: there is another once the last connection was closed."""


def write_transaction(
    work: Callable[[Connection], Result],
    engine: Engine,
    file: DatabaseFile | None,
    limit: TimeLimit | None,
    seconds: float | None,
) -> Result:
    """Carry out a transaction, and return its result once that is durable.

    :param work: is called anew where it clashed with what another process wrote at the same time
    :param file: of SQLite
    :param limit: keeps to the seconds, up to the end, on PostgreSQL
    :raises RejectedDataError: when the database rejected the values; nothing of it was written
    :raises DatabaseError: when the database cannot be written; nothing of it was, unless the connection broke at the
        very end
    """
    if limit is None or seconds is None:
        with translate_errors(engine.url, None, writes=True):
            return _write(work, engine, file)
    running = limit.begin(seconds, writes=True)
    try:
        with translate_errors(engine.url, running, writes=True), limit.in_this_thread(running):
            return _write(work, engine, file)
    finally:
        limit.end(running)


def _write(work: Callable[[Connection], Result], engine: Engine, file: DatabaseFile | None) -> Result:
    for left in reversed(range(_MAX_CONFLICT_RETRIES)):
        begun = False
        with contextlib.closing(engine.connect()) as connection:
            try:
                connection.begin()
                begun = True
                result = work(connection)
                if file is not None:
                    connection.commit()
            except DBAPIError as error:
                # One more time on another session, where this one has ended since or its server has become read-only.
                useless = ends_session(error.orig) or (error.connection_invalidated and not begun)
                if not (left == _MAX_CONFLICT_RETRIES - 1 and useless) and not (left and is_conflict(error)):
                    raise
                continue
            if file is None:
                # Not repeated if it fails: the server may have carried it out.
                connection.commit()
                return result
            has_log = bool(connection.info.get(HAS_LOG))
            log = None
            if has_log:
                log = connection.info[_LOG] = connection.info.get(_LOG) or file.log
            if not has_log:
                file.check_current()
        # Another connection can write meanwhile: in SQLite one writes at a time, and its commit is done.
        if has_log:
            file.sync_log(log)
        return result
    raise AssertionError  # the last round returns or raises
