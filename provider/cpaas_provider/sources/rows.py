"""What a source is and what comes out of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, NamedTuple, Protocol


class Row(NamedTuple):
    """What one row holds, in the order in which columns were asked for; ``None`` where it holds nothing.

    ``number`` is where a person finds it: the line on which it begins in a text file, else its place counted from 1.
    """

    number: int
    values: tuple[Any, ...]


make_row: Callable[[tuple[int, tuple[Any, ...]]], Row] = partial(tuple.__new__, Row)
"""Makes a row out of its two fields in half the time, which is what a million of them are worth."""


class InvalidRow(NamedTuple):
    """A row that cannot be read, and why, in words that show nothing of what it holds."""

    number: int
    reason: str


class SourceError(Exception):
    """A source cannot be read as a whole, or not on from some row, in words for a DAG author.

    It shows nothing of what the source holds, and no credentials.
    """


class Table(Protocol):
    """A source that was opened.

    ``columns`` are its columns' names, ``None`` where each row has its own.
    """

    columns: tuple[str, ...] | None

    def rows(self, wanted: Sequence[str]) -> Iterator[Row | InvalidRow]:
        """Read all rows once, as a stream; a wanted column that is not there gives ``None``.

        :raises SourceError: when the source cannot be read on
        """


class Source(Protocol):
    """Where rows come from. It may be opened again, for another reading."""

    def open(self) -> AbstractContextManager[Table]:
        """Open it for one reading.

        :raises SourceError: when it cannot be read
        """

    def __str__(self) -> str:
        """Return kind and place for a log, without credentials and without what a query says."""
