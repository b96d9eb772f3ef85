"""Creates the tables in their newest version, or has Alembic migrate older ones.

Each file in ``versions`` is the migration of one release. It changes the tables independently of ``schema``. Add a new
one to ``database.REVISIONS`` too, so that Alembic is loaded only if there is something to migrate.
"""

from __future__ import annotations

import secrets
import threading
from pathlib import Path

from sqlalchemy import Connection, func, insert, inspect, select

from cpaas_provider.database import REVISIONS
from cpaas_provider.database.errors import DatabaseError
from cpaas_provider.database.schema.base import alembic_version, identities

# The advisory lock that processes take to create or migrate the tables. The number is arbitrary.
_LOCK = 0x6370616173

# Alembic keeps its state in module globals, so only one thread may use it.
_alembic = threading.Lock()


def read_revision(connection: Connection) -> str | None:
    """Return the version of the tables, ``None`` if there are none.

    :raises DatabaseError: when a newer version of the provider created them, or one from before the first release
    """
    if not inspect(connection).has_table(alembic_version.name):
        return None
    revision: str | None = connection.execute(select(alembic_version.c.version_num)).scalar_one_or_none()
    if revision is not None and revision not in REVISIONS:
        raise DatabaseError(
            "A newer or unreleased version of airflow-provider-cpaas created the tables of this database (table "
            f"version {revision}, supported here up to {REVISIONS[-1]}). Nothing was read or changed. Install the "
            "newer version wherever tasks run."
        )
    return revision


def is_newest(revision: str | None) -> bool:
    """Return whether tables of this version need no migration."""
    return revision == REVISIONS[-1]


def migrate(connection: Connection) -> None:
    """Bring the tables up to date within a transaction. Several processes may call it at once."""
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_advisory_xact_lock(_LOCK)))
    revision = read_revision(connection)
    if revision is None:
        _create(connection)
    elif not is_newest(revision):
        _upgrade(connection)


def _create(connection: Connection) -> None:
    """Create the newest tables."""
    from cpaas_provider.database.schema.all_tables import create_all

    create_all(connection)
    connection.execute(insert(identities).values(name="database", value=secrets.token_hex(16)))
    connection.execute(insert(alembic_version).values(version_num=REVISIONS[-1]))


def _upgrade(connection: Connection) -> None:
    """Have Alembic migrate the tables."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    # Escaped, because % starts a placeholder in Alembic's configuration.
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    config.attributes["connection"] = connection
    with _alembic:
        command.upgrade(config, REVISIONS[-1])
