"""The provider's database as a client uses it: opened when it is first needed, not shared with a forked process."""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cpaas_provider.database.database import Database

TIMEOUT = 5.0
"""The longest time of a transaction that writes, in seconds."""

_in_use: weakref.WeakSet[ClientDatabase] = weakref.WeakSet()
_held: list[ClientDatabase] = []
"""Instances that no thread uses while the process forks."""


def _before_fork() -> None:
    """Wait for transactions in progress, and close all sessions.

    A forked process must not inherit a session. SQLite would rely on locks that only the parent has. On PostgreSQL, the
    end of one process would end a transaction of the other.
    """
    # In a fixed order, so that two threads that fork cannot deadlock.
    for client_database in sorted(_in_use, key=id):
        client_database._using.acquire()
        _held.append(client_database)
    for client_database in _held:
        if client_database._database is not None:
            client_database._database.engine.dispose()


def _after_fork() -> None:
    while _held:
        _held.pop()._using.release()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)


class ClientDatabase:
    """The database of one client.

    :param url: as for ``open_database``
    """

    def __init__(self, url: str | None = None) -> None:
        self._url = url
        self._database: Database | None = None
        self._process = 0
        self._using = threading.Lock()
        _in_use.add(self)

    @contextlib.contextmanager
    def open(self) -> Iterator[Database]:
        """Return the database of this process, for one thread at a time.

        :raises DatabaseError: when it cannot be used
        """
        from cpaas_provider.database.database import open_database

        with self._using:
            if self._database is None or self._process != os.getpid():
                self._database, self._process = open_database(self._url, write_timeout=TIMEOUT), os.getpid()
            yield self._database

    def close(self) -> None:
        """Close the database."""
        with self._using:
            database, self._database = self._database, None
            if database is not None:
                database.close()
