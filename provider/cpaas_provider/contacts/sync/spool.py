"""The spool: the keys and rows of a sync in a file on the worker's disk, so that memory does not grow with the list."""

from __future__ import annotations

import contextlib
import pickle
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from cpaas_provider.contacts.errors import SpoolError

_TABLES = """
CREATE TABLE seen (key BLOB PRIMARY KEY, number INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE work (
  seq INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE, number INTEGER, name TEXT, kind INTEGER NOT NULL, payload BLOB,
  action TEXT NOT NULL
);
CREATE TABLE outcomes (
  seq INTEGER PRIMARY KEY, number INTEGER, name TEXT, outcome TEXT NOT NULL, row_id TEXT, columns TEXT, reason TEXT
);
"""
_BATCH_SIZE = 500


class Outcome(StrEnum):
    """The outcome of one row, as in the results file."""

    CREATED = "created"
    UPDATED = "updated"
    DELETED = "deleted"
    REJECTED = "rejected"
    INVALID = "invalid_row"
    UNKNOWN = "unknown"
    NOT_SENT = "not_sent"


class OutcomeLine(NamedTuple):
    """One line of the results file.

    :param number: the number of the row in the source; ``None`` if it is missing there
    :param key: the row's key in plain; ``None`` if only its hash is known
    """

    number: int | None
    key: str | None
    outcome: Outcome
    row_id: str | None = None
    columns: str | None = None
    reason: str | None = None


class Work(NamedTuple):
    """A row to add to the spool; see ``WorkItem``.

    :param action: the action that was decided when the source was read
    """

    action: str
    key_hash: bytes
    number: int | None
    name: str | None
    raw_hash: bytes
    cells: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class WorkItem:
    """A row that may differ from the list.

    :param seq: its place in the order of work
    :param number: its number in the source; ``None`` if it is missing there
    :param name: its key in plain
    :param raw_hash: the hash of its values in the source; empty if it is missing there
    :param cells: its cells by column id, as on the wire
    :param action: the action that was decided when the source was read
    """

    seq: int
    key_hash: bytes
    number: int | None
    name: str | None
    raw_hash: bytes
    cells: Mapping[str, Any]
    action: str = ""

    @property
    def is_missing(self) -> bool:
        """Whether the row is missing from the source."""
        return self.number is None


class Spool:
    """A SQLite file in a temporary folder of its own. Used by one thread at a time.

    :param folder: the parent folder; ``None`` for the system's folder for temporary files
    :raises SpoolError: when the file cannot be written
    """

    def __init__(self, folder: str | None = None) -> None:
        with _disk_errors():
            if folder is not None:
                Path(folder).mkdir(parents=True, exist_ok=True)
            self._folder = tempfile.TemporaryDirectory(prefix="cpaas-contacts-", dir=folder)
            self._rows = sqlite3.connect(Path(self._folder.name) / "rows.db", check_same_thread=False)
            self._rows.executescript(
                f"PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA cache_size = -65536; {_TABLES}"
            )

    def add_seen(self, rows: Sequence[tuple[bytes, int]]) -> dict[bytes, int]:
        """Store keys of the source. Return, for each key that was stored already, the number of its first row.

        :param rows: key hashes and row numbers; no key twice
        """
        with _disk_errors():
            added = self._rows.executemany("INSERT OR IGNORE INTO seen VALUES (?, ?)", rows).rowcount
            if added == len(rows):
                return {}
            numbers = dict(rows)
            first: dict[bytes, int] = {}
            for batch in _batched(list(numbers)):
                query = f"SELECT key, number FROM seen WHERE key IN ({_places(batch)})"  # noqa: S608 - question marks
                stored = self._rows.execute(query, batch)
                first.update((key, number) for key, number in stored if numbers[key] != number)
            return first

    def unseen(self, key_hashes: Sequence[bytes]) -> list[bytes]:
        """Return those of these keys that the source does not have, in the given order."""
        known: set[bytes] = set()
        with _disk_errors():
            for batch in _batched(key_hashes):
                query = f"SELECT key FROM seen WHERE key IN ({_places(batch)})"  # noqa: S608 - question marks alone
                known.update(key for (key,) in self._rows.execute(query, batch))
        return [key_hash for key_hash in key_hashes if key_hash not in known]

    def add_work(self, rows: Iterable[Work]) -> None:
        """Add rows that may differ from the list, each key once."""
        values = [
            (row.key_hash, row.number, row.name, int(row.number is None), _packed(row.raw_hash, row.cells), row.action)
            for row in rows
        ]
        with _disk_errors():
            self._rows.executemany(
                "INSERT INTO work (key, number, name, kind, payload, action) VALUES (?, ?, ?, ?, ?, ?)", values
            )

    def remove_work(self, key_hash: bytes) -> str | None:
        """Remove a row, and return its action; ``None`` if the spool does not have it."""
        with _disk_errors():
            found = self._rows.execute("SELECT action FROM work WHERE key = ?", [key_hash]).fetchone()
            self._rows.execute("DELETE FROM work WHERE key = ?", [key_hash])
        return None if found is None else found[0]

    def work(self, after: tuple[int, int], count: int) -> list[WorkItem]:
        """Return the next rows: first those of the source in its order, then those that are missing from it.

        :param after: ``is_missing`` and ``seq`` of the last row that was returned; ``(-1, 0)`` to start
        """
        query = (
            "SELECT seq, key, number, name, payload, action FROM work WHERE (kind = ? AND seq > ?) OR kind > ? "
            "ORDER BY kind, seq LIMIT ?"
        )
        items: list[WorkItem] = []
        with _disk_errors():
            for seq, key_hash, number, name, payload, action in self._rows.execute(query, [*after, after[0], count]):
                # Safe to unpickle: this process wrote the file.
                raw_hash, cells = pickle.loads(payload)  # noqa: S301 - as above
                items.append(WorkItem(seq, key_hash, number, name, raw_hash, cells, action))
        return items

    def add_outcomes(self, lines: Iterable[OutcomeLine]) -> None:
        """Add lines of the results file."""
        with _disk_errors():
            self._rows.executemany(
                "INSERT INTO outcomes (number, name, outcome, row_id, columns, reason) VALUES (?, ?, ?, ?, ?, ?)",
                ([_without_surrogates(value) for value in line] for line in lines),
            )

    def outcomes(self) -> Iterator[OutcomeLine]:
        """Yield the lines of the results file: rows of the source in its order, then those that are missing from it."""
        query = (
            "SELECT number, name, outcome, row_id, columns, reason FROM outcomes ORDER BY number IS NULL, number, seq"
        )
        with _disk_errors():
            for number, name, outcome, *rest in self._rows.execute(query):
                yield OutcomeLine(number, name, Outcome(outcome), *rest)

    def close(self) -> None:
        """Remove the file."""
        self._rows.close()
        self._folder.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _without_surrogates(value: Any) -> Any:
    """Return text without lone surrogates, which a service may send and which cannot be written to a file."""
    if not isinstance(value, str) or value.isascii():
        return value
    return value.encode("utf-8", "replace").decode()


def _packed(raw_hash: bytes, cells: Mapping[str, Any]) -> bytes:
    return pickle.dumps((raw_hash, dict(cells)), pickle.HIGHEST_PROTOCOL)


def _batched(values: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    for start in range(0, len(values), _BATCH_SIZE):
        yield values[start : start + _BATCH_SIZE]


def _places(values: Sequence[bytes]) -> str:
    return ", ".join("?" * len(values))


@contextlib.contextmanager
def _disk_errors() -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise SpoolError(
            f"The worker's disk cannot take the rows ({reason}). Give spool_path a folder with room for twice the "
            "source."
        ) from None
