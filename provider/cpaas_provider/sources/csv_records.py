"""The records of a CSV file, each with the line on which it begins."""

from __future__ import annotations

import csv
import re
from collections import deque
from collections.abc import Iterator
from typing import Any

from cpaas_provider.sources.base import InvalidRow, SourceError
from cpaas_provider.sources.csv_lines import MAX_RECORD_LENGTH

MAX_LINE_BREAKS = 10
"""An address has four or five lines."""

Record = tuple[int, list[str], str]
"""The line on which a record begins, its cells as they stand there, and the text they were read from."""

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
    held: list[str] = []
    again = deque[str]()
    number, width = first_number, 0
    within, until = 0, 0

    def feed() -> Iterator[str]:
        size = open_for = 0
        while (line := again.popleft() if again else next(lines, None)) is not None:
            size = size + len(line) if held else len(line)
            if size > MAX_RECORD_LENGTH:
                raise SourceError(_endless(source, number))
            open_for = open_for + 1 if held and quote and quote not in line else 0
            held.append(line)
            if max_line_breaks is not None and open_for > max_line_breaks:
                raise _MisplacedQuoteError(_too_many(number, max_line_breaks))
            yield line

    while True:
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
        except _MisplacedQuoteError as error:
            yield InvalidRow(number, str(error))
            within, until = number, max(until, number + len(held) - 1)
            again.extendleft(reversed(held[1:]))
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
        else:
            return


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
    """Raise where a record of several lines holds others.

    :param lines: all of them but the first
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
