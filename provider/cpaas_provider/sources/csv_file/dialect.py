"""How a CSV file is written: its delimiter, quote and escape, and the names in its header."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import Any

from msgspec import Struct

from cpaas_provider.sources.base import SourceError
from cpaas_provider.sources.csv_file.lines import MAX_RECORD_LENGTH, UNDECODABLE

_DELIMITERS = (",", ";", "\t", "|")
_SEP_LINE = re.compile(r'\ufeff?"?sep=([^\w\r\n"\0])"?[ \t,;|]*[\r\n]*', re.IGNORECASE)
_BOM = "\ufeff"

SAMPLE_LINES = 50
"""The number of lines that show the delimiter."""


class Dialect(Struct, frozen=True):
    """The characters with a meaning.

    :param quote: the character around quoted cells; ``None`` if quotes have no meaning
    :param escape: the character before one that has no meaning; ``None`` if there is none
    """

    delimiter: str
    quote: str | None = '"'
    escape: str | None = None

    def options(self) -> dict[str, Any]:
        """Return the arguments of ``csv.reader``."""
        quotes = {"quotechar": self.quote} if self.quote else {"quoting": csv.QUOTE_NONE, "quotechar": None}
        return {
            "delimiter": self.delimiter,
            "escapechar": self.escape,
            "skipinitialspace": self.delimiter != " ",
            **quotes,
        }


def declared_delimiter(line: str) -> str | None:
    """Return the delimiter of Excel's ``sep=;`` line, ``None`` for any other line."""
    found = _SEP_LINE.fullmatch(line)
    return found[1] if found else None


def likely_delimiter(lines: Sequence[str], quote: str | None, escape: str | None, *, tabs: bool) -> str:
    """Return the delimiter by which the first lines of a file are rows with as many cells as the header has names.

    :param lines: the header, and up to ``SAMPLE_LINES`` lines after it
    :param tabs: whether the file's suffix is ``.tsv``; decides between delimiters that fit equally well
    """
    order = sorted(_DELIMITERS, key=lambda delimiter: delimiter != "\t") if tabs else _DELIMITERS
    fits = {delimiter: _fit(lines, Dialect(delimiter, quote, escape)) for delimiter in order if delimiter != quote}
    return max(fits, key=lambda delimiter: fits[delimiter])


def _fit(lines: Sequence[str], dialect: Dialect) -> tuple[float, int]:
    """Return how well the lines fit to a delimiter, and the number of names in the header."""
    read = list(takewhile(lambda line: len(line) <= MAX_RECORD_LENGTH, lines))
    try:
        records = [cells for record in csv.reader(read, **dialect.options()) if (cells := without_empty_end(record))]
        unskipped = next(csv.reader(read[:1], **{**dialect.options(), "skipinitialspace": False}), [])
    except csv.Error:
        return -1.0, 0
    if not records or (width := len(records[0])) < 2:
        return -1.0, 0
    # The last record may go on after these lines.
    rows = records[1:-1] if len(records) > 2 and len(lines) > SAMPLE_LINES else records[1:]
    fit = sum(map(_fit_of_row, map(len, rows), [width] * len(rows))) / max(1, len(rows))
    # A comma with a blank after it belongs to a text more often than it ends a name.
    return fit - 0.5 * any(name != name.lstrip() for name in unskipped[1:]), width


def _fit_of_row(cells: int, width: int) -> float:
    if cells == width:
        return 1.0
    # Empty cells at the end may be left out. A row of one cell does not have the delimiter at all.
    return 0.75 if 1 < cells < width else 0.0


def without_empty_end(record: Sequence[str]) -> list[str]:
    """Return a record's cells without empty ones at its end."""
    end = len(record)
    while end and not record[end - 1].strip():
        end -= 1
    return list(record[:end])


def column_names(cells: Iterable[str], text: str, source: object) -> tuple[str, ...]:
    """Return a header's names, without those of empty columns at its end. A column before it may have no name.

    :param text: the header as it is in the file
    :raises SourceError: when it cannot be a header
    """
    if "\0" in text:
        raise SourceError(f"{source} has NUL characters in its header. Is it UTF-16, or compressed? Set its encoding.")
    if UNDECODABLE in text:
        raise SourceError(f"The header of {source} is not in the expected encoding. Set it, e.g. encoding='cp1252'.")
    names = without_empty_end([cell.strip().strip(_BOM).strip() for cell in cells])
    if not names:
        raise SourceError(f"{source} has no header. Its first line must name the columns.")
    return tuple(names)
