"""Which version of its tables a database has, and a migration to a next version."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy

from cpaas_provider.database import migrations
from cpaas_provider.database.database import Database
from cpaas_provider.database.migrations import REVISIONS
from cpaas_provider.database.schema.all_tables import metadata
from cpaas_provider.database.schema.base import alembic_version

NEXT = "v9999"


class NextVersion:
    """A version of the tables that follows ours.

    :param folder: a folder for a copy of the migrations
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        (folder / "versions").mkdir(parents=True)
        ours = Path(migrations.__file__).parent
        (folder / "env.py").write_text((ours / "env.py").read_text())
        for migration in (ours / "versions").glob("v*.py"):
            (folder / "versions" / migration.name).write_text(migration.read_text())
        monkeypatch.setattr(migrations, "__file__", str(folder / "__init__.py"))
        monkeypatch.setattr(migrations, "REVISIONS", (*REVISIONS, NEXT))
        self._file = folder / "versions" / f"{NEXT}.py"

    def migrate_by(self, *statements: str) -> None:
        """Have these statements be its migration."""
        calls = "".join(f"\n    op.execute({statement!r})" for statement in statements) or "\n    pass"
        self._file.write_text(
            f"from alembic import op\nrevision = {NEXT!r}\ndown_revision = {REVISIONS[-1]!r}\ndef upgrade():{calls}\n"
        )


def version(database: Database) -> str:
    """Return the version that is recorded for its tables."""
    with database.connect() as connection:
        return str(connection.execute(sqlalchemy.select(alembic_version.c.version_num)).scalar_one())


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
