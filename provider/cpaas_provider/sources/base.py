"""The protocol of a source, and the rows that it yields."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, NamedTuple, Protocol


class Row(NamedTuple):
    """The values of one row, in the order of the requested columns; ``None`` for an empty cell.

    ``number`` is its position for messages: in a text file the line on which it begins, else its place, from 1.
    """

    number: int
    values: tuple[Any, ...]


NO_ABSENT_COLUMNS: AbstractSet[str] = frozenset()
"""``Table.absent`` of a source with fixed columns, which are known when it is opened."""

make_row: Callable[[tuple[int, tuple[Any, ...]]], Row] = partial(tuple.__new__, Row)
"""Makes a row from its two fields in half the time of ``Row(...)``. A source may have a million rows."""


class InvalidRow(NamedTuple):
    """A row that cannot be read, and the reason. The reason shows nothing of the row's content."""

    number: int
    reason: str


class SourceError(Exception):
    """A source cannot be read, or reading stopped at some row. The message is for the DAG author.

    It shows nothing of the source's content, and no credentials.

    :param permanent: whether a retry of the task would fail alike
    """

    def __init__(self, message: str, *, permanent: bool = False) -> None:
        super().__init__(message)
        self.permanent = permanent


def declares_missing_values(table: Table) -> bool:
    """Return whether the source itself defines which words stand for a missing value. All other words are values."""
    return getattr(table, "missing_values", None) is not None


class Table(Protocol):
    """An open source."""

    @property
    def columns(self) -> tuple[str, ...] | None:
        """Return the names of its columns, ``None`` if each row may have other columns."""

    @property
    def absent(self) -> AbstractSet[str]:
        """Return the requested columns that no row had, not even with an empty value, once all rows are read.

        It is empty for a source with fixed columns.
        """

    def rows(self, wanted: Sequence[str]) -> Iterator[Row | InvalidRow]:
        """Read all rows once, as a stream. The value of a requested column that does not exist is ``None``.

        :raises SourceError: when the source cannot be read further
        """


class Source(Protocol):
    """A source of rows. It may be opened again, for another reading."""

    def open(self) -> AbstractContextManager[Table]:
        """Open it for one reading.

        :raises SourceError: when it cannot be read
        """

    def __str__(self) -> str:
        """Return kind and place for a log, without credentials and without the text of a query."""
