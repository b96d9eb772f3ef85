"""Checks that the service keeps the cells that an update does not send (INTERFACE.md 4.12: not shown)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from typing import Any, Protocol

from cpaas_provider.api.amounts import counted
from cpaas_provider.api.errors import CpaasRejectedError
from cpaas_provider.api.models.contacts import ContactRowRecord
from cpaas_provider.contacts.errors import RowUpdatesError
from cpaas_provider.contacts.key_map.hashes import CellHashes, ContactHashes, column_tag
from cpaas_provider.contacts.sync.rows.finder import is_empty_cell

_EMPTY_CELLS: tuple[Any, ...] = (None, "", [])


class RowUpdates(Protocol):
    """The requests that update and read a row, as of ``AsyncCpaasClient``."""

    def update_contact_row(self, row_id: str, columns: Mapping[str, Any]) -> Awaitable[ContactRowRecord]:
        """Update a row."""

    def get_contact_row(self, row_id: str) -> Awaitable[ContactRowRecord]:
        """Read a row."""


class CheckedUpdates:
    """Updates rows with some of their cells, and ends when the service clears the others.

    The response holds the whole row. A row whose other cells all seem to be empty is read. If it is so, the cells are
    restored from the source, and the same update is sent again. If they are empty once more, the service clears them.
    Otherwise another client had done so.

    The first update that shows it goes alone, so that a wrong ``row_updates`` damages one row.

    :param columns: the ids of the list's columns
    :param hashes: of the key map
    """

    def __init__(self, requests: RowUpdates, columns: Mapping[str, str], hashes: ContactHashes) -> None:
        self._requests = requests
        self._columns = {
            column: frozenset(hashes.of_cell(column, empty) for empty in _EMPTY_CELLS) for column in columns
        }
        self._first = asyncio.Lock()
        self._keeps = False
        self._answers_sent_cells = False
        self.clears = False

    async def update(
        self, row_id: str, cells: Mapping[str, Any], known: bytes | None, source: Mapping[str, Any]
    ) -> ContactRowRecord | None:
        """Update a row, and return it; ``None`` if nothing was sent, because an earlier update lost cells.

        :param cells: the cells to send, by column id
        :param known: the packed hashes of the cells that the row had
        :param source: the cells that the row is to have, as far as they are known
        :raises RowUpdatesError: when the service cleared the cells that were not sent
        :raises CpaasError: when a request failed
        """
        omitted = self._omitted(cells, CellHashes.from_bytes(known))
        if not omitted:
            return await self._requests.update_contact_row(row_id, cells)
        if self._keeps:
            return await self._update(row_id, cells, omitted, source)
        async with self._first:
            if self.clears:
                return None
            return await self._update(row_id, cells, omitted, source)

    def _omitted(self, cells: Mapping[str, Any], known: CellHashes) -> list[str]:
        """Return the columns that are not sent, although the row is known to have a cell in them."""
        omitted = []
        for column, empty in self._columns.items():
            cell_hash = known.get(column_tag(column))
            if column not in cells and cell_hash is not None and cell_hash not in empty:
                omitted.append(column)
        return omitted

    async def _update(
        self, row_id: str, cells: Mapping[str, Any], omitted: list[str], source: Mapping[str, Any]
    ) -> ContactRowRecord:
        record = await self._requests.update_contact_row(row_id, cells)
        if not _are_empty(record, omitted):
            self._keeps = True
            return record
        are_named = not set(omitted).isdisjoint(record.row.columns)
        if not are_named and self._answers_sent_cells:
            return record
        if await self._are_cleared(row_id, cells, omitted, source, are_named=are_named):
            self.clears = True
            raise RowUpdatesError(
                "The service clears the cells that an update does not send: after the first one, "
                f"{counted(len(omitted), 'other cell')} of the row had become empty. What was sent before is recorded; "
                "nothing more was sent. Give the connection the extra row_updates with the value whole, then clear the "
                "task: it sends all cells of this row. To find rows that lost cells earlier, run: airflow cpaas "
                "contacts verify --all --mend"
            )
        self._keeps = True
        self._answers_sent_cells = self._answers_sent_cells or not are_named
        return record

    async def _are_cleared(
        self, row_id: str, cells: Mapping[str, Any], omitted: list[str], source: Mapping[str, Any], *, are_named: bool
    ) -> bool:
        try:
            row = await self._requests.get_contact_row(row_id)
        except CpaasRejectedError:
            # This service cannot read rows. Then the response counts if it names these cells.
            return are_named
        if not _are_empty(row, omitted):
            return False
        restored = {column: source[column] for column in omitted if not is_empty_cell(source.get(column))}
        if not restored:
            return True
        await self._requests.update_contact_row(row_id, restored)
        await self._requests.update_contact_row(row_id, cells)
        return _are_empty(await self._requests.get_contact_row(row_id), list(restored))


def _are_empty(record: ContactRowRecord, columns: list[str]) -> bool:
    return all(is_empty_cell(record.row.columns.get(column)) for column in columns)
