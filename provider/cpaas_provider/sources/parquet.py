"""Parquet files."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from cpaas_provider.sources.base import NO_ABSENT_COLUMNS, InvalidRow, Row, SourceError, Table, make_row
from cpaas_provider.sources.files import FileSource, read_error

_ROWS_AT_ONCE = 10_000
_BUFFER = 1 << 18
"""Bytes read ahead for each column. Otherwise Arrow reads a whole row group, which may be the whole file."""


class ParquetSource(FileSource):
    """A Parquet file. Only the columns that the campaign needs are read.

    Needs the extra: ``pip install 'airflow-provider-cpaas[parquet]'``.

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
            raise SourceError(
                f"{self} needs pyarrow where the task runs: pip install 'airflow-provider-cpaas[parquet]'."
            ) from None
        with self.open_raw() as stored:
            try:
                file = parquet.ParquetFile(stored, buffer_size=_BUFFER, pre_buffer=False)
                columns = tuple(file.schema_arrow.names)
            except Exception as error:  # noqa: BLE001 - what Arrow or a storage raises may quote either
                raise read_error(self, error) from None
            if len(set(columns)) < len(columns):
                raise SourceError(f"{self} has several columns of one name. Write the file with unique column names.")
            yield _ParquetTable(self, arrow, file, columns)


class _ParquetTable:
    absent = NO_ABSENT_COLUMNS

    def __init__(self, source: ParquetSource, arrow: Any, file: Any, columns: tuple[str, ...]) -> None:
        self.columns = columns
        self._source = source
        self._arrow = arrow
        self._file = file

    def rows(self, wanted: Sequence[str]) -> Iterator[Row | InvalidRow]:
        """Read the wanted columns once."""
        read = [name for name in self.columns if name in wanted]
        number = 0
        for batch in self._batches(read):
            unreadable: set[int] = set()
            found = {name: self._values(batch.column(name), unreadable) for name in read}
            columns = [found[name] if name in found else [None] * batch.num_rows for name in wanted]
            for place, values in enumerate(zip(*columns, strict=True) if wanted else [()] * batch.num_rows):
                number += 1
                if place in unreadable:
                    yield InvalidRow(number, "contains a value that is not UTF-8 text, or is out of Python's range")
                else:
                    yield make_row((number, values))

    def _batches(self, read: list[str]) -> Iterator[Any]:
        try:
            yield from self._file.iter_batches(_ROWS_AT_ONCE, columns=read, use_threads=False)
        except Exception as error:  # noqa: BLE001 - as above
            raise read_error(self._source, error) from None

    def _values(self, column: Any, unreadable: set[int]) -> list[Any]:
        """Return a column's values as Python objects, with times in microseconds whether pandas is installed or not.

        :param unreadable: gets the places of values that cannot be read; they are returned as ``None``
        """
        types = self._arrow.types
        if types.is_timestamp(column.type) and column.type.unit == "ns":
            column = column.cast(self._arrow.timestamp("us", column.type.tz), safe=False)
        elif types.is_time64(column.type) and column.type.unit == "ns":
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
