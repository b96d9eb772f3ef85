"""Which version of its tables a database has, and databases of earlier versions."""

from __future__ import annotations

from pathlib import Path

import sqlalchemy
from alembic import command
from alembic.config import Config

from cpaas_provider.database import migrations
from cpaas_provider.database.database import Database, open_database
from cpaas_provider.database.migrations import REVISIONS
from cpaas_provider.database.schema.all_tables import metadata
from cpaas_provider.database.schema.base import alembic_version

BEFORE_ALEMBIC = ("0001", "0002", "0003", "0004", "0005", "0006")


def version(database: Database) -> str:
    """Return the version that is recorded for its tables."""
    with database.connect() as connection:
        return str(connection.execute(sqlalchemy.select(alembic_version.c.version_num)).scalar_one())


def create(url: str, revision: str, *, by_alembic: bool = False) -> None:
    """Create a database of an earlier version.

    :param by_alembic: its version is recorded as Alembic does, not as it was before
    """
    # Opened and emptied, as a file has settings of its own.
    with open_database(url) as database:
        metadata.drop_all(database.engine)
        with database.engine.begin() as connection:
            config = Config()
            config.set_main_option("script_location", str(Path(migrations.__file__).parent))
            config.attributes["connection"] = connection
            command.upgrade(config, revision)
            if not by_alembic:
                record_before_alembic(connection, int(revision))


def record_before_alembic(connection: sqlalchemy.Connection, number: int) -> None:
    """Have the version recorded as it was before Alembic."""
    alembic_version.drop(connection)
    connection.exec_driver_sql(
        "CREATE TABLE cpaas_schema (version INTEGER NOT NULL, since TIMESTAMP NOT NULL, PRIMARY KEY (version))"
    )
    for one in range(1, number + 1):
        connection.exec_driver_sql(f"INSERT INTO cpaas_schema VALUES ({one}, '2026-01-01 00:00:00')")


def is_newest(database: Database) -> bool:
    return version(database) == REVISIONS[-1]


def remove(database: Database) -> None:
    """Have it be as if nobody had opened it."""
    if database.engine.dialect.name != "sqlite":
        metadata.drop_all(database.engine)
        with database.engine.begin() as connection:
            connection.exec_driver_sql("DROP TABLE IF EXISTS cpaas_schema")
        return
    database.close()
    Path(str(database.engine.url.database)).unlink()
