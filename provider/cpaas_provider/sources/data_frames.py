"""Data frames of pandas and Polars, and tables of Arrow, as sources. None of these libraries is imported here."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from cpaas_provider.sources import _validators
from cpaas_provider.sources.base import NO_ABSENT_COLUMNS, InvalidRow, Row, Table
from cpaas_provider.sources.columns import column_places, read_sequences
from cpaas_provider.sources.parquet import ROWS_AT_ONCE, ArrowTable


class DataFrameSource(_validators.Argument):
    """The rows of a data frame of pandas or Polars, or of a table of Arrow.

    The index of a frame of pandas is no column: use ``reset_index()`` to have it read. ``as_source`` makes this source
    of a data frame, so an operator can take the frame itself.

    :param frame: the data frame
    """

    def __init__(self, frame: Any) -> None:
        kind = _validators.data_frame_kind(frame)
        if kind is None:
            raise ValueError(f"DataFrameSource takes a data frame, not a value of type {type(frame).__name__}.")
        self.frame = frame
        self._kind = kind

    def __eq__(self, other: object) -> bool:
        # Data frames are compared cell by cell.
        return type(other) is type(self) and self.frame is other.frame

    __hash__ = None

    def __str__(self) -> str:
        return f"{self._kind} data of {len(self.frame)} rows"

    @contextmanager
    def open(self) -> Iterator[Table]:
        """Open it for one reading."""
        frame = self.frame
        if self._kind == "Arrow":
            yield ArrowTable(self, importlib.import_module("pyarrow"), tuple(frame.column_names), self._batches)
        elif self._kind == "pandas":
            yield _FrameTable(self, tuple(map(str, frame.columns)), frame.itertuples(index=False, name=None))
        else:
            yield _FrameTable(self, tuple(frame.columns), frame.iter_rows())

    def _batches(self, names: list[str]) -> Iterator[Any]:
        places = [place for place, name in enumerate(self.frame.column_names) if name in names]
        return iter(self.frame.select(places).to_batches(max_chunksize=ROWS_AT_ONCE))


class _FrameTable:
    absent = NO_ABSENT_COLUMNS

    def __init__(self, source: DataFrameSource, columns: tuple[str, ...], records: Iterator[Sequence[Any]]) -> None:
        self.columns = columns
        self._source = source
        self._records = records

    def rows(self, wanted: Sequence[str]) -> Iterator[Row | InvalidRow]:
        """Read all rows once."""
        yield from read_sequences(self._records, column_places(self._source, self.columns, wanted))
