"""CSV files, as editors and spreadsheets write them."""

from __future__ import annotations

import codecs
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from operator import itemgetter
from typing import Any

from cpaas_provider.sources import _validators
from cpaas_provider.sources.base import NO_ABSENT_COLUMNS, InvalidRow, Row, SourceError, Table, make_row
from cpaas_provider.sources.csv_file.dialect import (
    SAMPLE_LINES,
    Dialect,
    column_names,
    declared_delimiter,
    likely_delimiter,
)
from cpaas_provider.sources.csv_file.lines import UNDECODABLE, read_lines
from cpaas_provider.sources.csv_file.records import MAX_LINE_BREAKS, Record, read_records
from cpaas_provider.sources.files import FileSource, suffixes_of
from cpaas_provider.sources.tables import column_places, has_content


class CsvSource(FileSource):
    r"""A CSV file whose first line names the columns; ``.gz``, ``.bz2`` and ``.xz`` are unpacked.

    Cells are stripped, and empty ones are ``None``. A record without any content is no row. Rows that cannot be read
    are invalid rows. Empty cells at the end of a row may be left out, but not in a last line without a line end: the
    file may be cut off there.

    :param path: a path or URL, as text, ``Path`` or ``ObjectStoragePath`` (templated)
    :param conn_id: the Airflow connection of its storage; default: the connection in the path, or that of the storage
        (templated)
    :param encoding: its encoding, such as ``cp1252`` for Excel on Windows; default: that of its byte order mark, else
        UTF-8
    :param delimiter: the character between cells; default: that of Excel's ``sep=`` line. Without this line, it is the
        one of comma, semicolon, tab and ``|`` that gives the first rows as many cells as the header
    :param quote: the character around quoted cells; ``None`` if quotes have no meaning
    :param escape: the character before a quote, delimiter or line break that belongs to a cell. For MySQL, it is a
        backslash, and ``\N`` is an empty cell. Default: none; a quote inside a quoted cell is written twice
    :param max_line_breaks: the most line breaks in a cell. A cell with more of them, or with a line that looks like a
        row, has a quote too many. So has a record of several lines with too few or too many cells. Its row is then
        invalid, and the lines after it are read as rows. ``None`` accepts every cell unchanged
    :param missing_values: words that stand for an empty cell, written exactly so, such as ``("nan", "-")``. All other
        words are then values, and an empty list makes every word a value. Default: no word is an empty cell, but a
        campaign takes words such as ``nan`` for missing in placeholders
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
        escape: str | None = None,
        max_line_breaks: int | None = MAX_LINE_BREAKS,
        missing_values: Collection[str] | None = None,
    ) -> None:
        super().__init__(path, conn_id=conn_id)
        self.encoding = _known_encoding(encoding)
        self.delimiter = _validators.one_character("delimiter", delimiter)
        self.quote = _validators.one_character("quote", quote or None)
        self.escape = _validators.one_character("escape", escape)
        used = [character for character in (self.delimiter, self.quote, self.escape) if character]
        if len(set(used)) < len(used):
            raise ValueError("delimiter, quote and escape must not be the same character.")
        self.max_line_breaks = _validators.count_or_none("max_line_breaks", max_line_breaks)
        self.missing_values = _validators.texts_or_none("missing_values", missing_values)

    @contextmanager
    def open(self) -> Iterator[Table]:
        """Open it for one reading."""
        with self.open_bytes() as stream:
            yield self._table(read_lines(stream, self.encoding, self))

    def _table(self, lines: Iterator[str]) -> _CsvTable:
        number, first, declared = 0, "", None
        for number, first in enumerate(lines, 1):
            if number == 1 and (declared := declared_delimiter(first)):
                continue
            if first.strip().strip("\ufeff"):
                break
        else:
            raise SourceError(f"{self} is empty. Its first line must name the columns.")
        first = first.removeprefix("\ufeff")
        delimiter, sample = self.delimiter or declared, [first]
        if delimiter in (None, self.quote, self.escape):
            sample += islice(lines, SAMPLE_LINES)
            tabs = ".tsv" in suffixes_of(self.path)[:2]
            delimiter = likely_delimiter(sample, self.quote, self.escape, tabs=tabs)
        dialect = Dialect(delimiter, self.quote, self.escape)
        records = read_records(chain(sample, lines), number, dialect, self, max_line_breaks=self.max_line_breaks)
        header = next(records)
        if isinstance(header, InvalidRow):
            raise SourceError(f"The header of {self} cannot be read: {header.reason}.")
        return _CsvTable(self, column_names(*header[1:], self), len(header[1]), records)


class _CsvTable:
    absent = NO_ABSENT_COLUMNS

    def __init__(
        self, source: CsvSource, columns: tuple[str, ...], header_width: int, records: Iterator[Record | InvalidRow]
    ) -> None:
        self.columns = columns
        self._header_width = header_width
        self.missing_values = source.missing_values
        self._source = source
        self._records = records

    def rows(self, wanted: Sequence[str]) -> Iterator[Row | InvalidRow]:
        """Read all records once."""
        width = len(self.columns)
        # A column that does not exist gets the place after the last column, where an empty cell is added.
        places = [width if place is None else place for place in column_places(self._source, self.columns, wanted)]
        pick = itemgetter(*places) if len(places) > 1 else lambda cells: [cells[place] for place in places]
        least = width + (width in places)
        missing = frozenset(self.missing_values or ())
        for record in self._records:
            if isinstance(record, InvalidRow):
                yield record
                continue
            number, cells, text = record
            is_ascii = text.isascii()
            is_odd = len(cells) != width or "\0" in text or (not is_ascii and UNDECODABLE in text)
            if is_odd and (reason := _fault(cells, text, width, self._header_width)):
                yield InvalidRow(number, reason)
                continue
            if len(cells) != least:
                cells = [*cells[:width], *[""] * (least - len(cells[:width]))]
            if '="' in text:
                cells = [_unwrapped(cell.strip()) for cell in cells]
            if missing:
                cells = ["" if cell.strip() in missing else cell for cell in cells]
            values = tuple([cell or None for cell in map(str.strip, pick(cells))])
            # Text that is not ASCII may be blank although it is not empty.
            if (is_ascii and values and values[0]) or has_content(values) or has_content(cells):
                yield make_row((number, values))


def _fault(cells: list[str], text: str, width: int, header_width: int) -> str | None:
    if "\0" in text:
        return "contains NUL characters"
    if UNDECODABLE in text:
        return "is not in the file's encoding; set it, e.g. encoding='cp1252' for Excel on Windows"
    # A column at the end may have no name. But a comma too many in a row may not pass for one.
    if len(cells) != header_width and any(map(str.strip, cells[width:])):
        return "has more cells than the header"
    # Empty cells at the end of a line may be left out. But a file still being written may end in the middle of a row.
    if len(cells) < width and not text.endswith(("\n", "\r")) and has_content(cells):
        return "ends without a line end and has fewer cells than the header: the file may be cut off"
    return None


def _unwrapped(cell: str) -> str:
    """Return the text in ``="0803"``, a notation that keeps spreadsheets from reading it as a number."""
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
