"""The reservations of a shared rate limit, in the provider's database."""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Iterator

from cpaas_provider.api.errors import CpaasNotSentError
from cpaas_provider.database.database import Database, open_database
from cpaas_provider.database.errors import DatabaseError
from cpaas_provider.hooks._rate_limit.reservations import RateLimitTable, ReservedMoments, Wanted

TIMEOUT = 5.0
"""The longest time for one reservation, in seconds."""


_in_use: weakref.WeakSet[StoredReservations] = weakref.WeakSet()
_held: list[StoredReservations] = []
"""Instances that make no reservation while the process forks."""


def _before_fork() -> None:
    """Wait for reservations in progress, and close all sessions.

    A forked process must not inherit a session. SQLite would rely on locks that only the parent has. On PostgreSQL, the
    end of one process would end a transaction of the other.
    """
    # In a fixed order, so that two threads that fork cannot deadlock.
    for reservations in sorted(_in_use, key=id):
        reservations._using.acquire()
        _held.append(reservations)
    for reservations in _held:
        if reservations._database is not None:
            reservations._database.engine.dispose()


def _after_fork() -> None:
    while _held:
        _held.pop()._using.release()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)


class StoredReservations:
    """The reservations of one client in the database, which it opens when it is first used.

    :param url: as for ``open_database``
    """

    def __init__(self, conn_id: str, url: str | None = None) -> None:
        self._conn_id = conn_id
        self._url = url
        self._database: Database | None = None
        self._process = 0
        self._using = threading.Lock()
        _in_use.add(self)

    def reserve(self, wanted: Wanted) -> ReservedMoments:
        """Reserve the next free moments.

        :raises CpaasNotSentError: when the database cannot be used
        """
        with self._table() as table:
            return table.reserve(wanted)

    def hold(self, seconds: float) -> None:
        """Prevent reservations of moments within ``seconds``.

        :raises CpaasNotSentError: when the database cannot be used
        """
        with self._table() as table:
            table.hold(seconds)

    def close(self) -> None:
        """Close the database."""
        with self._using:
            database, self._database = self._database, None
            if database is not None:
                database.close()

    @contextlib.contextmanager
    def _table(self) -> Iterator[RateLimitTable]:
        """Return the table of this process, for one thread at a time."""
        try:
            with self._using:
                if self._database is None or self._process != os.getpid():
                    self._database, self._process = open_database(self._url, write_timeout=TIMEOUT), os.getpid()
                yield RateLimitTable(self._database, self._conn_id)
        except DatabaseError as error:
            message = describe_unusable(self._conn_id, error, "the request was not sent")
            raise CpaasNotSentError(message) from None


def describe_unusable(conn_id: str, error: DatabaseError, unsent: str) -> str:
    """Return the message of an error about a shared rate limit that cannot be used.

    :param unsent: a clause that says what was not sent
    """
    return (
        f"The shared rate limit of connection {conn_id!r} could not be used, so {unsent}: {str(error).rstrip('.')}. "
        "Without share_rate_limit on the connection, each task has a limit of its own."
    )
