"""Which versions of its tables a database has."""

from __future__ import annotations

from pathlib import Path

import sqlalchemy

from cpaas_provider.database import schema
from cpaas_provider.database.database import Database


def versions(database: Database) -> list[int]:
    """Return the versions of its tables that were made."""
    with database.connect() as connection:
        return list(connection.execute(sqlalchemy.select(schema.versions.c.version)).scalars())


def all_of_them() -> list[int]:
    """Return all versions there are."""
    return list(range(1, len(schema.MIGRATIONS) + 1))


def remove(database: Database) -> None:
    """Have it be as if nobody had opened it."""
    if database.engine.dialect.name != "sqlite":
        schema.metadata.drop_all(database.engine)
        return
    database.close()
    Path(str(database.engine.url.database)).unlink()
