"""Rows that are in memory: a list, a data frame, or the output of a task."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from cpaas_provider._common.values import plain
from cpaas_provider.sources import _validators
from cpaas_provider.sources.base import NO_ABSENT_COLUMNS, InvalidRow, Row, Table
from cpaas_provider.sources.tables import AmbiguousColumnError, RecordReader, column_places, read_sequences


class ListSource(_validators.Argument):
    """Items that are rows: mappings of column names to values, or bare numbers and addresses.

    A bare item is the value of the first requested column. A mapping without any value is no row. A bare item without
    a value is one, because an argument without a value is a mistake.

    :param items: anything that can be iterated more than once; as an operator's argument it is not rendered
    """

    def __init__(self, items: Iterable[Any]) -> None:
        if _validators.is_task_output(items):
            raise ValueError("ListSource cannot take a task's output. Give the output to the operator itself.")
        if isinstance(items, (str, bytes, Mapping)) or not isinstance(items, Iterable):
            raise ValueError(f"ListSource takes a list of rows, not a value of type {type(items).__name__}.")
        if isinstance(items, Iterator):
            raise ValueError(
                f"ListSource reads its rows more than once, which a {type(items).__name__} does not allow. Give a list."
            )
        self.items = items

    def __str__(self) -> str:
        # The length of other iterables may need a request to a server.
        return f"list of {len(self.items)} items" if isinstance(self.items, (list, tuple)) else "list of items"

    @contextmanager
    def open(self) -> Iterator[Table]:
        """Open it for one reading."""
        yield _ListTable(self.items)


class _ListTable:
    columns: tuple[str, ...] | None = None

    def __init__(self, items: Iterable[Any]) -> None:
        self._items = items
        self.absent: set[str] = set()

    def rows(self, wanted: Sequence[str]) -> Iterator[Row | InvalidRow]:
        """Read all items once."""
        others = (None,) * (len(wanted) - 1)
        reader = RecordReader(wanted)
        self.absent = reader.absent
        for number, item in enumerate(self._items, 1):
            if isinstance(item, Mapping):
                try:
                    values = reader.values(item)
                except AmbiguousColumnError as error:
                    yield InvalidRow(number, f"cannot be read: {error}")
                else:
                    if values is not None:
                        yield Row(number, values)
            elif isinstance(bare := plain(item), (str, int, float)) and not isinstance(bare, bool):
                yield Row(number, (bare, *others) if wanted else ())
            else:
                yield InvalidRow(number, f"is of type {type(item).__name__}, not a mapping, a number or a text")


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
            from cpaas_provider.sources.parquet import ArrowTable

            yield ArrowTable(self, sys.modules["pyarrow"], tuple(frame.column_names), self._batches)
        elif self._kind == "pandas":
            yield _FrameTable(self, tuple(map(str, frame.columns)), frame.itertuples(index=False, name=None))
        else:
            yield _FrameTable(self, tuple(frame.columns), frame.iter_rows())

    def _batches(self, names: list[str]) -> Iterator[Any]:
        from cpaas_provider.sources.parquet import ROWS_AT_ONCE

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
