"""Whether a row of the contact list still has the cells that the key map knows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import permutations
from typing import Any

from cpaas_provider.api.models.contacts import ContactTable
from cpaas_provider.contacts.key_map.hashes import CellHashes, ContactHashes, column_tag
from cpaas_provider.contacts.mapping.cells import CLEARED, Parse, cell_parser

_MOST_OPTIONS = 5


class RowComparer:
    """Compares rows as the service returns them with hashes of cells as they were sent.

    A service may return a cell in another form than it was sent in, such as ``"1"`` for ``1``. So a cell is read as one
    of a source would be, by its column's type.

    :param table: the contact table as it is now
    :param default_region: region of national phone numbers
    """

    def __init__(self, table: ContactTable, hashes: ContactHashes, default_region: str | None) -> None:
        self._hashes = hashes
        self._columns: dict[bytes, tuple[str, Parse]] = {
            column_tag(column.id): (column.id, cell_parser(column.type, default_region=default_region))
            for column in table.columns
        }

    def differing(self, known: bytes | None, cells: Mapping[str, Any]) -> list[str]:
        """Return the ids of the columns whose cells are not those that are known.

        A column that the table no longer has is left out.

        :param known: the packed hashes of the row's cells
        :param cells: the row's cells by column id, as the service returned them
        """
        found = []
        for tag, cell_hash in CellHashes.unpack(known):
            column = self._columns.get(tag)
            if column is not None and not self._is(column, cells.get(column[0]), cell_hash):
                found.append(column[0])
        return found

    def _is(self, column: tuple[str, Parse], cell: Any, cell_hash: bytes) -> bool:
        column_id, parse = column
        return any(self._hashes.of_cell(column_id, form) == cell_hash for form in _forms(cell, parse))


def _forms(cell: Any, parse: Parse) -> Iterator[Any]:
    """Yield the forms in which a cell may have been sent, the likeliest first."""
    yield cell
    try:
        read = parse(cell)
    except ValueError:
        return
    if read is None:
        yield from CLEARED.values()
        yield []
        return
    yield read
    if isinstance(read, list):
        # A service may return options in an order of its own. Of many options only the sorted order is tried.
        yield from map(list, permutations(read)) if len(read) <= _MOST_OPTIONS else [sorted(read)]
