"""The version of the tables, and how they come to have the newest: created at once, or migrated by Alembic.

Each file in ``versions`` is one migration. It writes out the tables as they were then, not as ``schema`` has them now.
A new one is added to ``REVISIONS`` too, so that Alembic need not be loaded to see that nothing is to be done.
"""

from __future__ import annotations

import secrets
import threading
from pathlib import Path

from sqlalchemy import Connection, column, func, insert, inspect, select, table, text

from cpaas_provider.database import schema
from cpaas_provider.database.errors import DatabaseError

REVISIONS = (
    "0001", "0002", "0003", "0004", "0005", "0006", "0007", "0008", "0009", "0010", "0011", "0012", "0013",
    "0014",
)  # fmt: skip
"""All versions of the tables, the newest last."""

# Where versions 1 to 6 were recorded before Alembic.
_EARLIER = table("cpaas_schema", column("version"))

# Any number will do; it is what several processes that create or migrate the tables at once wait for.
_LOCK = 0x6370616173

# Alembic keeps what it is working on in its modules.
_alembic = threading.Lock()


def read_revision(connection: Connection) -> str | None:
    """Return the version of the tables, ``None`` where there are none.

    :raises DatabaseError: when it is newer than this version of the provider knows
    """
    inspector = inspect(connection)
    found: str | None = None
    if inspector.has_table(schema.alembic_version.name):
        found = connection.execute(select(schema.alembic_version.c.version_num)).scalar_one_or_none()
    elif inspector.has_table(_EARLIER.name):
        number = connection.execute(select(func.max(_EARLIER.c.version))).scalar()
        found = f"{number:04}" if number else None
    if found is not None and found not in REVISIONS:
        raise DatabaseError(
            "A newer version of airflow-provider-cpaas created the tables of this database (table version "
            f"{found}, supported here up to {REVISIONS[-1]}). Nothing was read or changed. Install the newer version "
            "wherever tasks run."
        )
    return found


def is_newest(revision: str | None) -> bool:
    """Tell whether tables of that version need no migration."""
    return revision == REVISIONS[-1]


def migrate(connection: Connection) -> None:
    """Bring the tables up to date within a transaction, also where another process does the same now."""
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_advisory_xact_lock(_LOCK)))
    revision = read_revision(connection)
    if revision is None:
        _create(connection)
    elif not is_newest(revision):
        _upgrade(connection, revision)


def _create(connection: Connection) -> None:
    """Create the newest tables."""
    schema.create_all(connection)
    connection.execute(insert(schema.identities).values(name="database", value=secrets.token_hex(16)))
    connection.execute(insert(schema.alembic_version).values(version_num=REVISIONS[-1]))


def _upgrade(connection: Connection, revision: str) -> None:
    """Have Alembic migrate the tables from a version."""
    from alembic import command
    from alembic.config import Config

    if not inspect(connection).has_table(schema.alembic_version.name):
        schema.alembic_version.create(connection)
        connection.execute(insert(schema.alembic_version).values(version_num=revision))
        # The version before Alembic sees here that it must not use the tables any more.
        connection.execute(
            text(f"INSERT INTO {_EARLIER.name} (version, since) VALUES (7, CURRENT_TIMESTAMP)")  # noqa: S608 - our name
        )
    config = Config()
    # Of ini files, where % is a placeholder.
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    config.attributes["connection"] = connection
    with _alembic:
        command.upgrade(config, REVISIONS[-1])
