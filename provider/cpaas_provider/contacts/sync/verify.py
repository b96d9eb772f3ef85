"""Checks a contact list against its key map: reads rows from the service and compares the hashes of their cells."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import permutations
from typing import Any

from sqlalchemy import func, select

from cpaas_provider.api.client import AsyncCpaasClient
from cpaas_provider.api.errors import (
    CpaasError,
    CpaasNotSentError,
    CpaasRejectedError,
)
from cpaas_provider.api.models.contacts import ContactTable
from cpaas_provider.api.recipients.invalid import InvalidMsisdnError
from cpaas_provider.api.recipients.msisdn import INTERNATIONAL, NumberReader
from cpaas_provider.contacts.errors import ContactsError, PermanentContactsError
from cpaas_provider.contacts.key_map.entries import Change, MapEntry, RowState
from cpaas_provider.contacts.key_map.hashes import CellHashes, ContactHashes, column_tag
from cpaas_provider.contacts.key_map.key_map import KeyMap
from cpaas_provider.contacts.key_map.overview import owner_of, released, without_cursor
from cpaas_provider.contacts.mapping.cells import EMPTY_CELLS, Parse, cell_parser, column_type
from cpaas_provider.contacts.sync.rows.finder import ACCOUNT_ERRORS, Presence, RowFinder
from cpaas_provider.database.bulk import batched
from cpaas_provider.database.errors import DatabaseError
from cpaas_provider.database.schema.contacts import contact_rows

Progress = Callable[[int, int], None]
"""Called with the number of rows checked, and the number of rows to check."""

MAX_UNREADABLE = 100
"""A check ends after more unreadable rows than this."""

_BATCH_SIZE = 100
_MAX_OPTIONS = 5


class TooManyGoneError(PermanentContactsError):
    """More rows are gone from the contact list than ``--max-gone`` allows, so that none of them was mended."""


@dataclass
class VerifyReport:
    """The result of a check.

    :param total: rows to check
    :param checked: rows that were checked
    :param equal: rows that have all cells the map knows
    :param different: rows that have other cells
    :param gone: rows that the list no longer has
    :param unknown: rows for which the map has no cell hash of a column of the list
    :param changed: rows that a task changed meanwhile
    :param unreadable: rows that could not be read
    :param not_checked: entries that have no row, or a request in flight
    :param mended: rows that the next sync will correct
    :param columns: the number of rows that differ in a column, by the name of the list column
    """

    total: int = 0
    checked: int = 0
    equal: int = 0
    different: int = 0
    gone: int = 0
    unknown: int = 0
    changed: int = 0
    unreadable: int = 0
    not_checked: int = 0
    mended: int = 0
    columns: Counter[str] = field(default_factory=Counter)


class Verification:
    """One check of a contact list.

    :param client: reads the rows, at its own rate and concurrency
    :param table: the contact table as it is now
    :param report: receives the result
    :param numbers: reads phone numbers as the connection has it
    :param mend: make the next sync send cells that differ, and create rows that are gone
    :param max_gone: with ``mend``, the most rows that may be gone
    """

    def __init__(
        self,
        key_map: KeyMap,
        client: AsyncCpaasClient,
        table: ContactTable,
        report: VerifyReport,
        *,
        numbers: NumberReader,
        mend: bool = False,
        max_gone: int = 100,
    ) -> None:
        self._map = key_map
        self._client = client
        self._finder = RowFinder(client, [key_map], {column.id: column.name for column in table.columns})
        self._comparer = RowComparer(table, key_map.hashes, numbers)
        self._names = {column.id: column.name for column in table.columns}
        self._mend = mend
        self._max_gone = max_gone
        self._drifted: list[tuple[MapEntry, list[str]]] = []
        self._gone: list[MapEntry] = []
        self.report = report

    async def run(self, sample: int | None, progress: Progress, *, with_cells: bool = False) -> None:
        """Check a sample of the rows, or all rows. The report has the result, also if the check ends with an error.

        :param sample: the number of rows, chosen at random; ``None`` for all
        :param progress: called after each row
        :param with_cells: choose the sample from the rows of which the map knows a cell
        :raises TooManyGoneError: when more than ``max_gone`` rows are gone; none of them was mended
        :raises CpaasError: when the service cannot be read further
        :raises DatabaseError: when the database cannot be used
        """
        counts = self._map.counts()
        rows = counts[RowState.SYNCED]
        self.report.total = rows if sample is None else min(sample, rows)
        self.report.not_checked = sum(counts.values()) - rows
        pages = self._map.pages(states=[RowState.SYNCED]) if sample is None else _sampled(self._map, sample, with_cells)
        entries = (entry for page in pages for entry in page if entry.row_id is not None)
        failed: list[BaseException] = []
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(self._client.settings.max_concurrency, self.report.total)):
                    group.create_task(self._work(entries, progress))
        except* (CpaasError, ContactsError, DatabaseError) as errors:
            failed = list(errors.exceptions)
        finally:
            self._flush()
        self._end_gone(may_mend=not failed)
        if failed:
            raise failed[0]

    async def _work(self, entries: Iterator[MapEntry], progress: Progress) -> None:
        for entry in entries:
            await self._check(entry)
            self.report.checked += 1
            progress(self.report.checked, self.report.total)

    async def _check(self, entry: MapEntry) -> None:
        report = self.report
        try:
            record = await self._client.get_contact_row(entry.row_id or "")
        except (*ACCOUNT_ERRORS, CpaasNotSentError):
            raise
        except CpaasError as unread:
            if await self._is_gone(entry, unread):
                self._add_gone(entry)
                return
            report.unreadable += 1
            if report.unreadable > MAX_UNREADABLE:
                raise
            return
        self._finder.add_read(record.row.id)
        differing = self._comparer.differing(entry.cell_hashes, record.row.columns)
        if differing:
            self._drifted.append((entry, differing))
            if len(self._drifted) >= _BATCH_SIZE:
                self._flush()
        elif self._comparer.has_column_of(entry.cell_hashes):
            report.equal += 1
        else:
            report.unknown += 1

    async def _is_gone(self, entry: MapEntry, unread: CpaasError) -> bool:
        """Tell whether a row that cannot be read is gone. An error of the account or the network ends the check."""
        if not isinstance(unread, CpaasRejectedError):
            return False
        try:
            return await self._finder.find_unreadable(entry.row_id or "", unread) is Presence.GONE
        except (*ACCOUNT_ERRORS, CpaasNotSentError):
            raise
        except CpaasError:
            return False

    def _add_gone(self, entry: MapEntry) -> None:
        self._gone.append(entry)
        if self._mend and len(self._gone) > self._max_gone:
            raise TooManyGoneError(
                f"More than {self._max_gone} rows are gone from the contact list. None of these was mended, "
                "because the connection may lead to another list. If it does not, raise --max-gone."
            )

    def _flush(self) -> None:
        """Count and mend rows that differ, except those that a task changed meanwhile."""
        drifted, self._drifted = self._drifted, []
        columns = {entry.key_hash: differing for entry, differing in drifted}
        changes = []
        for entry in self._unchanged([entry for entry, _ in drifted]):
            differing = columns[entry.key_hash]
            self.report.different += 1
            self.report.columns.update(self._names[column] for column in differing)
            remaining = CellHashes.from_bytes(entry.cell_hashes).without(differing)
            mended = replace(entry, raw_hash=None, missing_hash=None, cell_hashes=remaining.to_bytes())
            changes.append(Change(entry, mended))
        if self._mend:
            self._write(changes)

    def _end_gone(self, *, may_mend: bool) -> None:
        """Count and mend rows that are gone, except those that a task changed meanwhile."""
        gone = self._unchanged(self._gone)
        self._gone = []
        self.report.gone += len(gone)
        if self._mend and may_mend:
            self._write([Change(entry, None) for entry in gone])

    def _unchanged(self, entries: list[MapEntry]) -> list[MapEntry]:
        now = self._map.entries(entry.key_hash for entry in entries)
        same = [entry for entry in entries if now.get(entry.key_hash) == entry]
        self.report.changed += len(entries) - len(same)
        return same

    def _write(self, changes: list[Change]) -> None:
        for batch in batched(changes):
            with released(self._map.row_lease(owner_of("verify"))) as lease:
                changed = lease.write(batch, without_cursor(self._map))
            self.report.mended += len(batch) - len(changed)


def _sampled(key_map: KeyMap, count: int, with_cells: bool) -> Iterator[list[MapEntry]]:
    """Yield ``count`` entries with a row, chosen at random, page by page."""
    database = key_map.database
    chance = func.rand() if database.engine.dialect.name in ("mysql", "mariadb") else func.random()
    query = (
        select(contact_rows.c.key_hash)
        .where(
            contact_rows.c.map_id == key_map.facts.map_id,
            contact_rows.c.state == int(RowState.SYNCED),
            contact_rows.c.row_id.is_not(None),
        )
        .order_by(chance)
        .limit(count)
    )
    if with_cells:
        query = query.where(contact_rows.c.cell_hashes > b"")
    with database.connect() as connection:
        keys = [bytes(key_hash) for (key_hash,) in connection.execute(query)]
    for batch in batched(keys):
        yield list(key_map.entries(batch).values())


class RowComparer:
    """Compares rows that the service returned with the hashes of the cells that were sent.

    A service may return a cell in another form than it was sent, such as ``"1"`` for ``1``. So each cell is parsed like
    a value of a source, by its column's type.

    :param table: the contact table as it is now
    :param numbers: reads phone numbers as the connection has it
    """

    def __init__(self, table: ContactTable, hashes: ContactHashes, numbers: NumberReader) -> None:
        self._hashes = hashes
        self._columns: dict[bytes, tuple[str, Parse]] = {
            column_tag(column.id): (column.id, _returned_cell_parser(column.type, numbers)) for column in table.columns
        }

    def has_column_of(self, known: bytes | None) -> bool:
        """Return whether a cell of a known hash can be compared: another table has other columns."""
        return not self._columns.keys().isdisjoint(CellHashes.from_bytes(known))

    def differing(self, known: bytes | None, cells: Mapping[str, Any]) -> list[str]:
        """Return the ids of the columns whose cells differ from the hashes.

        A column that the table no longer has is skipped.

        :param known: the packed hashes of the row's cells
        :param cells: the row's cells by column id, as the service returned them
        """
        differing = []
        for tag, cell_hash in CellHashes.from_bytes(known).items():
            if (column := self._columns.get(tag)) is None:
                continue
            column_id, parse = column
            forms = _forms(cells.get(column_id), parse)
            if all(self._hashes.of_cell(column_id, form) != cell_hash for form in forms):
                differing.append(column_id)
        return differing


def _returned_cell_parser(written_type: str, numbers: NumberReader) -> Parse:
    """Return a function that reads a cell as the service returns it: its digits of a number are international."""
    parse = cell_parser(written_type, numbers=numbers)
    if column_type(written_type) != "PHONE NUMBER":
        return parse

    def read(cell: Any) -> Any:
        try:
            return INTERNATIONAL.read(cell)
        except InvalidMsisdnError:
            return parse(cell)

    return read


def _forms(cell: Any, parse: Parse) -> Iterator[Any]:
    """Yield the forms in which a cell may have been sent, the likeliest first."""
    yield cell
    try:
        parsed = parse(cell)
    except ValueError:
        return
    if parsed is None:
        yield from EMPTY_CELLS
        return
    yield parsed
    if isinstance(parsed, list):
        # A service may return options in another order. Of many options, only the sorted order is tried.
        yield from map(list, permutations(parsed)) if len(parsed) <= _MAX_OPTIONS else [sorted(parsed)]
