"""Rows in a temporary database on this machine's disk, so that memory does not grow with a list."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterable, Iterator
from typing import Any, Self

from cpaas_provider._common.local_files import open_unnamed_database
from cpaas_provider.contacts.errors import ContactsError
from cpaas_provider.database.bulk import batched


class DiskRows:
    """The database of one run. Used by one thread at a time, as a context manager.

    :param folder: as for ``open_unnamed_database``
    :param tables: the statements that create its tables
    :param cache_kib: the size of its cache
    """

    def __init__(self, folder: str | None, tables: str, cache_kib: int) -> None:
        with self._disk_errors():
            self._rows = open_unnamed_database(folder, cache_kib)
            self._rows.executescript(tables)

    def close(self) -> None:
        """Close the database, which frees its disk space."""
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
        except (OSError, sqlite3.Error) as error:
            raise self._disk_error(getattr(error, "strerror", None) or str(error)) from None

    def _select_in(self, query: str, values: Iterable[Any]) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a query that ends with ``IN``, for all values."""
        for batch in batched(values):
            yield from self._rows.execute(f"{query} ({', '.join('?' * len(batch))})", batch)
