"""Transactions that write, and are durable when they return."""

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
"""Marks a connection to SQLite with a write-ahead log, which a commit alone does not sync to disk."""

_LOG = "cpaas_log"
"""The identity of that log. SQLite creates another one after the last connection was closed."""


def write_transaction(
    work: Callable[[Connection], Result],
    engine: Engine,
    file: DatabaseFile | None,
    limit: TimeLimit | None,
    seconds: float | None,
) -> Result:
    """Run a function in a transaction, and return its result once it is durable.

    :param work: is called again if it conflicted with a concurrent write of another process
    :param file: the database file of SQLite
    :param limit: enforces ``seconds`` on PostgreSQL
    :raises RejectedDataError: when the database rejected the values; nothing was written
    :raises DatabaseError: when the database cannot be written; nothing was written, unless the connection broke during
        the commit
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
                # Once more on another session, if this one has ended or its server has become read-only.
                useless = ends_session(error.orig) or (error.connection_invalidated and not begun)
                if not (left == _MAX_CONFLICT_RETRIES - 1 and useless) and not (left and is_conflict(error)):
                    raise
                continue
            if file is None:
                # Not retried: the server may have committed.
                connection.commit()
                return result
            has_log = bool(connection.info.get(HAS_LOG))
            log = None
            if has_log:
                log = connection.info[_LOG] = connection.info.get(_LOG) or file.log
            if not has_log:
                file.check_current()
        # After the commit, so that another connection can write meanwhile: SQLite has one writer at a time.
        if has_log:
            file.sync_log(log)
        return result
    raise AssertionError  # the last round returns or raises
