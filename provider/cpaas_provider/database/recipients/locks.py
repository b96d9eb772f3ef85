"""Named locks: of two transactions that take the same lock, the second waits for the end of the first."""

from __future__ import annotations

import functools
from hashlib import sha256

from sqlalchemy import Connection, func, select

from cpaas_provider.database.bulk import Statement
from cpaas_provider.database.schema.base import alembic_version

_SPACE = 0x63706872
"""The first key of all these advisory locks in PostgreSQL; the second identifies the name."""


def lock_for_writing(connection: Connection, name: str) -> None:
    """Take a lock until the transaction ends. SQLite needs none, as it has one writer at a time."""
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_advisory_xact_lock(_SPACE, _number(name))))
    elif connection.dialect.name != "sqlite":
        connection.execute(select(alembic_version.c.version_num).with_for_update())


@functools.cache
def lock_for_reading(dialect: str, name: str) -> Statement | None:
    """Return what takes a lock together with other readers, on the databases that store reports.

    A writer waits for all readers.
    """
    if dialect != "postgresql":
        return None
    return Statement(f"SELECT pg_advisory_xact_lock_shared({_SPACE}, {_number(name)})", {})


def _number(name: str) -> int:
    return int.from_bytes(sha256(name.encode()).digest()[:4], "big", signed=True)
