"""Databases whose tables are there already: making them anew takes longer than most tests that need them."""

from __future__ import annotations

import contextlib
import secrets
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import sqlalchemy
from sqlalchemy import Engine, text

from cpaas_provider.database.database import open_database
from cpaas_provider.database.migrations import REVISIONS

POSTGRES = "postgresql+psycopg2://postgres@127.0.0.1:5432/test"
MOST_ROWS = 2000
"""A schema that held more rows is not used again: what is deleted takes time, and leaves its place behind."""
_MOST_LOCK_WAIT = "5s"

_NEW_ID = "UPDATE cpaas_identity SET value = :value WHERE name = 'database'"

VERSION_TABLE = "cpaas_alembic_version"
_COUNT_IDS = "(SELECT count(*) FROM cpaas_identity WHERE name = 'database')"
_VERSIONS = f"(SELECT array_agg(CAST(version_num AS text)) FROM {VERSION_TABLE})"
_TABLES = "SELECT tablename FROM pg_tables WHERE schemaname = :schema ORDER BY tablename"
_SEQUENCES = "SELECT sequencename FROM pg_sequences WHERE schemaname = :schema"
# All that a test may have changed of tables, columns, indexes, constraints, rights, triggers and functions.
_STRUCTURE = """
SELECT md5(string_agg(line, ' ' ORDER BY line)) FROM (
    SELECT concat_ws(' ', oid, relname, relkind, relowner, relacl::text, reloptions::text) AS line
    FROM pg_class WHERE relnamespace = CAST(:schema AS regnamespace)
    UNION ALL SELECT concat_ws(' ', attrelid, attname, attnum, atttypid, attnotnull, atthasdef, attacl::text,
        attcompression, attstorage)
    FROM pg_attribute JOIN pg_class ON attrelid = pg_class.oid WHERE relnamespace = CAST(:schema AS regnamespace)
    UNION ALL SELECT concat_ws(' ', oid, conname) FROM pg_constraint
    WHERE connamespace = CAST(:schema AS regnamespace)
    UNION ALL SELECT concat_ws(' ', pg_trigger.oid, tgname) FROM pg_trigger JOIN pg_class ON tgrelid = pg_class.oid
    WHERE relnamespace = CAST(:schema AS regnamespace)
    UNION ALL SELECT concat_ws(' ', oid, proname) FROM pg_proc WHERE pronamespace = CAST(:schema AS regnamespace)
    UNION ALL SELECT concat_ws(' ', oid, nspowner, nspacl::text) FROM pg_namespace WHERE nspname = :schema
) AS lines
"""


def url_of(schema: str) -> str:
    """Return the URL into a schema. No commit in it waits for a disk, as no row need outlast the server."""
    return f"{POSTGRES}?options=-csearch_path%3D{schema}%20-csynchronous_commit%3Doff"


class SqliteTemplate:
    """A SQLite file of a database without rows, to be copied."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "template.db"
        with open_database(f"sqlite:///{self._file}"):
            pass

    def copy_to(self, file: Path) -> None:
        """Make a database of its own at a place where there is nothing."""
        file.parent.mkdir(mode=0o700)
        shutil.copy(self._file, file)
        with contextlib.closing(sqlite3.connect(file)) as connection, connection:
            connection.execute(_NEW_ID, {"value": secrets.token_hex(16)})


class PostgresSchemas:
    """Schemas of PostgreSQL. Those with tables are emptied after a test, and dropped where their structure changed."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._unused: list[tuple[str, str]] = []
        self._structure: dict[str, str] = {}
        self._tables: list[str] = []
        self._counts = ""
        self._resets = ""

    @contextlib.contextmanager
    def empty(self, name: str) -> Iterator[None]:
        """Have a schema in which nothing is."""
        with self._engine.begin() as connection:
            connection.execute(text(f"CREATE SCHEMA {name}"))
        yield
        self._drop(name)

    @contextlib.contextmanager
    def migrated(self, name: str) -> Iterator[None]:
        """Have a schema with all tables and no rows.

        :param name: one that no schema had before, as processes remember what they saw at a URL
        """
        self._take(name)
        yield
        self._give_back(name)

    def _take(self, name: str) -> None:
        if not self._unused:
            self._create(name)
            return
        schema, structure = self._unused.pop()
        with self._engine.begin() as connection:
            connection.execute(text(f"ALTER SCHEMA {schema} RENAME TO {name}; SET LOCAL search_path = {name}"))
            connection.execute(text(_NEW_ID), {"value": secrets.token_hex(16)})
        self._structure[name] = structure

    def _give_back(self, name: str) -> None:
        structure = self._structure.pop(name)
        try:
            if self._empty(name, structure):
                self._unused.append((name, structure))
                return
        except sqlalchemy.exc.DBAPIError:
            # Whatever a test did to it, the next one has another.
            pass
        self._drop(name)

    def close(self) -> None:
        """Drop all of them."""
        for name, _ in self._unused:
            self._drop(name)

    def _create(self, name: str) -> None:
        with self._engine.begin() as connection:
            connection.execute(text(f"CREATE SCHEMA {name}"))
        with open_database(url_of(name)):
            pass
        with self._engine.begin() as connection:
            self._structure[name] = self._structure_of(connection, name)
            if not self._tables:
                tables = connection.scalars(text(_TABLES), {"schema": name})
                self._tables = [table for table in tables if table not in ("cpaas_identity", VERSION_TABLE)]
                counts = ", ".join(f"(SELECT count(*) FROM {table})" for table in self._tables)
                self._counts = f"SELECT {_COUNT_IDS}, {_VERSIONS}, {counts}"
                sequences = connection.scalars(text(_SEQUENCES), {"schema": name})
                self._resets = "SELECT " + ", ".join(f"setval('{sequence}', 1, false)" for sequence in sequences)

    def _empty(self, name: str, structure: str) -> bool:
        with self._engine.begin() as connection:
            connection.execute(text(f"SET LOCAL search_path = {name}; SET LOCAL lock_timeout = '{_MOST_LOCK_WAIT}'"))
            if self._structure_of(connection, name) != structure:
                return False
            ids, versions, *rows = connection.execute(text(self._counts)).one()
            if sum(rows) > MOST_ROWS or (ids, versions) != (1, [REVISIONS[-1]]):
                return False
            # Rows that refer to others may go after them: all go.
            deletions = [f"DELETE FROM {table}" for table, count in zip(self._tables, rows, strict=True) if count]
            deletions += ["DELETE FROM cpaas_identity WHERE name <> 'database'", self._resets]
            connection.execute(text("; ".join(["SET LOCAL session_replication_role = replica", *deletions])))
        return True

    def _structure_of(self, connection: sqlalchemy.Connection, name: str) -> str:
        return str(connection.scalar(text(_STRUCTURE), {"schema": name}))

    def _drop(self, name: str) -> None:
        with self._engine.begin() as connection:
            connection.execute(text(f"DROP SCHEMA IF EXISTS {name} CASCADE"))
