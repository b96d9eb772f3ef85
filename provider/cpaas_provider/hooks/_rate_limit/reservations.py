"""Rate limits that several processes share.

A request may start at a moment that its process has reserved. Each limit is a row that holds the next free moment.
Times are seconds by the clock of the database server. If the database is an SQLite file, the machine's clock counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict, replace
from sqlalchemy import ColumnElement, Connection, insert, literal_column, select, update

from cpaas_provider.database.database import Database
from cpaas_provider.database.schema.rate_limits import rate_limits

MAX_AHEAD = 1.0
"""The seconds for which moments are reserved ahead. A reservation gets half of the free moments among them, but at
least one. So processes with the same demand converge to the same share."""

MAX_WAITING = 16
"""The number of moments that can be reserved beyond ``MAX_AHEAD``, one at a time. Then reservations are refused."""

MAX_HOLD = 300.0
"""The longest pause, in seconds, that one process imposes on all. For a longer one it calls ``hold`` again."""

# For SQLite and all other databases, the machine's clock counts.
_SERVER_CLOCKS: dict[str, ColumnElement[Any]] = {
    "postgresql": literal_column("extract(epoch from clock_timestamp())"),
    "mysql": literal_column("unix_timestamp(now(6))"),
    "mariadb": literal_column("unix_timestamp(now(6))"),
}


class SharedLimit(Struct, frozen=True):
    """A rate limit as it is stored.

    :param next_at: the next free moment
    :param held_until: no moment before this is reserved, because the service asked for a pause
    """

    requests_per_second: float
    next_at: float
    held_until: float


class Wanted(Struct, frozen=True):
    """The request for a reservation.

    :param count: the number of moments at most
    :param requests_per_second: the limit that this process read from the connection
    :param slowdown: the factor, 1 or more, by which the moments are further apart than the limit requires
    :param is_first: whether the process has just read the limit from the connection. If so, it replaces the stored one.
    """

    count: int
    requests_per_second: float
    slowdown: float = 1.0
    is_first: bool = False


class ReservedMoments(Struct, frozen=True):
    """Evenly spaced moments reserved for one process.

    :param first: the first moment; with a ``count`` of 0, when to try again
    :param interval: seconds between two moments
    """

    first: float
    count: int
    interval: float
    requests_per_second: float


def reserve(found: SharedLimit | None, wanted: Wanted, now: float) -> tuple[SharedLimit, ReservedMoments]:
    """Return the limit after a reservation, and the reserved moments.

    Moments of different reservations never overlap. If the row holds a later moment, a wrong clock wrote it, as
    nothing beyond ``MAX_AHEAD`` and ``MAX_WAITING`` moments is ever reserved. Such a moment is moved to that bound.

    :param found: the stored limit, ``None`` if there is none
    :param now: seconds by the same clock as the stored limit
    """
    limit = found or SharedLimit(wanted.requests_per_second, now, now)
    if wanted.is_first or not limit.requests_per_second > 0:
        limit = replace(limit, requests_per_second=wanted.requests_per_second)
    every = 1.0 / limit.requests_per_second
    interval = every * wanted.slowdown
    held_until = min(limit.held_until, now + MAX_HOLD)
    opens = max(now, held_until)
    end = opens + MAX_AHEAD + MAX_WAITING * every
    first = start = max(opens, min(limit.next_at, end))
    if start + interval > end:
        count, first = 0, opens + start + interval - end
    else:
        half = int((opens + MAX_AHEAD - start) / 2 / interval)
        count = max(1, min(wanted.count, half))
    after = replace(limit, next_at=start + count * interval, held_until=held_until)
    return after, ReservedMoments(first, count, interval, limit.requests_per_second)


class RateLimitTable:
    """The rate limit of one connection.

    :param conn_id: the connection, without regard to case, as in the names of environment variables
    :param clock: the machine's clock, for databases without a clock of their own
    :param monotonic: the clock of the reserved moments that are returned
    """

    def __init__(
        self,
        database: Database,
        conn_id: str,
        *,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._database = database
        self._name = conn_id.lower()
        self._clock = clock
        self._monotonic = monotonic
        self._row = rate_limits.c.conn_id == self._name

    def reserve(self, wanted: Wanted) -> ReservedMoments:
        """Reserve the next free moments, in seconds of the monotonic clock.

        :raises DatabaseError: when the database cannot be used
        """

        def work(connection: Connection) -> ReservedMoments:
            found, now = self._locked(connection)
            # Read after the database's clock, so that a moment can come late by the difference, but never early.
            monotonic_now = self._monotonic()
            limit, reserved = reserve(found, wanted, now)
            if found is None:
                connection.execute(insert(rate_limits).values(conn_id=self._name, **asdict(limit)))
            elif limit != found:
                self._store(connection, limit)
            return replace(reserved, first=monotonic_now + reserved.first - now)

        return self._database.write(work)

    def hold(self, seconds: float) -> None:
        """Prevent that any process reserves a moment within the next ``seconds``.

        :param seconds: at most ``MAX_HOLD``; a longer pause is cut
        :raises DatabaseError: when the database cannot be used
        """

        def work(connection: Connection) -> None:
            limit, now = self._locked(connection)
            until = now + min(seconds, MAX_HOLD)
            if limit is not None and not limit.held_until > until:
                self._store(connection, replace(limit, held_until=until))

        self._database.write(work)

    def _locked(self, connection: Connection) -> tuple[SharedLimit | None, float]:
        """Return the row, locked until the transaction ends, and the time of the database."""
        columns = rate_limits.c
        query = select(columns.requests_per_second, columns.next_at, columns.held_until)
        row = connection.execute(query.where(self._row).with_for_update()).one_or_none()
        # A separate statement, because the one that waits for the lock may take its time from before the wait.
        clock = _SERVER_CLOCKS.get(connection.dialect.name)
        now = self._clock() if clock is None else float(connection.execute(select(clock)).scalar_one())
        return None if row is None else SharedLimit(*row), now

    def _store(self, connection: Connection, limit: SharedLimit) -> None:
        connection.execute(update(rate_limits).where(self._row).values(**asdict(limit)))
