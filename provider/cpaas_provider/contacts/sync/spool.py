"""The spool: the keys and rows of a sync in a file on the worker's disk, so that memory does not grow with the list."""

from __future__ import annotations

import pickle
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from msgspec import Struct

from cpaas_provider.contacts.disk_rows import DiskRows
from cpaas_provider.contacts.errors import SpoolError

KEY_SEPARATOR = " / "
"""What is between the columns of a key in plain."""
_TABLES = """
CREATE TABLE seen (key BLOB PRIMARY KEY, number INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE work (
  seq INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE, number INTEGER, name TEXT, payload BLOB, action TEXT NOT NULL
);
CREATE TABLE outcomes (
  seq INTEGER PRIMARY KEY, row TEXT UNIQUE, number INTEGER, name TEXT, outcome TEXT NOT NULL, row_id TEXT, columns TEXT,
  reason TEXT
);
"""
_ADD_OUTCOME = """
INSERT INTO outcomes (row, number, name, outcome, row_id, columns, reason) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (row) DO UPDATE SET
  name = excluded.name,
  outcome = CASE WHEN outcome = 'created' AND excluded.outcome = 'updated' THEN outcome ELSE excluded.outcome END,
  row_id = excluded.row_id,
  columns = excluded.columns,
  reason = CASE
    WHEN outcome <> 'invalid_cell' OR excluded.outcome = 'invalid_row' THEN excluded.reason
    ELSE coalesce(excluded.reason || '; ', '') || reason
  END
"""


class RowOutcome(StrEnum):
    """The outcome of one row, as in the results file."""

    CREATED = "created"
    UPDATED = "updated"
    DELETED = "deleted"
    REJECTED = "rejected"
    INVALID = "invalid_row"
    INVALID_CELL = "invalid_cell"
    UNKNOWN = "unknown"
    NOT_SENT = "not_sent"
    TO_CREATE = "to_create"
    TO_UPDATE = "to_update"
    TO_DELETE = "to_delete"


class OutcomeLine(NamedTuple):
    """One line of the results file.

    :param number: the number of the row in the source; ``None`` if it is missing there
    :param key: the row's key in plain; ``None`` if only its hash is known
    """

    number: int | None
    key: str | None
    outcome: RowOutcome
    row_id: str | None = None
    columns: str | None = None
    reason: str | None = None


class WorkItem(Struct, frozen=True):
    """A row that may differ from the list.

    :param number: its number in the source; ``None`` if it is missing there
    :param name: its key in plain
    :param raw_hash: the hash of its values in the source; empty if it is missing there
    :param cells: its cells by column id, as on the wire
    :param is_partial: whether ``cells`` lacks cells of the source that cannot be used
    :param seq: its place in the spool
    :param action: the action that was decided when the source was read
    """

    key_hash: bytes
    number: int | None
    name: str | None
    raw_hash: bytes
    cells: Mapping[str, Any]
    is_partial: bool = False
    seq: int = 0
    action: str = ""

    @property
    def is_missing(self) -> bool:
        """Whether the row is missing from the source."""
        return self.number is None

    @property
    def synced_hash(self) -> bytes | None:
        """The raw hash of the row once the list has its cells. A partial row has none, so that each run names it."""
        return None if self.is_missing or self.is_partial else self.raw_hash


_CACHE_KIB, _CACHE_KIB_WHILE_SENDING = 65_536, 4_096


class Spool(DiskRows):
    """A temporary database without a name.

    :param folder: a folder on a local disk; ``None`` for the system's folder for temporary files
    :raises SpoolError: when the rows cannot be stored there
    """

    def __init__(self, folder: str | None = None) -> None:
        super().__init__(folder, _TABLES, cache_kib=_CACHE_KIB)

    def keep_less_in_memory(self) -> None:
        """Shrink the cache, once all rows are stored: they are sent in the order in which they lie on the disk."""
        with self._disk_errors():
            self._rows.commit()  # or what it holds stays in memory
            self._rows.execute(f"PRAGMA cache_size = -{_CACHE_KIB_WHILE_SENDING}")
            self._rows.execute("PRAGMA shrink_memory")

    def add_seen(self, rows: Sequence[tuple[bytes, int]]) -> dict[bytes, int]:
        """Store keys of the source. Return, for each key that was stored already, the number of its first row.

        :param rows: key hashes and row numbers; no key twice
        """
        with self._disk_errors():
            added = self._rows.executemany("INSERT OR IGNORE INTO seen VALUES (?, ?)", rows).rowcount
            if added == len(rows):
                return {}
            numbers = dict(rows)
            stored = self._select_in("SELECT key, number FROM seen WHERE key IN", numbers)
            return {key: number for key, number in stored if numbers[key] != number}

    def number_of(self, key_hash: bytes) -> int | None:
        """Return the number of the row of a key, ``None`` if the source does not have it."""
        with self._disk_errors():
            row = self._rows.execute("SELECT number FROM seen WHERE key = ?", [key_hash]).fetchone()
        return None if row is None else int(row[0])

    def unseen(self, key_hashes: Iterable[bytes]) -> set[bytes]:
        """Return those of these keys that the source does not have."""
        unseen = set(key_hashes)
        with self._disk_errors():
            return unseen.difference(key for (key,) in self._select_in("SELECT key FROM seen WHERE key IN", unseen))

    def add_work(self, rows: Iterable[tuple[WorkItem, str]]) -> None:
        """Add rows that may differ from the list, each key once, with the actions that were decided."""
        values = []
        for item, action in rows:
            payload = pickle.dumps((item.raw_hash, dict(item.cells), item.is_partial), pickle.HIGHEST_PROTOCOL)
            values.append((item.key_hash, item.number, item.name, payload, action))
        with self._disk_errors():
            self._rows.executemany(
                "INSERT INTO work (key, number, name, payload, action) VALUES (?, ?, ?, ?, ?)", values
            )

    def remove_work(self, key_hash: bytes) -> tuple[str, bool] | None:
        """Remove a row.

        :return: its action, and whether it is partial; ``None`` if the spool does not have it
        """
        with self._disk_errors():
            found = self._rows.execute("SELECT action, payload FROM work WHERE key = ?", [key_hash]).fetchone()
            self._rows.execute("DELETE FROM work WHERE key = ?", [key_hash])
        # Safe to unpickle: this process wrote the file.
        return None if found is None else (found[0], pickle.loads(found[1])[2])  # noqa: S301 - as above

    def work(
        self, after: int, count: int, *, until: int | None = None, actions: Collection[str] = ()
    ) -> list[WorkItem]:
        """Return the next rows, in the order in which they were added.

        :param after: ``seq`` of the last row that was returned; 0 to start
        :param until: the last ``seq`` to return
        :param actions: only rows for which one of these actions was decided
        """
        until = (1 << 62) if until is None else until
        chosen = f" AND action IN ({', '.join('?' * len(actions))})" if actions else ""
        query = (
            "SELECT key, number, name, payload, seq, action FROM work "  # noqa: S608 - only question marks are added
            f"WHERE seq > ? AND seq <= ?{chosen} ORDER BY seq LIMIT ?"
        )
        items: list[WorkItem] = []
        with self._disk_errors():
            for key_hash, number, name, payload, seq, action in self._rows.execute(
                query, [after, until, *actions, count]
            ):
                # Safe to unpickle: this process wrote the file.
                raw_hash, cells, is_partial = pickle.loads(payload)  # noqa: S301 - as above
                items.append(WorkItem(key_hash, number, name, raw_hash, cells, is_partial, seq, action))
        return items

    def last_seq(self) -> int:
        """Return the ``seq`` of the row that was added last, 0 if there is none."""
        with self._disk_errors():
            return int(self._rows.execute("SELECT coalesce(max(seq), 0) FROM work").fetchone()[0])

    def add_outcome(self, line: OutcomeLine, *, is_of_source: bool = True) -> None:
        """Add a line of the results file, in place of the earlier line of its row.

        A row that an earlier try created stays created, and the reason why cells cannot be used is kept.

        :param is_of_source: whether the line's number is that of a row of this source, not of an earlier one
        """
        row = None if line.row_id is None else f"id {line.row_id}"
        if line.number is not None:
            row = f"row {line.number}" if is_of_source else None
        with self._disk_errors():
            self._rows.execute(_ADD_OUTCOME, [_without_surrogates(value) for value in (row, *line)])

    def outcomes(self) -> Iterator[OutcomeLine]:
        """Yield the lines of the results file: rows of the source in its order, then those that are missing from it."""
        query = (
            "SELECT number, name, outcome, row_id, columns, reason FROM outcomes ORDER BY number IS NULL, number, seq"
        )
        with self._disk_errors():
            for number, name, outcome, *rest in self._rows.execute(query):
                yield OutcomeLine(number, name, RowOutcome(outcome), *rest)

    def _disk_error(self, reason: str) -> SpoolError:
        return SpoolError(
            f"The worker's disk cannot take the rows ({reason}). Give spool_path a folder with room for twice the "
            "source."
        )


def _without_surrogates(value: Any) -> Any:
    """Return text without lone surrogates, which a service may send and which cannot be written to a file."""
    if not isinstance(value, str) or value.isascii():
        return value
    return value.encode("utf-8", "replace").decode()
