"""CSV files, as editors and spreadsheets write them."""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any

from cpaas_provider.sources import _validators
from cpaas_provider.sources.base import NO_ABSENT_COLUMNS, InvalidRow, Row, SourceError, Table, make_row
from cpaas_provider.sources.csv_header import column_names, declared_delimiter, likely_delimiter
from cpaas_provider.sources.csv_lines import UNDECODABLE, read_lines
from cpaas_provider.sources.csv_records import MAX_LINE_BREAKS, Record, read_records
from cpaas_provider.sources.files import FileSource, suffixes_of


class CsvSource(FileSource):
    """A CSV file whose first line names the columns; ``.gz``, ``.bz2`` and ``.xz`` are unpacked.

    Cells are stripped, and empty ones are ``None``. Rows that cannot be read are invalid rows.

    :param path: a path or URL, as text, ``Path`` or ``ObjectStoragePath`` (templated)
    :param conn_id: the Airflow connection of its storage; default: the connection in the path, or that of the storage
        (templated)
    :param encoding: its encoding, such as ``cp1252`` for Excel on Windows; default: that of its byte order mark, else
        UTF-8
    :param delimiter: the character between cells; default: that of Excel's ``sep=`` line, else the most frequent of
        comma, semicolon, tab and ``|`` in the header
    :param quote: the character around quoted cells; ``None`` if quotes have no meaning
    :param max_line_breaks: the most line breaks in a cell. A cell with more of them, or with a line that looks like a
        row, has a quote too many. Its row is then invalid, and the lines after it are read as rows. ``None`` accepts
        every cell unchanged
    """

    kind = "CSV file"

    def __init__(
        self,
        path: Any,
        *,
        conn_id: str | None = None,
        encoding: str | None = None,
        delimiter: str | None = None,
        quote: str | None = '"',
        max_line_breaks: int | None = MAX_LINE_BREAKS,
    ) -> None:
        super().__init__(path, conn_id=conn_id)
        self.encoding = _known_encoding(encoding)
        self.delimiter = _validators.one_character("delimiter", delimiter)
        self.quote = _validators.one_character("quote", quote or None)
        if self.quote and self.quote == self.delimiter:
            raise ValueError("delimiter and quote must not be the same character.")
        self.max_line_breaks = _validators.count_or_none("max_line_breaks", max_line_breaks)

    @contextmanager
    def open(self) -> Iterator[Table]:
        """Open it for one reading."""
        with self.open_bytes() as stream:
            yield self._table(read_lines(stream, self.encoding, self))

    def _table(self, lines: Iterator[str]) -> _CsvTable:
        number, first, said = 0, "", None
        for number, first in enumerate(lines, 1):
            if number == 1 and (said := declared_delimiter(first)):
                continue
            if first.strip().strip("\ufeff"):
                break
        else:
            raise SourceError(f"{self} is empty. Its first line must name the columns.")
        first = first.removeprefix("\ufeff")
        delimiter = self.delimiter or said
        if delimiter in (None, self.quote):
            delimiter = likely_delimiter(first, self.quote, tabs=".tsv" in suffixes_of(self.path)[:2])
        records = read_records(
            chain([first], lines), number, delimiter, self.quote, self, max_line_breaks=self.max_line_breaks
        )
        header = next(records)
        if isinstance(header, InvalidRow):
            raise SourceError(f"The header of {self} cannot be read: {header.reason}.")
        return _CsvTable(column_names(*header[1:], self), records)


class _CsvTable:
    absent = NO_ABSENT_COLUMNS

    def __init__(self, columns: tuple[str, ...], records: Iterator[Record | InvalidRow]) -> None:
        self.columns: tuple[str, ...] | None = columns
        self._names = columns
        self._records = records

    def rows(self, wanted: Sequence[str]) -> Iterator[Row | InvalidRow]:
        """Read all records once."""
        width = len(self._names)
        # A column that is not there has its place behind the others, where an empty cell is put.
        places = [self._names.index(name) if name in self._names else width for name in wanted]
        least = width + (width in places)
        for record in self._records:
            if isinstance(record, InvalidRow):
                yield record
                continue
            number, cells, text = record
            if (not text.isascii() or "\0" in text or len(cells) > width) and (reason := _fault(cells, text, width)):
                yield InvalidRow(number, reason)
                continue
            if len(cells) != least:
                cells = [*cells[:width], *[""] * (least - len(cells[:width]))]
            if '="' in text:
                cells = [_unwrapped(cell.strip()) for cell in cells]
            yield make_row((number, tuple([cells[place].strip() or None for place in places])))


def _fault(cells: list[str], text: str, width: int) -> str | None:
    if "\0" in text:
        return "contains NUL characters"
    if UNDECODABLE in text:
        return "is not in the file's encoding; set it, e.g. encoding='cp1252' for Excel on Windows"
    if any(cell.strip() for cell in cells[width:]):
        return "has more cells than the header"
    return None


def _unwrapped(cell: str) -> str:
    """Return a text out of ``="0803"``, by which spreadsheets are kept from reading it as a number."""
    return cell[2:-1] if cell.startswith('="') and cell.endswith('"') and len(cell) > 2 else cell


def _known_encoding(encoding: str | None) -> str | None:
    if _validators.text_or_none("encoding", encoding) is None:
        return None
    try:
        found = codecs.lookup(str(encoding))
        b"a".decode(found.name, "ignore")
    except LookupError:
        raise ValueError(
            f"encoding must name a text encoding Python knows, such as cp1252; it is {encoding!r}."
        ) from None
    return encoding
