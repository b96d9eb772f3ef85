"""Checks that the service keeps the cells that an update does not send (contract.md 4.12)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from cpaas_provider.api.amounts import counted
from cpaas_provider.api.errors import CpaasError, CpaasRejectedError
from cpaas_provider.api.models.contacts import ContactRowRecord
from cpaas_provider.contacts.errors import RowUpdatesError, UncheckedUpdateError
from cpaas_provider.contacts.key_map.hashes import CellHashes, ContactHashes, column_tag
from cpaas_provider.contacts.mapping.cells import EMPTY_CELLS, is_empty_cell
from cpaas_provider.contacts.sync.rows.finder import READ_EACH, READ_EVERY, RowClient, empty_columns


class CheckedUpdates:
    """Updates rows with some of their cells, and ends when the service clears the others.

    The response holds the whole row. If other cells of it seem to be empty, the row is read. If it is so, the cells are
    restored from the source, and the same update is sent again. If they are empty once more, the service clears them.
    Otherwise another client had done so.

    The first update that shows it goes alone, so that a wrong ``row_updates`` damages one row. If no other cell of a
    row is known, the row is read before, until one update has shown that the service keeps such cells. If responses had
    cells that were not sent, and one has none, rows are read before their updates again.

    :param columns: the ids of the list's columns
    :param hashes: of the key map
    """

    def __init__(self, client: RowClient, columns: Mapping[str, str], hashes: ContactHashes) -> None:
        self._client = client
        self._columns = {
            column: frozenset(hashes.of_cell(column, empty) for empty in EMPTY_CELLS) for column in columns
        }
        self._first = asyncio.Lock()
        self._keeps = False
        self._answers_sent_cells = False
        self._answers_unsent_cells = False
        self._unknown = 0
        self.clears = False

    async def update(
        self, row_id: str, cells: Mapping[str, Any], known: bytes | None, source: Mapping[str, Any]
    ) -> ContactRowRecord | None:
        """Update a row, and return it; ``None`` if nothing was sent, because an earlier update lost cells.

        :param cells: the cells to send, by column id
        :param known: the packed hashes of the cells that the row had
        :param source: the cells that the row is to have, as far as they are known
        :raises RowUpdatesError: when the service cleared the cells that were not sent, or it cannot be found out
        :raises CpaasError: when a request failed
        """
        omitted = self._omitted(cells, CellHashes.from_bytes(known))
        if not omitted and (self._keeps or not self._is_read_before(cells)):
            return self._compared(await self._client.update_contact_row(row_id, cells), cells)
        if self._keeps:
            return await self._update(row_id, cells, omitted, source)
        async with self._first:
            if self.clears:
                return None
            if not omitted and not self._keeps:
                omitted = await self._filled(row_id, cells)
            return await self._update(row_id, cells, omitted, source)

    def _compared(self, record: ContactRowRecord, cells: Mapping[str, Any]) -> ContactRowRecord:
        """Return a response. If it lacks the cells that earlier ones had, the service may no longer keep them."""
        unsent = self._columns.keys() - cells.keys()
        if len(empty_columns(record, unsent)) < len(unsent):
            self._answers_unsent_cells = True
        elif unsent and self._answers_unsent_cells:
            self._keeps = False
        return record

    def _is_read_before(self, cells: Mapping[str, Any]) -> bool:
        """Tell whether to read a row first of which no other cell is known: the first hundred, then every tenth."""
        if self._columns.keys() <= cells.keys():
            return False
        self._unknown += 1
        return self._unknown <= READ_EACH or self._unknown % READ_EVERY == 0

    async def _filled(self, row_id: str, cells: Mapping[str, Any]) -> list[str]:
        """Return the columns that are not sent and in which the row has a cell."""
        try:
            record = await self._client.get_contact_row(row_id)
        except CpaasRejectedError:
            # The row is gone, which the update shows, or this service cannot read rows.
            return []
        return [
            column
            for column in self._columns.keys() - cells.keys()
            if not is_empty_cell(record.row.columns.get(column))
        ]

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
        record = self._compared(await self._client.update_contact_row(row_id, cells), cells)
        if not omitted:
            return record
        if not empty_columns(record, omitted):
            self._keeps = True
            return record
        are_named = not set(omitted).isdisjoint(record.row.columns)
        if not are_named and self._answers_sent_cells:
            return record
        try:
            lost = await self._cleared(row_id, cells, omitted, source, record if are_named else None)
        except CpaasError as error:
            self.clears = True
            raise UncheckedUpdateError(
                "After an update other cells of the row seem to be empty, and it cannot be found out why: "
                f"{error} What was sent before is recorded; nothing more was sent. A retry sends all cells of this row."
            ) from None
        if lost:
            self.clears = True
            raise RowUpdatesError(
                "The service clears the cells that an update does not send: after the first one, "
                f"{counted(len(lost), 'other cell')} of the row had become empty. What was sent before is recorded; "
                "nothing more was sent. Give the connection the extra row_updates with the value whole, then clear the "
                "task: it sends all cells of this row. To find rows that lost cells earlier, run: airflow cpaas "
                "contacts verify --all --mend"
            )
        self._keeps = True
        self._answers_sent_cells = self._answers_sent_cells or not are_named
        return record

    async def _cleared(
        self,
        row_id: str,
        cells: Mapping[str, Any],
        omitted: list[str],
        source: Mapping[str, Any],
        named: ContactRowRecord | None,
    ) -> list[str]:
        """Return the cells that the service clears.

        :param named: the response to the update, if it names these cells. It counts if the service cannot read rows
        """
        empty = await self._empty(row_id, named, omitted)
        restored = {column: source[column] for column in empty if not is_empty_cell(source.get(column))}
        if not restored:
            # Another client may have emptied some of the cells, but hardly all.
            return empty if len(empty) == len(omitted) else []
        record = await self._client.update_contact_row(row_id, restored)
        emptied = await self._empty(row_id, record, list(restored))
        # A service that never stores a cell does not clear it.
        kept = [column for column in restored if column not in emptied]
        record = await self._client.update_contact_row(row_id, cells)
        return await self._empty(row_id, record if named else None, kept)

    async def _empty(self, row_id: str, response: ContactRowRecord | None, columns: list[str]) -> list[str]:
        """Return the columns that are empty in the list; by a response if the service cannot read rows."""
        try:
            response = await self._client.get_contact_row(row_id)
        except CpaasRejectedError:
            if response is None:
                return []
        return empty_columns(response, columns)
