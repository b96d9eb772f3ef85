"""The spool: what a sync remembers of its source, on the worker's disk, so that memory does not grow with the list."""

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
_AT_ONCE = 500


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

    :param number: where the source has the row; ``None`` for one that is gone from it
    :param key: the row's key in plain; ``None`` where only its hash is known
    """

    number: int | None
    key: str | None
    outcome: Outcome
    row_id: str | None = None
    columns: str | None = None
    reason: str | None = None


class Work(NamedTuple):
    """A row that goes into the spool; see ``WorkItem``.

    :param action: what was to be done about it when the source was read
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
    :param number: where the source has it; ``None`` for one that is gone from the source
    :param name: its key in plain
    :param raw_hash: of its values in the source; empty for one that is gone
    :param cells: its cells by column id, as they go on the wire
    :param action: what was to be done about it when the source was read
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
        """Tell whether the row is gone from the source."""
        return self.number is None


class Spool:
    """A file of SQLite in a folder that goes with it. Used by one thread at a time.

    :param folder: where to put it; ``None`` for the system's folder for temporary files
    :raises SpoolError: when the disk cannot take it
    """

    def __init__(self, folder: str | None = None) -> None:
        with _in_words():
            if folder is not None:
                Path(folder).mkdir(parents=True, exist_ok=True)
            self._folder = tempfile.TemporaryDirectory(prefix="cpaas-contacts-", dir=folder)
            self._rows = sqlite3.connect(Path(self._folder.name) / "rows.db", check_same_thread=False)
            self._rows.executescript(
                f"PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA cache_size = -65536; {_TABLES}"
            )

    def add_seen(self, rows: Sequence[tuple[bytes, int]]) -> dict[bytes, int]:
        """Remember keys of the source, and return the row that had the key first for those that were there already.

        :param rows: key hashes and row numbers; no key twice
        """
        with _in_words():
            added = self._rows.executemany("INSERT OR IGNORE INTO seen VALUES (?, ?)", rows).rowcount
            if added == len(rows):
                return {}
            numbers = dict(rows)
            first: dict[bytes, int] = {}
            for some in _cut(list(numbers)):
                query = f"SELECT key, number FROM seen WHERE key IN ({_places(some)})"  # noqa: S608 - question marks
                first.update((key, number) for key, number in self._rows.execute(query, some) if numbers[key] != number)
            return first

    def unseen(self, key_hashes: Sequence[bytes]) -> list[bytes]:
        """Return those of some keys that the source does not have, in their order."""
        known: set[bytes] = set()
        with _in_words():
            for some in _cut(key_hashes):
                query = f"SELECT key FROM seen WHERE key IN ({_places(some)})"  # noqa: S608 - question marks alone
                known.update(key for (key,) in self._rows.execute(query, some))
        return [key_hash for key_hash in key_hashes if key_hash not in known]

    def add_work(self, rows: Iterable[Work]) -> None:
        """Add rows that may differ from the list, each key once."""
        values = [
            (one.key_hash, one.number, one.name, int(one.number is None), _packed(one.raw_hash, one.cells), one.action)
            for one in rows
        ]
        with _in_words():
            self._rows.executemany(
                "INSERT INTO work (key, number, name, kind, payload, action) VALUES (?, ?, ?, ?, ?, ?)", values
            )

    def remove_work(self, key_hash: bytes) -> str | None:
        """Take a row back, and return what was to be done about it; ``None`` where the spool does not have it."""
        with _in_words():
            found = self._rows.execute("SELECT action FROM work WHERE key = ?", [key_hash]).fetchone()
            self._rows.execute("DELETE FROM work WHERE key = ?", [key_hash])
        return None if found is None else found[0]

    def work(self, after: tuple[int, int], count: int) -> list[WorkItem]:
        """Return the next rows: first those of the source in its order, then those that are gone from it.

        :param after: kind and place of the last one that was returned; ``(-1, 0)`` to begin
        """
        query = (
            "SELECT seq, key, number, name, payload, action FROM work WHERE (kind = ? AND seq > ?) OR kind > ? "
            "ORDER BY kind, seq LIMIT ?"
        )
        items: list[WorkItem] = []
        with _in_words():
            for seq, key_hash, number, name, payload, action in self._rows.execute(query, [*after, after[0], count]):
                # The file is this process's own.
                raw_hash, cells = pickle.loads(payload)  # noqa: S301 - as above
                items.append(WorkItem(seq, key_hash, number, name, raw_hash, cells, action))
        return items

    def add_outcomes(self, lines: Iterable[OutcomeLine]) -> None:
        """Add lines of the results file."""
        with _in_words():
            self._rows.executemany(
                "INSERT INTO outcomes (number, name, outcome, row_id, columns, reason) VALUES (?, ?, ?, ?, ?, ?)",
                ([_whole(value) for value in line] for line in lines),
            )

    def outcomes(self) -> Iterator[OutcomeLine]:
        """Yield the lines of the results file: rows of the source in its order, then those that are gone from it."""
        query = (
            "SELECT number, name, outcome, row_id, columns, reason FROM outcomes ORDER BY number IS NULL, number, seq"
        )
        with _in_words():
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


def _whole(value: Any) -> Any:
    """Return text without half characters, which a service may send and no file takes."""
    if not isinstance(value, str) or value.isascii():
        return value
    return value.encode("utf-8", "replace").decode()


def _packed(raw_hash: bytes, cells: Mapping[str, Any]) -> bytes:
    return pickle.dumps((raw_hash, dict(cells)), pickle.HIGHEST_PROTOCOL)


def _cut(values: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    for start in range(0, len(values), _AT_ONCE):
        yield values[start : start + _AT_ONCE]


def _places(values: Sequence[bytes]) -> str:
    return ", ".join("?" * len(values))


@contextlib.contextmanager
def _in_words() -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise SpoolError(
            f"The worker's disk cannot take the rows ({reason}). Give spool_path a folder with room for twice the "
            "source."
        ) from None
