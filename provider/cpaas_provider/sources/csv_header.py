"""The first lines of a CSV file: delimiter and column names."""

from __future__ import annotations

import re
from collections.abc import Iterable

from cpaas_provider.sources.base import SourceError
from cpaas_provider.sources.csv_lines import UNDECODABLE

_DELIMITERS = (",", ";", "\t", "|")
_SEP_LINE = re.compile(r'\ufeff?"?sep=([^\w\r\n"\0])"?[ \t,;|]*[\r\n]*', re.IGNORECASE)
_BOM = "\ufeff"


def declared_delimiter(line: str) -> str | None:
    """Return the delimiter of Excel's ``sep=;`` line, ``None`` for any other line."""
    found = _SEP_LINE.fullmatch(line)
    return found[1] if found else None


def likely_delimiter(header: str, quote: str | None, *, tabs: bool) -> str:
    """Return the most frequent delimiter between the names of a header line.

    :param tabs: whether the file's suffix is that of tabs; decides if the header does not
    """
    if quote:
        header = re.sub(f"{re.escape(quote)}[^{re.escape(quote)}]*{re.escape(quote)}", "", header)
    order = sorted(_DELIMITERS, key=lambda one: one != "\t") if tabs else _DELIMITERS
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
    # By their places: where the header is missing, these are the cells of somebody's row.
    for place, name in enumerate(names, 1):
        if not name:
            raise SourceError(f"Column {place} of {source} has no name in the header. Name it, or remove it.")
        if (first := names.index(name) + 1) != place:
            raise SourceError(f"Columns {first} and {place} of {source} have the same name. Rename one.")
    return tuple(names)
