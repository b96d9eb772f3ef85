"""Stores the rows of an imported file in a temporary file, so that memory does not grow with the file.

The rows are hashes and row ids. They are read in the order of their key hashes, which databases write fastest.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from hashlib import blake2b
from itertools import islice
from types import TracebackType
from typing import Any, NamedTuple, Self

from cpaas_provider.contacts.errors import MapFileError
from cpaas_provider.contacts.key_map.entries import MapEntry, RowState
from cpaas_provider.database.bulk import batched

_TABLE = """
CREATE TABLE staged (
  key_hash BLOB NOT NULL, line INTEGER NOT NULL, row_id TEXT, state INTEGER NOT NULL, raw_hash BLOB,
  rejected_hash BLOB, missing_hash BLOB, cell_hashes BLOB, source_row INTEGER, requested TEXT
)
"""
_CONTENT = "key_hash, row_id, state, raw_hash, rejected_hash, missing_hash, cell_hashes, source_row, requested"
_BATCH_SIZE = 2_000
_SHOWN = 10


class Shared(NamedTuple):
    """Lines of a file that have the same key or the same row id.

    :param number: the number of keys or row ids that are on several lines
    :param lines: the first and the last line of some of them
    """

    number: int
    lines: list[tuple[int, int]]


class Staging:
    """Rows to import, in a temporary SQLite database. Used by one thread."""

    def __init__(self) -> None:
        # Without a name, SQLite uses a temporary file once the data outgrows its cache.
        self._rows = sqlite3.connect("", isolation_level=None)
        with _disk_errors():
            self._rows.executescript(
                f"PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA cache_size = -16384; {_TABLE}"
            )

    def add(self, rows: Iterable[tuple[int, MapEntry]]) -> int:
        """Add entries with their lines in the file, and return their number. Called once."""
        rest = iter(rows)
        count = 0
        with _disk_errors():
            self._rows.execute("BEGIN")
            while batch := [_values(line, entry) for line, entry in islice(rest, _BATCH_SIZE)]:
                self._rows.executemany("INSERT INTO staged VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", batch)
                count += len(batch)
            self._rows.execute("CREATE INDEX staged_key ON staged (key_hash)")
            self._rows.execute("CREATE INDEX staged_row ON staged (row_id)")
            self._rows.execute("COMMIT")
        return count

    def shared_keys(self) -> Shared:
        """Return lines that have the same key."""
        return self._shared("key_hash")

    def shared_row_ids(self) -> Shared:
        """Return lines that have the same row id."""
        return self._shared("row_id")

    def pages(self) -> Iterator[list[tuple[int, MapEntry]]]:
        """Yield all entries with their lines, page by page, in the order of their key hashes."""
        with _disk_errors():
            result = self._rows.execute("SELECT * FROM staged ORDER BY key_hash")
            while batch := result.fetchmany(_BATCH_SIZE):
                yield [_staged(row) for row in batch]

    def digest(self) -> str:
        """Return a digest of all entries. It does not depend on the order of the rows in the file."""
        digest = blake2b(digest_size=16)
        with _disk_errors():
            result = self._rows.execute(f"SELECT {_CONTENT} FROM staged ORDER BY key_hash, row_id")  # noqa: S608 - names of columns
            while batch := result.fetchmany(_BATCH_SIZE):
                digest.update(repr(batch).encode())
        return digest.hexdigest()

    def by_row_id(self, row_ids: Iterable[str]) -> dict[str, tuple[int, bytes]]:
        """Return the line and key hash of each of these row ids that is staged."""
        staged: dict[str, tuple[int, bytes]] = {}
        with _disk_errors():
            for batch in batched(row_ids):
                query = f"SELECT row_id, line, key_hash FROM staged WHERE row_id IN ({_places(batch)})"  # noqa: S608 - question marks alone
                staged.update((row_id, (line, key)) for row_id, line, key in self._rows.execute(query, batch))
        return staged

    def has(self, key_hashes: Sequence[bytes]) -> set[bytes]:
        """Return those of these key hashes that are staged."""
        staged: set[bytes] = set()
        with _disk_errors():
            for batch in batched(key_hashes):
                query = f"SELECT key_hash FROM staged WHERE key_hash IN ({_places(batch)})"  # noqa: S608 - as above
                staged.update(key for (key,) in self._rows.execute(query, batch))
        return staged

    def close(self) -> None:
        """Remove the file."""
        self._rows.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _shared(self, column: str) -> Shared:
        groups = (
            f"SELECT min(line) AS first, max(line) AS last FROM staged WHERE {column} IS NOT NULL "  # noqa: S608 - a column's name
            f"GROUP BY {column} HAVING count(*) > 1"
        )
        with _disk_errors():
            (count,) = self._rows.execute(f"SELECT count(*) FROM ({groups})").fetchone()  # noqa: S608 - as above
            lines = self._rows.execute(f"{groups} ORDER BY first LIMIT {_SHOWN}").fetchall() if count else []
        return Shared(count, lines)


def _values(line: int, entry: MapEntry) -> tuple[Any, ...]:
    return (
        *(entry.key_hash, line, entry.row_id, int(entry.state), entry.raw_hash, entry.rejected_hash),
        *(entry.missing_hash, entry.cell_hashes, entry.source_row),
        entry.requested.isoformat() if entry.requested else None,
    )


def _staged(row: tuple[Any, ...]) -> tuple[int, MapEntry]:
    key_hash, line, row_id, state, raw, rejected, missing, cells, source_row, requested = row
    moment = datetime.fromisoformat(requested) if requested else None
    entry = MapEntry(
        key_hash, RowState(state), row_id, raw, rejected, missing, cells, source_row=source_row, requested=moment
    )
    return line, entry


def _places(values: Sequence[Any]) -> str:
    return ", ".join("?" * len(values))


@contextlib.contextmanager
def _disk_errors() -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise MapFileError(
            f"The disk cannot take the rows of the file ({error}). Nothing was written. Set TMPDIR to a folder with "
            "room for the file."
        ) from None
