"""Parquet files."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from cpaas_provider._common.extras import describe_install
from cpaas_provider._common.values import is_blank
from cpaas_provider.sources.base import NO_ABSENT_COLUMNS, InvalidRow, Row, SourceError, Table, make_row
from cpaas_provider.sources.files import FileSource, read_error
from cpaas_provider.sources.tables import all_have_content, column_places, has_content

ROWS_AT_ONCE = 10_000
_BUFFER = 1 << 18
"""Bytes read ahead for each column. Otherwise Arrow reads a whole row group, which may be the whole file."""


class ParquetSource(FileSource):
    """A Parquet file. Only the columns that the campaign needs are read.

    Needs the extra ``parquet``.

    :param path: a path or URL, as text, ``Path`` or ``ObjectStoragePath`` (templated)
    :param conn_id: the Airflow connection of its storage; default: the connection in the path, or that of the storage
        (templated)
    """

    kind = "Parquet file"

    @contextmanager
    def open(self) -> Iterator[Table]:
        """Open it for one reading."""
        try:
            # By import_module, because pyarrow is optional and has no type hints.
            arrow, parquet = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
        except ImportError:
            raise SourceError(f"{self} needs pyarrow where the task runs: {describe_install('parquet')}.") from None
        with self.open_raw() as stored:
            try:
                file = parquet.ParquetFile(stored, buffer_size=_BUFFER, pre_buffer=False)
                columns = tuple(file.schema_arrow.names)
            except Exception as error:  # noqa: BLE001 - what Arrow or a storage raises may quote either
                raise read_error(self, error) from None
            yield ArrowTable(self, arrow, columns, partial(self._batches, file))

    def _batches(self, file: Any, names: list[str]) -> Iterator[Any]:
        try:
            yield from file.iter_batches(ROWS_AT_ONCE, columns=names, use_threads=False)
        except Exception as error:  # noqa: BLE001 - as above
            raise read_error(self, error) from None


class ArrowTable:
    """The rows of record batches of Arrow.

    :param arrow: the module ``pyarrow``
    :param batches: returns all batches, with the columns of these names
    """

    absent = NO_ABSENT_COLUMNS

    def __init__(
        self, source: object, arrow: Any, columns: tuple[str, ...], batches: Callable[[list[str]], Iterator[Any]]
    ) -> None:
        self.columns = columns
        self._source = source
        self._arrow = arrow
        self._batches = batches

    def rows(self, wanted: Sequence[str]) -> Iterator[Row | InvalidRow]:
        """Read the wanted columns once."""
        places = column_places(self._source, self.columns, wanted)
        read = [name for place, name in enumerate(self.columns) if place in places]
        others = _OtherColumns(self._batches, [name for name in self.columns if name not in read])
        number = 0
        for batch in self._batches(read):
            unreadable: set[int] = set()
            found = {name: self._values(batch.column(name), unreadable) for name in read}
            is_full = any(map(all_have_content, found.values()))
            nothing = [None] * batch.num_rows
            columns = [nothing if place is None else found[self.columns[place]] for place in places]
            for place, values in enumerate(zip(*columns, strict=True) if wanted else [()] * batch.num_rows):
                number += 1
                if place in unreadable:
                    yield InvalidRow(number, "contains a value that is not UTF-8 text, or is out of Python's range")
                elif is_full or has_content(values) or others.have_content(number):
                    yield make_row((number, values))

    def _values(self, column: Any, unreadable: set[int]) -> list[Any]:
        """Return a column's values as Python objects, with times in microseconds whether pandas is installed or not.

        :param unreadable: gets the places of values that cannot be read; they are returned as ``None``
        """
        if self._arrow.types.is_timestamp(column.type) and column.type.unit == "ns":
            column = column.cast(self._arrow.timestamp("us", column.type.tz), safe=False)
        elif self._arrow.types.is_time64(column.type) and column.type.unit == "ns":
            column = column.cast(self._arrow.time64("us"), safe=False)
        try:
            return list(column.to_pylist())
        except (ValueError, OverflowError):
            values = []
            for place, value in enumerate(column):
                try:
                    values.append(value.as_py())
                except (ValueError, OverflowError):
                    values.append(None)
                    unreadable.add(place)
            return values


class _OtherColumns:
    """The columns that are not requested, read only as far as a row without requested values needs them."""

    def __init__(self, batches: Callable[[list[str]], Iterator[Any]], names: list[str]) -> None:
        self._batches = batches(names)
        self._columns: list[Any] = []
        self._names = names
        self._before = self._rows = 0

    def have_content(self, number: int) -> bool:
        """Return whether one of them has a value in a row. The numbers must ascend."""
        if not self._names:
            return False
        while number > self._before + self._rows:
            batch = next(self._batches)
            self._before, self._rows, self._columns = self._before + self._rows, batch.num_rows, batch.columns
        return any(_has_value(column[number - self._before - 1]) for column in self._columns)


def _has_value(scalar: Any) -> bool:
    try:
        return not is_blank(scalar)
    except (ValueError, OverflowError):
        # It cannot be read, so there is a value.
        return True
