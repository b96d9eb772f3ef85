"""Rows in a SQLite database on the worker's disk, so that memory does not grow with a list."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Self

from cpaas_provider.contacts.errors import ContactsError
from cpaas_provider.database.bulk import batched


class DiskRows:
    """The database of one run. Used by one thread at a time, as a context manager.

    :param path: its file; if empty, SQLite uses a temporary file once the data outgrows its cache
    :param tables: the statements that create its tables
    :param cache_kib: the size of its cache
    """

    def __init__(self, path: str | Path, tables: str, cache_kib: int) -> None:
        with self._disk_errors():
            self._rows = sqlite3.connect(path, check_same_thread=False)
            self._rows.executescript(
                f"PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA cache_size = -{cache_kib}; {tables}"
            )

    def close(self) -> None:
        """Remove the rows."""
        self._rows.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _disk_error(self, reason: str) -> ContactsError:
        """Return the error of a database that cannot be written or read."""
        raise NotImplementedError

    @contextlib.contextmanager
    def _disk_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise self._disk_error(str(error)) from None

    def _select_in(self, query: str, values: Iterable[Any]) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a query that ends with ``IN``, for all values."""
        for batch in batched(values):
            yield from self._rows.execute(f"{query} ({', '.join('?' * len(batch))})", batch)
