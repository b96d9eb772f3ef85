"""CSV files, as editors and spreadsheets write them."""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any

from cpaas_provider.sources import _validators
from cpaas_provider.sources.base import NO_ABSENT_COLUMNS, InvalidRow, Row, SourceError, Table, make_row
from cpaas_provider.sources.files import FileSource, suffixes_of

# The lines of a file ----------------------------------------------------------------------------------------------

UNDECODABLE = "\udcff"
"""Replaces bytes that are not valid in the file's encoding. No decoder returns this character for valid bytes."""

MAX_RECORD_LENGTH = 100_000
"""In characters, and below the csv module's limit of 131,072. A record with an unclosed quote ends here."""

_BLOCK_LENGTH = 8_000
"""The size of a block, in characters; less than ``MAX_RECORD_LENGTH``. Larger blocks trigger garbage collection."""

_BOMS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}


def _replace_undecodable(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return UNDECODABLE, error.end


codecs.register_error("cpaas_provider.sources.undecodable", _replace_undecodable)


def read_lines(stream: io.BufferedReader[Any], encoding: str | None, source: object) -> Iterator[str]:
    r"""Return the lines of a file with their ends, which are ``\n``, ``\r\n`` or ``\r``, as an editor shows them.

    A line longer than ``MAX_RECORD_LENGTH`` is returned in parts.

    :param encoding: its encoding; default: that of its byte order mark, else UTF-8
    :raises SourceError: when the encoding does not fit the file at all
    """
    if encoding is None:
        head = stream.peek(3)
        encoding = next((name for bom, name in _BOMS.items() if head.startswith(bom)), "utf-8")
    text = io.TextIOWrapper(stream, encoding, errors="cpaas_provider.sources.undecodable", newline="")
    try:
        while line := text.readline(MAX_RECORD_LENGTH + 1):
            yield line
    except UnicodeError as error:
        raise SourceError(
            f"{source} cannot be read as {encoding} ({type(error).__name__}). Set its encoding."
        ) from None


# Delimiter and column names ----------------------------------------------------------------------------------------

_DELIMITERS = (",", ";", "\t", "|")
_SEP_LINE = re.compile(r'\ufeff?"?sep=([^\w\r\n"\0])"?[ \t,;|]*[\r\n]*', re.IGNORECASE)
_BOM = "\ufeff"


def declared_delimiter(line: str) -> str | None:
    """Return the delimiter of Excel's ``sep=;`` line, ``None`` for any other line."""
    found = _SEP_LINE.fullmatch(line)
    return found[1] if found else None


def likely_delimiter(header: str, quote: str | None, *, tabs: bool) -> str:
    """Return the most frequent delimiter between the names of a header line.

    :param tabs: whether the file's suffix is ``.tsv``; decides if the header has no delimiter
    """
    if quote:
        header = re.sub(f"{re.escape(quote)}[^{re.escape(quote)}]*{re.escape(quote)}", "", header)
    order = sorted(_DELIMITERS, key=lambda delimiter: delimiter != "\t") if tabs else _DELIMITERS
    return max(order, key=header.count)


def column_names(cells: Iterable[str], text: str, source: object) -> tuple[str, ...]:
    """Return a header's names, without those of empty columns at its end.

    :param text: the header as it is in the file
    :raises SourceError: when it cannot be a header
    """
    if "\0" in text:
        raise SourceError(f"{source} has NUL characters in its header. Is it UTF-16, or compressed? Set its encoding.")
    if UNDECODABLE in text:
        raise SourceError(f"The header of {source} is not in the expected encoding. Set it, e.g. encoding='cp1252'.")
    names = [cell.strip().strip(_BOM).strip() for cell in cells]
    while names and not names[-1]:
        names.pop()
    if not names:
        raise SourceError(f"{source} has no header. Its first line must name the columns.")
    # The errors give places, not names: without a header, these are the cells of a recipient's row.
    for place, name in enumerate(names, 1):
        if not name:
            raise SourceError(f"Column {place} of {source} has no name in the header. Name it, or remove it.")
        if (first := names.index(name) + 1) != place:
            raise SourceError(f"Columns {first} and {place} of {source} have the same name. Rename one.")
    return tuple(names)


# Records ------------------------------------------------------------------------------------------------------------

MAX_LINE_BREAKS = 10
"""An address has four or five lines."""

Record = tuple[int, list[str], str]
"""The line on which a record begins, its unstripped cells, and the text they were read from."""

_LINE_BREAK = re.compile(r"\r\n?|\n")
_RECIPIENT = re.compile(r"\+?\d(?:[\s().\-/]{0,2}\d){6,}|[^\s@]+@[^\s@]+\.[^\s@]+")


def read_records(
    lines: Iterator[str],
    first_number: int,
    delimiter: str,
    quote: str | None,
    source: object,
    *,
    max_line_breaks: int | None = MAX_LINE_BREAKS,
) -> Iterator[Record | InvalidRow]:
    """Read lines as records, of which the first is the header. Blank lines are skipped.

    If quotes do not match, each line of the record is an invalid row. If a cell seems to contain other rows, only the
    record's first line is invalid. Reading goes on at the next line, so that no row is lost.

    :param first_number: the number of the first of the lines
    :param max_line_breaks: how many line breaks a cell may have; ``None`` for any number
    :raises SourceError: when a record does not end
    """
    dialect: dict[str, Any] = {"delimiter": delimiter, "strict": True, "skipinitialspace": delimiter != " "}
    dialect |= {"quotechar": quote} if quote else {"quoting": csv.QUOTE_NONE, "quotechar": None}
    waiting = _Lines(lines)
    held: list[str] = []
    number, width = first_number, 0
    within, until = 0, 0

    def feed() -> Iterator[str]:
        size = open_for = 0
        while (line := waiting.next()) is not None:
            size = size + len(line) if held else len(line)
            if size > MAX_RECORD_LENGTH:
                raise SourceError(_endless(source, number))
            open_for = open_for + 1 if held and quote and quote not in line else 0
            held.append(line)
            if max_line_breaks is not None and open_for > max_line_breaks:
                raise _MisplacedQuoteError(_too_many(number, max_line_breaks))
            yield line

    while waiting.again or (block := waiting.block()):
        if not waiting.again:
            if (records := _one_a_line(block, dialect)) is not None:
                for place, (cells, text) in enumerate(zip(records, block, strict=True), number):
                    if len(cells) > 1 or text.strip():
                        width = width or len(cells)
                        yield place, cells, text
                number += len(block)
                continue
            waiting.put_back(block)
        try:
            for cells in csv.reader(feed(), **dialect):
                if len(held) > 1 and max_line_breaks is not None and width:
                    _check_swallowed_rows(cells, held[1:], number, width, delimiter, max_line_breaks)
                text = held[0] if len(held) == 1 else "".join(held)
                if number <= until and text.strip() and len(cells) < width:
                    yield InvalidRow(
                        number, f"may be a part of the record that begins on line {within}: {_ABOUT_QUOTES}"
                    )
                elif len(cells) > 1 or text.strip():
                    width = width or len(cells)
                    yield number, cells, text
                number += len(held)
                held.clear()
                if not waiting.again:
                    break
        except _MisplacedQuoteError as error:
            yield InvalidRow(number, str(error))
            within, until = number, max(until, number + len(held) - 1)
            waiting.put_back(held[1:])
            number += 1
            held.clear()
        except csv.Error:
            reason = (
                f"the quotes of the record that begins on line {number} do not match: "
                "write a quote inside a quoted cell twice, and nothing between the last quote and the delimiter"
            )
            for place in range(number, number + len(held)):
                yield InvalidRow(place, reason)
            number += len(held)
            held.clear()


class _Lines:
    """The lines of a file, one by one or in blocks. Lines can be put back to be read again."""

    def __init__(self, lines: Iterator[str]) -> None:
        self._lines = lines
        self._error: SourceError | None = None
        self.again = deque[str]()

    def next(self) -> str | None:
        """Return the next line, ``None`` at the end."""
        if self.again:
            return self.again.popleft()
        if self._error is not None:
            raise self._error
        return next(self._lines, None)

    def put_back(self, lines: Sequence[str]) -> None:
        """Put lines back, to be read again before all other lines."""
        self.again.extendleft(reversed(lines))

    def block(self) -> list[str]:
        """Return the next lines, up to about ``_BLOCK_LENGTH`` characters; no lines at the end."""
        if self._error is not None:
            raise self._error
        block, size = [], 0
        try:
            for line in self._lines:
                block.append(line)
                size += len(line)
                if size > _BLOCK_LENGTH:
                    break
        except SourceError as error:
            # Raised by the next call, after the lines that were read before it.
            self._error = error
            if not block:
                raise
        return block


def _one_a_line(lines: Sequence[str], dialect: Mapping[str, Any]) -> list[list[str]] | None:
    """Parse lines that are one record each, in a third of the usual time. Return ``None`` if one is not."""
    if len(lines[-1]) > MAX_RECORD_LENGTH:
        return None
    try:
        records = list(csv.reader(lines, **dialect))
    except csv.Error:
        return None
    return records if len(records) == len(lines) else None


class _MisplacedQuoteError(Exception):
    """A cell is too long, or contains what looks like other rows."""


_ABOUT_QUOTES = "a quote that opens there seems to close in another row"


def _too_many(number: int, max_line_breaks: int) -> str:
    return (
        f"a cell of the record that begins on line {number} has more than {max_line_breaks} line breaks: "
        f"{_ABOUT_QUOTES}; if the cell is correct, raise max_line_breaks"
    )


def _check_swallowed_rows(
    cells: list[str], lines: list[str], number: int, width: int, delimiter: str, max_line_breaks: int
) -> None:
    """Raise an error if a record of several lines seems to contain other records.

    :param lines: its lines except the first
    """
    if any(len(_LINE_BREAK.findall(cell)) > max_line_breaks for cell in cells):
        raise _MisplacedQuoteError(_too_many(number, max_line_breaks))
    for line in lines:
        parts = line.strip().split(delimiter)
        if width > 1 and len(parts) == width and any(_RECIPIENT.fullmatch(part.strip(" \"'")) for part in parts):
            raise _MisplacedQuoteError(
                f"a cell of the record that begins on line {number} contains what looks like another row: "
                f"{_ABOUT_QUOTES}; if the cell is correct, set max_line_breaks=None"
            )


def _endless(source: object, number: int) -> str:
    return (
        f"{source} has a record on line {number} with more than {MAX_RECORD_LENGTH} characters. The lines from there "
        "on were not read. A quote may open there and never close, or the file is not CSV. Correct the line, or set "
        "quote=None if quotes have no meaning."
    )


# The source -----------------------------------------------------------------------------------------------------------


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
        number, first, declared = 0, "", None
        for number, first in enumerate(lines, 1):
            if number == 1 and (declared := declared_delimiter(first)):
                continue
            if first.strip().strip("\ufeff"):
                break
        else:
            raise SourceError(f"{self} is empty. Its first line must name the columns.")
        first = first.removeprefix("\ufeff")
        delimiter = self.delimiter or declared
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
        self.columns = columns
        self._records = records

    def rows(self, wanted: Sequence[str]) -> Iterator[Row | InvalidRow]:
        """Read all records once."""
        width = len(self.columns)
        # A column that does not exist gets the place after the last column, where an empty cell is added.
        places = [self.columns.index(name) if name in self.columns else width for name in wanted]
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
