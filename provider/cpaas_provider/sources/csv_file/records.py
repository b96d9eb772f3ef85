"""Lines of a CSV file as records, one of which may have several lines, and may have quotes that do not match."""

from __future__ import annotations

import csv
import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cpaas_provider._common.values import strip_invisible
from cpaas_provider.sources.base import InvalidRow, SourceError
from cpaas_provider.sources.csv_file.dialect import Dialect, without_empty_end
from cpaas_provider.sources.csv_file.lines import MAX_RECORD_LENGTH

MAX_LINE_BREAKS = 10
"""An address has four or five lines."""

Record = tuple[int, list[str], str]
"""The line on which a record begins, its unstripped cells, and the text they were read from."""

_BLOCK_LENGTH = 8_000
"""The size of a block, in characters; less than ``MAX_RECORD_LENGTH``. Larger blocks trigger garbage collection."""

_MOST_REPAIRS = 10
"""How often the blanks after the quotes of one record are removed. One repair removes those of all its lines so far."""

_LINE_BREAK = re.compile(r"\r\n?|\n")
_LINE = re.compile(r"[^\r\n]*+(?:\r\n?|\n)|[^\r\n]++")
_LONGEST_RECIPIENT = 320
_MAY_HOLD_RECIPIENT = re.compile(r"@|(?:\d\D*+){7}")
"""Whatever ``_RECIPIENT`` matches has an at sign or seven digits. Most lines have neither."""
_RECIPIENT = re.compile(
    r"(?:(?:tel|whatsapp|sms|p):)?[\s(+/]*+\d(?:[\s().\-/_\u00b7\u2010-\u2015\u2212]{0,5}\d){6,}|[^\s@]+@[^\s@]+\.[^\s@]+",
    re.IGNORECASE,
)


def read_records(
    lines: Iterator[str],
    first_number: int,
    dialect: Dialect,
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
    quote, options = dialect.quote, {**dialect.options(), "strict": True}
    waiting = _Lines(lines if dialect.escape is None else _without_nulls(lines, dialect))
    held: list[str] = []
    number, width, header_width = first_number, 0, 0
    within, until = 0, 0
    repaired, repairs = 0, 0

    def feed() -> Iterator[str]:
        size = open_for = 0
        while (line := waiting.next()) is not None:
            size = size + len(line) if held else len(line)
            if size > MAX_RECORD_LENGTH:
                raise SourceError(_endless(source, number))
            if held and max_line_breaks is not None:
                open_for = open_for + 1 if quote and quote not in line else 0
                if open_for > max_line_breaks or (width and len(held) > width * max_line_breaks):
                    held.append(line)
                    raise _MisplacedQuoteError(_too_many(number, max_line_breaks))
            else:
                open_for = 0
            held.append(line)
            yield line

    while waiting.again or (block := waiting.block()):
        if not waiting.again:
            if (records := _one_a_line(block, options)) is not None:
                for place, (cells, text) in enumerate(zip(records, block, strict=True), number):
                    if len(cells) > 1 or text.strip():
                        if not width:
                            width, header_width = len(without_empty_end(cells)), len(cells)
                        yield place, cells, text
                number += len(block)
                continue
            waiting.put_back(block)
        try:
            for cells in csv.reader(feed(), **options):
                if len(held) > 1 and max_line_breaks is not None and width:
                    if number <= until:
                        # It can take a row that the rejected record had swallowed into a cell.
                        raise _MisplacedQuoteError(_part_of(within))
                    _check_swallowed_rows(
                        cells, held[1:], number, width, header_width, dialect.delimiter, max_line_breaks
                    )
                text = held[0] if len(held) == 1 else "".join(held)
                if number <= until and text.strip() and len(cells) < width:
                    yield InvalidRow(number, _part_of(within))
                elif len(cells) > 1 or text.strip():
                    if not width:
                        width, header_width = len(without_empty_end(cells)), len(cells)
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
            repairs = repairs + 1 if repaired == number else 1
            repaired = number
            if repairs <= _MOST_REPAIRS and (lines_again := _without_blanks_after_quotes(held, dialect)):
                waiting.put_back(lines_again)
                held.clear()
                continue
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


def _one_a_line(lines: Sequence[str], options: Mapping[str, Any]) -> list[list[str]] | None:
    """Parse lines that are one record each, in a third of the usual time. Return ``None`` if one is not."""
    if len(lines[-1]) > MAX_RECORD_LENGTH:
        return None
    try:
        records = list(csv.reader(lines, **options))
    except csv.Error:
        return None
    return records if len(records) == len(lines) else None


def _without_nulls(lines: Iterator[str], dialect: Dialect) -> Iterator[str]:
    r"""Yield the lines with an empty cell in place of each ``\N``, as MySQL writes NULL."""
    null, delimiter = f"{dialect.escape}N", re.escape(dialect.delimiter)
    around = f"({re.escape(dialect.quote)}?)" if dialect.quote else "()"
    cell = re.compile(rf"(^|{delimiter}){around}{re.escape(null)}\2(?={delimiter}|[\r\n]|$)")
    for line in lines:
        yield cell.sub(r"\1", line) if null in line else line


def _without_blanks_after_quotes(lines: Sequence[str], dialect: Dialect) -> list[str] | None:
    """Return the lines of a record without blanks between a closing quote and the delimiter or the end of the line.

    Return ``None`` if there are none, or the quotes do not match in another way.
    """
    if not dialect.quote:
        return None
    delimiter, quote = re.escape(dialect.delimiter), re.escape(dialect.quote)
    escape = re.escape(dialect.escape) if dialect.escape else ""
    escaped = f"|{escape}." if escape else ""
    opening = re.compile(rf" *{quote}")
    within = re.compile(rf"(?:[^{quote}{escape}]|{quote}{quote}{escaped})*+", re.DOTALL)
    closing = re.compile(rf"{quote}((?:(?!{delimiter})[^\S\r\n])*+)(?={delimiter}|[\r\n]|\Z)")
    unquoted = re.compile(rf"(?:[^{delimiter}{escape}\r\n]{escaped})*+", re.DOTALL)
    text, place, kept, start = "".join(lines), 0, [], 0
    while place < len(text):
        if opens := opening.match(text, place):
            place = within.match(text, opens.end()).end()  # type: ignore[union-attr]  # it matches nothing, too
            if place == len(text):
                break
            closes = closing.match(text, place)
            if closes is None:
                return None
            if closes[1]:
                kept.append(text[start : closes.start(1)])
                start = closes.end()
            place = closes.end()
        else:
            place = unquoted.match(text, place).end()  # type: ignore[union-attr]  # it matches nothing, too
        place += 1
    if not kept:
        return None
    return _LINE.findall("".join([*kept, text[start:]]))


class _MisplacedQuoteError(Exception):
    """A cell is too long, or contains what looks like other rows."""


_ABOUT_QUOTES = "a quote that opens there seems to close in another row"


def _part_of(number: int) -> str:
    return f"may be a part of the record that begins on line {number}: {_ABOUT_QUOTES}"


def _too_many(number: int, max_line_breaks: int) -> str:
    return (
        f"a cell of the record that begins on line {number} has more than {max_line_breaks} line breaks: "
        f"{_ABOUT_QUOTES}; if the cell is correct, raise max_line_breaks"
    )


def _check_swallowed_rows(
    cells: list[str],
    lines: list[str],
    number: int,
    width: int,
    header_width: int,
    delimiter: str,
    max_line_breaks: int,
) -> None:
    """Raise an error if a record of several lines seems to contain other records.

    :param lines: its lines except the first
    :param width: the number of columns of the header, without those at its end that have no name
    :param header_width: with them
    """
    if len(lines) > max_line_breaks and any(len(_LINE_BREAK.findall(cell)) > max_line_breaks for cell in cells):
        raise _MisplacedQuoteError(_too_many(number, max_line_breaks))
    accepted = "if the cell is correct, set max_line_breaks=None"
    if len(cells) < width or (len(cells) != header_width and any(map(str.strip, cells[width:]))):
        raise _MisplacedQuoteError(
            f"the record that begins on line {number} has several lines, and not as many cells as the header: "
            f"{_ABOUT_QUOTES}; {accepted}"
        )
    suspects = [line for line in lines if _MAY_HOLD_RECIPIENT.search(line)]
    recipients = [_is_recipient(cell) for cell in cells[:width]] if suspects else []
    for line in suspects:
        parts = line.strip().split(delimiter)
        if len(without_empty_end(parts)) > width:
            continue
        named = [_is_recipient(part) for part in parts]
        # A row with all cells, or a shorter one whose recipient is in a column of recipients.
        if any(named) if len(parts) >= width else any(map(all, zip(named, recipients, strict=False))):
            raise _MisplacedQuoteError(
                f"a cell of the record that begins on line {number} contains what looks like another row: "
                f"{_ABOUT_QUOTES}; {accepted}"
            )


def _is_recipient(text: str) -> bool:
    text = strip_invisible(text).strip(" \"'")
    return len(text) <= _LONGEST_RECIPIENT and _RECIPIENT.fullmatch(text) is not None


def _endless(source: object, number: int) -> str:
    return (
        f"{source} has a record on line {number} with more than {MAX_RECORD_LENGTH} characters. The lines from there "
        "on were not read. A quote may open there and never close, or the file is not CSV. Correct the line, or set "
        "quote=None if quotes have no meaning."
    )
