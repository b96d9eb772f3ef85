"""The records of a CSV file, each with the line on which it begins."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from typing import Any

from cpaas_provider.sources.csv_lines import LONGEST_RECORD
from cpaas_provider.sources.rows import BadRow, SourceError

Record = tuple[int, list[str], str]
"""The line on which a record begins, its cells as they stand there, and the text they were read from."""


def records_of(
    lines: Iterator[str], first_number: int, delimiter: str, quote: str | None, source: object
) -> Iterator[Record | BadRow]:
    """Read lines as records. Blank lines are none; where quotes do not match, each line of the record is set aside.

    :param first_number: the number of the first of the lines
    :raises SourceError: when a record finds no end
    """
    dialect: dict[str, Any] = {"delimiter": delimiter, "strict": True, "skipinitialspace": delimiter != " "}
    dialect |= {"quotechar": quote} if quote else {"quoting": csv.QUOTE_NONE, "quotechar": None}
    held: list[str] = []
    number = first_number

    def feed() -> Iterator[str]:
        size = 0
        for line in lines:
            size = size + len(line) if held else len(line)
            if size > LONGEST_RECORD:
                raise SourceError(_endless(source, number))
            held.append(line)
            yield line

    reader = csv.reader(feed(), **dialect)
    while True:
        try:
            for cells in reader:
                text = held[0] if len(held) == 1 else "".join(held)
                if len(cells) > 1 or text.strip():
                    yield number, cells, text
                number += len(held)
                held.clear()
        except csv.Error:
            reason = (
                f"the quotes of the record that begins on line {number} do not match: "
                "a quote inside a quoted cell is written twice, and nothing stands behind the last one"
            )
            for place in range(number, number + len(held)):
                yield BadRow(place, reason)
            number += len(held)
            held.clear()
        else:
            return


def _endless(source: object, number: int) -> str:
    return (
        f"{source} has a record on line {number} that goes on for more than {LONGEST_RECORD} characters. "
        "Is a quote opened there and never closed, or is it no CSV file? Mend the line, or give quote=None where "
        "quotes mean nothing. The lines from there on were not read."
    )
