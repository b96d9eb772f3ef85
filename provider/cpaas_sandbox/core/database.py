"""The sandbox's state in SQLite: in memory, or in a file that survives a restart.

All code runs on the server's one event loop, so one connection is enough and needs no lock.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pydantic_core import to_json

Row = dict[str, Any]

VERSION = 4

# Money is stored in whole ten-thousandths, moments in seconds since 1970.
TABLES = """
CREATE TABLE IF NOT EXISTS state (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS counters (name TEXT PRIMARY KEY, n INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS messages (
    id TEXT PRIMARY KEY, kind TEXT NOT NULL, channel TEXT NOT NULL, sender_id TEXT NOT NULL, from_name TEXT,
    reply_to TEXT, template_id TEXT, external_ref TEXT, callback TEXT, is_trackable INTEGER, created REAL NOT NULL);
CREATE INDEX IF NOT EXISTS messages_ref ON messages (external_ref);
CREATE TABLE IF NOT EXISTS deliveries (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, message_id TEXT NOT NULL, kind TEXT NOT NULL, recipient TEXT NOT NULL,
    subject TEXT, text TEXT NOT NULL, encoding TEXT, length INTEGER, pages INTEGER, charge INTEGER NOT NULL,
    outcome TEXT NOT NULL, reason TEXT);
CREATE INDEX IF NOT EXISTS deliveries_recipient ON deliveries (kind, recipient);
CREATE INDEX IF NOT EXISTS deliveries_kind ON deliveries (kind);
CREATE INDEX IF NOT EXISTS deliveries_message ON deliveries (message_id);
CREATE TABLE IF NOT EXISTS otps (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, recipient TEXT NOT NULL, channel TEXT NOT NULL,
    code TEXT NOT NULL, text TEXT NOT NULL, status INTEGER NOT NULL, attempts INTEGER NOT NULL DEFAULT 0,
    charge INTEGER NOT NULL, created REAL NOT NULL, updated REAL, expires REAL NOT NULL);
CREATE INDEX IF NOT EXISTS otps_recipient ON otps (recipient);
CREATE TABLE IF NOT EXISTS airtime (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, recipient TEXT NOT NULL, network TEXT NOT NULL,
    amount INTEGER NOT NULL, external_ref TEXT, callback TEXT, status TEXT NOT NULL, outcome TEXT NOT NULL,
    refunded INTEGER NOT NULL DEFAULT 0, due REAL, created REAL NOT NULL, updated REAL, reason TEXT);
CREATE INDEX IF NOT EXISTS airtime_recipient ON airtime (recipient);
CREATE INDEX IF NOT EXISTS airtime_due ON airtime (due) WHERE due IS NOT NULL;
CREATE TABLE IF NOT EXISTS contacts (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, columns TEXT NOT NULL, created REAL NOT NULL,
    updated REAL);
CREATE TABLE IF NOT EXISTS lookups (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, recipient TEXT NOT NULL, answer TEXT NOT NULL, charge INTEGER NOT NULL,
    created REAL NOT NULL);
CREATE INDEX IF NOT EXISTS lookups_recipient ON lookups (recipient);
CREATE TABLE IF NOT EXISTS reports (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, endpoint TEXT NOT NULL, origin TEXT NOT NULL, kind TEXT NOT NULL,
    message_id TEXT NOT NULL, recipient TEXT NOT NULL, external_ref TEXT, status TEXT NOT NULL, url TEXT NOT NULL,
    body TEXT NOT NULL, turn REAL NOT NULL, first REAL NOT NULL, due REAL NOT NULL,
    state TEXT NOT NULL DEFAULT 'pending', attempts INTEGER NOT NULL DEFAULT 0, result TEXT, created REAL NOT NULL,
    updated REAL);
CREATE INDEX IF NOT EXISTS reports_pending ON reports (due, turn, seq) WHERE state = 'pending';
CREATE INDEX IF NOT EXISTS reports_message ON reports (message_id, recipient);
CREATE INDEX IF NOT EXISTS reports_recipient ON reports (recipient);
CREATE TABLE IF NOT EXISTS templates (
    id TEXT PRIMARY KEY, channel TEXT NOT NULL, subject TEXT, content TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS seeded_lookups (phone TEXT PRIMARY KEY, answer TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS outcomes (
    kind TEXT NOT NULL, recipient TEXT NOT NULL, outcome TEXT NOT NULL, PRIMARY KEY (kind, recipient));
"""

# Version 1 gave up each report within seconds, so its reports are not migrated.
_FROM_1 = """
DROP TABLE callbacks;
DELETE FROM counters WHERE name LIKE 'callbacks.%';
ALTER TABLE deliveries ADD COLUMN reason TEXT;
ALTER TABLE airtime ADD COLUMN reason TEXT;
"""
_FROM_2 = """
ALTER TABLE reports RENAME COLUMN door TO endpoint;
UPDATE reports SET origin = 'resent' WHERE origin = 'repeat';
"""
_FROM_3 = "ALTER TABLE keep RENAME TO state;"

# earlier version -> script that migrates it to VERSION
_MIGRATIONS = {1: _FROM_1 + _FROM_3, 2: _FROM_2 + _FROM_3, 3: _FROM_3}

# The tables that requests fill, and those that seeding and settings fill.
TRAFFIC = ("messages", "deliveries", "otps", "airtime", "lookups", "reports", "counters")
SEEDED = ("contacts", "templates", "seeded_lookups", "outcomes", "state")


_OWNER_ONLY = 0o600


class UnusableDatabaseError(Exception):
    """The file is no SQLite database of this version of the sandbox, or cannot be opened."""


def _make_private(file: str) -> None:
    """Take an existing database, and the files beside it, away from others: they hold messages and passcodes."""
    for suffix in ("", "-wal", "-shm", "-journal"):
        with suppress(FileNotFoundError):
            Path(file + suffix).chmod(_OWNER_ONLY)


class Database:
    """One SQLite connection with explicit transactions."""

    def __init__(self, path: str | None = None) -> None:
        # An absolute path is a file, whatever its name is to SQLite. Of a link, SQLite takes the file it leads to.
        file = str(Path(path).resolve()) if path else ":memory:"
        try:
            if path:
                # SQLite gives the files beside it the mode of this file.
                os.close(os.open(file, os.O_RDWR | os.O_CREAT, _OWNER_ONLY))
            self._connection = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
            self._connection.row_factory = sqlite3.Row
            self._open()
            if path:
                _make_private(file)
        except (sqlite3.Error, OSError) as error:
            raise UnusableDatabaseError(f"{path}: {error}") from error

    def _open(self) -> None:
        version = self._connection.execute("PRAGMA user_version").fetchone()[0]
        if version not in (0, *_MIGRATIONS, VERSION):
            raise sqlite3.DatabaseError(f"written by another version of the sandbox ({version}, not {VERSION})")
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = NORMAL")
        if version in _MIGRATIONS:
            script = f"BEGIN IMMEDIATE;\n{_MIGRATIONS[version]}\nPRAGMA user_version = {VERSION};\nCOMMIT;"
            self._connection.executescript(script)
        self._connection.executescript(TABLES)
        self._connection.execute(f"PRAGMA user_version = {VERSION}")

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit the block, or roll it back on an exception; a nested block joins the outer transaction."""
        if self._connection.in_transaction:
            yield
            return
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")

    def execute(self, sql: str, values: Sequence[Any] | Row = ()) -> int:
        """Run one statement; return the number of changed rows."""
        return self._connection.execute(sql, values).rowcount

    def many(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        """Run one statement once for each row of values."""
        self._connection.executemany(sql, rows)

    def row(self, sql: str, values: Sequence[Any] = ()) -> Row | None:
        """Return the first row, or None."""
        row = self._connection.execute(sql, values).fetchone()
        return None if row is None else dict(row)

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        """Return all rows."""
        return [dict(row) for row in self._connection.execute(sql, values)]

    def number(self, sql: str, values: Sequence[Any] = ()) -> int:
        """Return the first value of the first row as a whole number, 0 if there is none."""
        row = self._connection.execute(sql, values).fetchone()
        return int(row[0] or 0) if row else 0

    def load(self, name: str) -> Any:
        """Return a named value, None if there is none."""
        row = self.row("SELECT value FROM state WHERE name = ?", [name])
        return json.loads(row["value"]) if row else None

    def save(self, name: str, value: Any) -> None:
        """Store a named value."""
        self.execute("INSERT OR REPLACE INTO state (name, value) VALUES (?, ?)", [name, to_json(value).decode()])

    def empty(self, tables: Iterable[str]) -> None:
        """Delete all rows of the named tables."""
        for table in tables:
            self.execute(f"DELETE FROM {table}")  # noqa: S608 - names come from the tuples above

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
