"""Compares the cells of a response with those that were sent, to see whether it is about another row."""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Mapping
from typing import Any

from cpaas_provider.contacts.mapping.cells import is_empty_cell

_MIN_SHARED = 6
"""The fewest letters and digits by which one cell can be known within another."""


def is_other_row(returned: Mapping[str, Any], sent: Mapping[str, Any], key_columns: Collection[str] = ()) -> bool:
    """Tell whether the response to a creation has the cells of another row.

    A service may return cells in another notation. So it is another row only if at least two cells can be compared, all
    of the key are unlike, and so are most of the others. Empty cells, and cells that the response leaves out, say
    nothing. The key map tells another row by its id alone.

    :param returned: the cells of the response, by column id
    :param sent: the cells of the request
    :param key_columns: the ids of the columns that hold the row's key
    """
    compared = {
        column for column, cell in sent.items() if not (is_empty_cell(cell) or is_empty_cell(returned.get(column)))
    }
    unlike = {column for column in compared if not _is_same(returned[column], sent[column])}
    has_same_key = bool(compared & set(key_columns) - unlike)
    return len(compared) > 1 and not has_same_key and 2 * len(unlike) > len(compared)


def _is_same(returned: Any, sent: Any) -> bool:
    if isinstance(sent, list):
        options = returned.split(",") if isinstance(returned, str) else returned
        return isinstance(options, list) and set(map(_comparable, options)) == set(map(_comparable, sent))
    if isinstance(sent, (int, float)):
        try:
            return float(returned) == float(sent)
        except (TypeError, ValueError):
            return False
    known, seen = _comparable(sent), _comparable(returned)
    # Dates get times, phone numbers and links get or lose a prefix, texts are cut.
    return known == seen or (min(len(known), len(seen)) >= _MIN_SHARED and (known in seen or seen in known))


def _comparable(cell: Any) -> str:
    """Return the letters and digits of a cell, without case, spaces and punctuation."""
    text = unicodedata.normalize("NFKC", str(cell)).casefold()
    return "".join(filter(str.isalnum, text)) or text.strip()
