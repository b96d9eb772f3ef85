"""The reservations of a shared rate limit, in the provider's database."""

from __future__ import annotations

import os
import threading
import weakref
from typing import TYPE_CHECKING

from cpaas_provider.api.errors import CpaasNotSentError
from cpaas_provider.database.database import Database, open_database
from cpaas_provider.database.errors import DatabaseError
from cpaas_provider.database.rate_limits import RateLimitTable, Wanted
from cpaas_provider.hooks._rate_limit.limiter import SharedRateLimiter

if TYPE_CHECKING:
    from cpaas_provider.database.rate_limits import ReservedMoments

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
        reservations.hold_still()
        _held.append(reservations)
    for reservations in _held:
        reservations.close_sessions()


def _after_fork() -> None:
    while _held:
        _held.pop().go_on()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)


def make_rate_limiter(conn_id: str, requests_per_second: float) -> SharedRateLimiter:
    """Return a rate limiter that shares the limit of a connection. It opens the database before the first request."""
    return SharedRateLimiter(requests_per_second, StoredReservations(conn_id), f"connection {conn_id!r}")


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

    def reserve(self, count: int, requests_per_second: float, slowdown: float, *, is_first: bool) -> ReservedMoments:
        """Reserve the next free moments.

        :raises CpaasNotSentError: when the database cannot be used
        """
        try:
            with self._using:
                return self._table().reserve(Wanted(count, requests_per_second, slowdown, is_first))
        except DatabaseError as error:
            raise self._failure(error) from None

    def hold(self, seconds: float) -> None:
        """Prevent reservations of moments within ``seconds``.

        :raises CpaasNotSentError: when the database cannot be used
        """
        try:
            with self._using:
                self._table().hold(seconds)
        except DatabaseError as error:
            raise self._failure(error) from None

    def close(self) -> None:
        """Close the database."""
        with self._using:
            database, self._database = self._database, None
            if database is not None:
                database.close()

    def hold_still(self) -> None:
        """Wait for the end of a reservation, and start none until ``go_on``."""
        self._using.acquire()

    def close_sessions(self) -> None:
        """Close the sessions, none of which is in use. The next reservation opens a new one."""
        if self._database is not None:
            self._database.engine.dispose()

    def go_on(self) -> None:
        """Let reservations be made again. The next one opens a session."""
        self._using.release()

    def _table(self) -> RateLimitTable:
        if self._database is None or self._process != os.getpid():
            self._database, self._process = open_database(self._url, write_timeout=TIMEOUT), os.getpid()
        return RateLimitTable(self._database, self._conn_id)

    def _failure(self, error: DatabaseError) -> CpaasNotSentError:
        return CpaasNotSentError(describe_unusable(self._conn_id, error, "the request was not sent"))


def describe_unusable(conn_id: str, error: DatabaseError, unsent: str) -> str:
    """Return the message of an error about a shared rate limit that cannot be used.

    :param unsent: a clause that says what was not sent
    """
    return (
        f"The shared rate limit of connection {conn_id!r} could not be used, so {unsent}: {str(error).rstrip('.')}. "
        "Without share_rate_limit on the connection, each task has a limit of its own."
    )
