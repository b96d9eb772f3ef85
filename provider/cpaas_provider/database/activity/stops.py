"""The connections whose requests are stopped."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from sqlalchemy import Connection, delete, insert, select

from cpaas_provider.database.database import Database
from cpaas_provider.database.default_file import Stop
from cpaas_provider.database.recipients.locks import lock_for_writing
from cpaas_provider.database.schema.accounts import stops

MAX_REASON = 200
MAX_NAME = 100


_COLUMNS = [stops.c[name] for name in Stop._fields]


class StopTable:
    """The stopped connections. Their names have no regard to case, as in the names of environment variables."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def stop(self, conn_id: str, stopped_by: str, reason: str = "") -> tuple[Stop, bool]:
        """Stop the requests of a connection. Return the stop, and whether it is new. An earlier stop stays as it is.

        :raises DatabaseError: when the database cannot be written
        """
        stop = Stop(datetime.now(UTC), stopped_by[:MAX_NAME], reason[:MAX_REASON])

        def work(connection: Connection) -> tuple[Stop, bool]:
            lock_for_writing(connection, "stops")
            if (found := _find(connection, conn_id)) is not None:
                return found, False
            connection.execute(insert(stops).values(conn_id=conn_id.lower(), **stop._asdict()))
            return stop, True

        return self._database.write(work)

    def resume(self, conn_id: str) -> Stop | None:
        """Let the requests of a connection leave again. Return the stop that was removed, ``None`` if there was none.

        :raises DatabaseError: when the database cannot be written
        """

        def work(connection: Connection) -> Stop | None:
            lock_for_writing(connection, "stops")
            found = _find(connection, conn_id)
            connection.execute(delete(stops).where(stops.c.conn_id == conn_id.lower()))
            return found

        return self._database.write(work)

    def find(self, conn_id: str) -> Stop | None:
        """Return the stop of a connection, ``None`` if its requests may leave.

        :raises DatabaseError: when the database cannot be read
        """
        with self._database.connect() as connection:
            return _find(connection, conn_id)


def find_stops(connection: Connection, conn_ids: Iterable[str]) -> list[tuple[str, Stop]]:
    """Return the stopped connections among some, each with its stop, in the order of their names."""
    names = {conn_id.lower(): conn_id for conn_id in conn_ids}
    rows = connection.execute(select(stops.c.conn_id, *_COLUMNS).where(stops.c.conn_id.in_(names)))
    return sorted((names[row[0]], Stop(*row[1:])) for row in rows)


def _find(connection: Connection, conn_id: str) -> Stop | None:
    row = connection.execute(select(*_COLUMNS).where(stops.c.conn_id == conn_id.lower())).first()
    return None if row is None else Stop(*row)
