"""Whether the requests of a connection are stopped, as the provider's database has it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from cpaas_provider.database.default_file import Stop, is_missing, may_exist, read_stops
from cpaas_provider.database.errors import DatabaseError

if TYPE_CHECKING:
    from cpaas_provider.database.database import Database


def find_stop(conn_id: str, open_database: Callable[[], AbstractContextManager[Database]]) -> Stop | None:
    """Read the stop of a connection; ``None`` if its requests may leave.

    :param open_database: opens the database if it is no SQLite file
    :raises DatabaseError: when it cannot be read
    """
    if not may_exist():
        return None
    if (found := read_stops(conn_id)) is not None:
        return found[0] if found else None
    from cpaas_provider.database.activity.stops import StopTable

    with open_database() as database:
        return StopTable(database).find(conn_id)


def describe_stop(conn_id: str) -> str | None:
    """Return that a connection is stopped, or that this cannot be read; ``None`` if its requests may leave."""
    from cpaas_provider.database.database import open_database

    if is_missing():
        # A look must not create the database.
        return None
    try:
        stop = find_stop(conn_id, open_database)
    except DatabaseError as error:
        return f"The stopped connections cannot be read, so no request leaves. {error}"
    if stop is None:
        return None
    return (
        f"{stop.describe(conn_id)} No request that changes something or costs money leaves. To continue: airflow cpaas "
        f"resume --conn-id {conn_id}"
    )
