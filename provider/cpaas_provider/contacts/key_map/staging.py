"""Stores the rows of an imported file in a temporary file, so that memory does not grow with the file.

The rows are hashes and row ids. They are read in the order of their key hashes, which databases write fastest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from hashlib import blake2b
from itertools import islice
from typing import Any, NamedTuple

from cpaas_provider.contacts.disk_rows import DiskRows
from cpaas_provider.contacts.errors import MapFileError
from cpaas_provider.contacts.key_map.entries import MapEntry, RowState

_TABLE = """
CREATE TABLE staged (
  key_hash BLOB NOT NULL, line INTEGER NOT NULL, row_id TEXT, state INTEGER NOT NULL, raw_hash BLOB,
  rejected_hash BLOB, missing_hash BLOB, cell_hashes BLOB, source_row INTEGER, requested TEXT,
  rejection TEXT
)
"""
_CONTENT = (
    "key_hash, row_id, state, raw_hash, rejected_hash, missing_hash, cell_hashes, source_row, requested, rejection"
)
_BATCH_SIZE = 2_000
_SHOWN = 10


class Shared(NamedTuple):
    """Lines of a file that have the same key or the same row id.

    :param number: the number of keys or row ids that are on several lines
    :param lines: the first and the last line of some of them
    """

    number: int
    lines: list[tuple[int, int]]


class StagedEntry(NamedTuple):
    """An entry of a file.

    :param rejection: what the service said of the row, as ``rejection_to_json``; ``None`` if it did not reject it
    """

    line: int
    entry: MapEntry
    rejection: str | None = None


class Staging(DiskRows):
    """Rows to import."""

    def __init__(self) -> None:
        super().__init__(None, _TABLE, cache_kib=16_384)

    def add(self, rows: Iterable[StagedEntry]) -> int:
        """Add entries, and return their number. Called once."""
        rest = iter(rows)
        count = 0
        with self._disk_errors():
            while batch := [_values(row) for row in islice(rest, _BATCH_SIZE)]:
                self._rows.executemany("INSERT INTO staged VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", batch)
                count += len(batch)
            self._rows.execute("CREATE INDEX staged_key ON staged (key_hash)")
            self._rows.execute("CREATE INDEX staged_row ON staged (row_id)")
        return count

    def shared_keys(self) -> Shared:
        """Return lines that have the same key."""
        return self._shared("key_hash")

    def shared_row_ids(self) -> Shared:
        """Return lines that have the same row id."""
        return self._shared("row_id")

    def pages(self) -> Iterator[list[StagedEntry]]:
        """Yield all entries, page by page, in the order of their key hashes."""
        with self._disk_errors():
            result = self._rows.execute("SELECT * FROM staged ORDER BY key_hash")
            while batch := result.fetchmany(_BATCH_SIZE):
                yield [_staged(row) for row in batch]

    def digest(self) -> str:
        """Return a digest of all entries. It does not depend on the order of the rows in the file."""
        digest = blake2b(digest_size=16)
        with self._disk_errors():
            result = self._rows.execute(f"SELECT {_CONTENT} FROM staged ORDER BY key_hash, row_id")  # noqa: S608 - names of columns
            while batch := result.fetchmany(_BATCH_SIZE):
                digest.update(repr(batch).encode())
        return digest.hexdigest()

    def by_row_id(self, row_ids: Iterable[str]) -> dict[str, tuple[int, bytes]]:
        """Return the line and key hash of each of these row ids that is staged."""
        query = "SELECT row_id, line, key_hash FROM staged WHERE row_id IN"
        with self._disk_errors():
            return {row_id: (line, key) for row_id, line, key in self._select_in(query, row_ids)}

    def has(self, key_hashes: Iterable[bytes]) -> set[bytes]:
        """Return those of these key hashes that are staged."""
        with self._disk_errors():
            return {key for (key,) in self._select_in("SELECT key_hash FROM staged WHERE key_hash IN", key_hashes)}

    def _disk_error(self, reason: str) -> MapFileError:
        return MapFileError(
            f"The disk cannot take the rows of the file ({reason}). Nothing was written. Set TMPDIR to a folder with "
            "room for the file."
        )

    def _shared(self, column: str) -> Shared:
        groups = (
            f"SELECT min(line) AS first, max(line) AS last FROM staged WHERE {column} IS NOT NULL "  # noqa: S608 - a column's name
            f"GROUP BY {column} HAVING count(*) > 1"
        )
        with self._disk_errors():
            (count,) = self._rows.execute(f"SELECT count(*) FROM ({groups})").fetchone()  # noqa: S608 - as above
            lines = self._rows.execute(f"{groups} ORDER BY first LIMIT {_SHOWN}").fetchall() if count else []
        return Shared(count, lines)


def _values(row: StagedEntry) -> tuple[Any, ...]:
    line, entry, rejection = row
    return (
        *(entry.key_hash, line, entry.row_id, int(entry.state), entry.raw_hash, entry.rejected_hash),
        *(entry.missing_hash, entry.cell_hashes, entry.source_row),
        entry.requested.isoformat() if entry.requested else None,
        rejection,
    )


def _staged(row: tuple[Any, ...]) -> StagedEntry:
    key_hash, line, row_id, state, raw, rejected, missing, cells, source_row, requested, rejection = row
    moment = datetime.fromisoformat(requested) if requested else None
    entry = MapEntry(
        key_hash, RowState(state), row_id, raw, rejected, missing, cells, source_row=source_row, requested=moment
    )
    return StagedEntry(line, entry, rejection)
