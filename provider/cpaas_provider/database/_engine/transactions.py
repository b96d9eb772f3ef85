"""Transactions that write, and are durable when they return."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from cpaas_provider.database._engine.failures import ends_session, is_conflict
from cpaas_provider.database._engine.sqlite_file import DatabaseFile

Result = TypeVar("Result")

_MAX_CONFLICT_RETRIES = 5

HAS_LOG = "cpaas_has_log"
"""Marks a connection to SQLite with a write-ahead log, which a commit alone does not sync to disk."""

_LOG = "cpaas_log"
"""The identity of that log. SQLite creates another one after the last connection was closed."""


def write_transaction(work: Callable[[Connection], Result], engine: Engine, file: DatabaseFile | None) -> Result:
    """Run a function in a transaction, and return its result once it is durable.

    :param work: is called again if it conflicted with a concurrent write of another process
    :param file: the database file of SQLite
    :raises SQLAlchemyError: when nothing was written, or the connection broke during the commit
    :raises DatabaseError: when the file was moved during the write, or could not be synced to disk
    """
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
            if has_log:
                log = connection.info[_LOG] = connection.info.get(_LOG) or file.log
            else:
                file.check_current()
        # After the commit, so that another connection can write meanwhile: SQLite has one writer at a time.
        if has_log:
            file.sync_log(log)
        return result
    raise AssertionError  # the last round returns or raises
