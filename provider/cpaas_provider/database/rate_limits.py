"""Rate limits that several processes share: each has a row with the moment before which all moments are reserved.

Times are seconds of the database server's clock; of the machine's where the database is a file of SQLite.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from sqlalchemy import ColumnElement, Connection, insert, literal_column, select, update

from cpaas_provider.database.database import Database
from cpaas_provider.database.schema import rate_limits

MAX_AHEAD = 1.0
"""For how many seconds moments are reserved ahead. A reservation gets half of what is left of them, but at least one
moment. With the same demand, processes thus come to have the same share."""

MAX_WAITING = 16
"""How many further moments are reserved beyond that, one at a time: the next reservation is refused."""

MAX_HOLD = 300.0
"""For how many seconds at most one process has all others wait. Should it be longer, it is asked for again."""

# Where the server has no such function that we know of, and for SQLite, it is the clock of the machine.
_SERVER_CLOCKS: dict[str, ColumnElement[Any]] = {
    "postgresql": literal_column("extract(epoch from clock_timestamp())"),
    "mysql": literal_column("unix_timestamp(now(6))"),
    "mariadb": literal_column("unix_timestamp(now(6))"),
}


@dataclass(frozen=True)
class SharedLimit:
    """A rate limit as it is stored.

    :param next_at: the moment from which none is reserved
    :param held_until: no moment before that is reserved, because the service asked for a pause
    """

    requests_per_second: float
    next_at: float
    held_until: float


@dataclass(frozen=True)
class Wanted:
    """What a process asks for.

    :param count: how many moments at most
    :param requests_per_second: the limit as it knows it
    :param slowdown: the factor, 1 or more, by which it keeps its moments further apart
    :param is_first: whether it just read the limit from the connection, so that this one holds for all
    """

    count: int
    requests_per_second: float
    slowdown: float = 1.0
    is_first: bool = False


@dataclass(frozen=True)
class ReservedMoments:
    """Evenly spaced moments of one process; with a ``count`` of 0, ``first`` is when to ask again."""

    first: float
    count: int
    interval: float
    requests_per_second: float


def reserve(found: SharedLimit | None, wanted: Wanted, now: float) -> tuple[SharedLimit, ReservedMoments]:
    """Return how the limit stands after a reservation, and what was reserved.

    Moments of different reservations never overlap. A row from a clock that was ahead, or a wrong one, keeps requests
    waiting for ``MAX_AHEAD`` and ``MAX_WAITING`` moments at most: nothing that is later was ever reserved.
    """
    limit = found or SharedLimit(wanted.requests_per_second, now, now)
    if wanted.is_first or not limit.requests_per_second > 0:
        limit = replace(limit, requests_per_second=wanted.requests_per_second)
    every = 1.0 / limit.requests_per_second
    interval = every * wanted.slowdown
    held_until = min(limit.held_until, now + MAX_HOLD)
    opens = max(now, held_until)
    end = opens + MAX_AHEAD + MAX_WAITING * every
    start = max(opens, min(limit.next_at, end))
    if start + interval > end:
        again = opens + start + interval - end
        return replace(limit, next_at=start, held_until=held_until), ReservedMoments(
            again, 0, interval, limit.requests_per_second
        )
    half = int((opens + MAX_AHEAD - start) / 2 / interval)
    count = max(1, min(wanted.count, half))
    after = replace(limit, next_at=start + count * interval, held_until=held_until)
    return after, ReservedMoments(start, count, interval, limit.requests_per_second)


class RateLimitTable:
    """The rate limit of one connection.

    :param conn_id: the connection; upper and lower case make no difference, as in the names of environment variables
    :param clock: the time of this machine, where the database has no clock of its own
    :param monotonic: the clock of what is returned
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
        return self._database.write(partial(self._reserve, wanted))

    def hold(self, seconds: float) -> None:
        """Let no moment within ``seconds`` be reserved, up to ``MAX_HOLD``.

        :raises DatabaseError: when the database cannot be used
        """

        def work(connection: Connection) -> None:
            found, now = self._locked(connection)
            until = now + min(seconds, MAX_HOLD)
            if found is not None and not found.held_until > until:
                self._store(connection, replace(found, held_until=until))

        self._database.write(work)

    def _reserve(self, wanted: Wanted, connection: Connection) -> ReservedMoments:
        found, now = self._locked(connection)
        # The other clock is read after the database's: a moment may come late by that, and never early.
        here = self._monotonic()
        limit, reserved = reserve(found, wanted, now)
        if found is None:
            connection.execute(insert(rate_limits).values(conn_id=self._name, **_columns(limit)))
        elif limit != found:
            self._store(connection, limit)
        return replace(reserved, first=here + reserved.first - now)

    def _locked(self, connection: Connection) -> tuple[SharedLimit | None, float]:
        """Return the row, locked until the transaction ends, and the time of the database."""
        columns = rate_limits.c
        query = select(columns.requests_per_second, columns.next_at, columns.held_until)
        row: Sequence[Any] | None = connection.execute(query.where(self._row).with_for_update()).one_or_none()
        # By a statement of its own: the one that waits for the lock may have its time from before the wait.
        clock = _SERVER_CLOCKS.get(connection.dialect.name)
        now = self._clock() if clock is None else float(connection.execute(select(clock)).scalar_one())
        return None if row is None else SharedLimit(*row), now

    def _store(self, connection: Connection, limit: SharedLimit) -> None:
        connection.execute(update(rate_limits).where(self._row).values(**_columns(limit)))


def _columns(limit: SharedLimit) -> dict[str, Any]:
    return {
        "requests_per_second": limit.requests_per_second,
        "next_at": limit.next_at,
        "held_until": limit.held_until,
    }
