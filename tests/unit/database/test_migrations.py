"""A database has the tables of the newest version; older ones are migrated, once, however many open them at once."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from cpaas_provider.database import REVISIONS, migrations
from cpaas_provider.database.database import Database, open_database
from cpaas_provider.database.errors import DatabaseError
from cpaas_provider.database.schema.all_tables import metadata
from cpaas_provider.database.schema.base import alembic_version
from tests.unit.database.table_versions import NEXT, NextVersion, is_newest, version

RECORDED = Path(__file__).with_name("tables.json")


def differences(database: Database) -> list[object]:
    """Return how its tables differ from those of our code, as far as Alembic can tell."""
    with database.engine.connect() as connection:
        context = MigrationContext.configure(
            connection,
            opts={
                "version_table": alembic_version.name,
                "include_name": lambda name, kind, _: kind != "table" or name in metadata.tables,
            },
        )
        found: list[object] = compare_metadata(context, metadata)
    return found


def index_condition(index: Mapping[str, Any]) -> list[str]:
    """Return the condition of a partial index; SQLite quotes the names of columns that were renamed."""
    options = index.get("dialect_options", {})
    return [str(value).replace('"', "") for name, value in sorted(options.items()) if name.endswith("_where")]


def shape(database: Database) -> dict[str, object]:
    """Return the columns, keys and indexes of all tables."""
    found = sqlalchemy.inspect(database.engine)
    return {
        name: {
            "columns": {
                column["name"]: f"{column['type']}{'' if column['nullable'] else ' NOT NULL'}"
                for column in found.get_columns(name)
            },
            "key": found.get_pk_constraint(name)["constrained_columns"],
            "indexes": {
                index["name"]: [index["unique"], index["column_names"], *index_condition(index)]
                for index in found.get_indexes(name)
            },
        }
        for name in metadata.tables
        if name != alembic_version.name
    }


def test_list_of_versions_equals_that_of_the_migrations() -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent))
    scripts = ScriptDirectory.from_config(config)
    assert tuple(script.revision for script in reversed(list(scripts.walk_revisions()))) == REVISIONS


def test_new_database_has_the_recorded_tables(url: str) -> None:
    """After a release, tables change only with a migration: add it, and record them anew."""
    with open_database(url) as database:
        assert is_newest(database)
        assert len(database.identity) == 32
        assert not differences(database)
        recorded = json.loads(RECORDED.read_text())[database.engine.dialect.name]
        assert json.loads(json.dumps(shape(database))) == recorded


def test_opening_the_newest_version_does_not_load_alembic(sqlite_url: str) -> None:
    code = (
        "import sys; from cpaas_provider.database.database import open_database; "
        f"open_database({sqlite_url!r}).close(); print('alembic' in sys.modules)"
    )
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout.splitlines()[-1] == "False"


def test_migrations_run_in_order_and_once(url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    open_database(url).close()
    NextVersion(monkeypatch, tmp_path / "scripts").migrate_by("CREATE TABLE cpaas_further (a INTEGER)")
    for _ in range(2):
        with open_database(url) as database:
            assert version(database) == NEXT
            assert sqlalchemy.inspect(database.engine).has_table("cpaas_further")


def test_failed_migration_leaves_the_tables_as_they_were(
    url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    open_database(url).close()
    next_version = NextVersion(monkeypatch, tmp_path / "scripts")
    next_version.migrate_by("CREATE TABLE half (a INTEGER)", "CREATE TABLE half (a INTEGER)")
    with pytest.raises(DatabaseError, match="half"):
        open_database(url)
    engine = sqlalchemy.create_engine(url)
    assert not sqlalchemy.inspect(engine).has_table("half")
    with engine.connect() as connection:
        assert connection.execute(sqlalchemy.select(alembic_version.c.version_num)).scalar_one() == REVISIONS[-1]
    engine.dispose()
    next_version.migrate_by()
    with open_database(url) as database:
        assert version(database) == NEXT


@pytest.mark.parametrize("revision", [NEXT, "0017"])
def test_newer_or_unreleased_version_is_refused(url: str, revision: str) -> None:
    with open_database(url) as database:
        changed = sqlalchemy.update(alembic_version).values(version_num=revision)
        database.write(lambda connection: connection.execute(changed))
    with pytest.raises(
        DatabaseError, match=rf"newer .* \(table version {revision}, supported here up to {REVISIONS[-1]}\)"
    ):
        open_database(url)


def test_postgresql_compresses_bodies_with_lz4_where_it_can(postgres_url: str) -> None:
    with open_database(postgres_url) as database, database.connect() as connection:
        can = connection.exec_driver_sql(
            "SELECT 'lz4' = ANY(enumvals) FROM pg_settings WHERE name = 'default_toast_compression'"
        ).scalar()
        if not can:
            pytest.skip("this PostgreSQL has no LZ4")
        column = "attrelid = 'cpaas_reports'::regclass AND attname = 'body'"
        by = connection.exec_driver_sql(f"SELECT attcompression FROM pg_attribute WHERE {column}").scalar()
        assert by == "l"


def test_threads_that_migrate_at_once_migrate_once(url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    open_database(url).close()
    NextVersion(monkeypatch, tmp_path / "scripts").migrate_by("CREATE TABLE cpaas_further (a INTEGER)")
    with ThreadPoolExecutor(4) as pool:
        opened = list(pool.map(lambda _: open_database(url), range(4)))
    assert version(opened[0]) == NEXT
    for database in opened:
        database.close()
