"""Checking a contact list against its key map: rows are read, and their cells compared by hash."""

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
    CpaasAuthenticationError,
    CpaasError,
    CpaasNotFoundError,
    CpaasNotSentError,
)
from cpaas_provider.api.models.contacts import ContactTable
from cpaas_provider.contacts.errors import ContactsError
from cpaas_provider.contacts.key_map.entries import Change, MapEntry, RowState
from cpaas_provider.contacts.key_map.hashes import CellHashes, ContactHashes, column_tag
from cpaas_provider.contacts.key_map.key_map import KeyMap
from cpaas_provider.contacts.key_map.overview import owner_of, released
from cpaas_provider.contacts.mapping.cells import CLEARED, Parse, cell_parser
from cpaas_provider.database.bulk import batched
from cpaas_provider.database.errors import DatabaseError
from cpaas_provider.database.schema import contact_rows

Progress = Callable[[int, int], None]
"""Is called with how many rows were checked, and how many there are to check."""

MAX_UNREADABLE = 100
"""After how many rows that cannot be read a check ends."""

_AT_ONCE = 100
_MAX_OPTIONS = 5


class TooManyGoneError(ContactsError):
    """More rows are gone from the contact list than ``--max-gone`` allows, so that none of them was mended."""

    permanent = True


@dataclass
class VerifyReport:
    """What a check found.

    :param total: rows to check
    :param checked: rows that were checked
    :param equal: rows that have all cells the map knows
    :param different: rows that have other cells
    :param gone: rows that the list no longer has
    :param unknown: rows of whose cells the map knows nothing
    :param changed: rows that a task changed meanwhile
    :param unreadable: rows that could not be read
    :param not_checked: entries that have no row, or a request under way
    :param mended: rows that the next sync mends
    :param columns: how many rows differ in a column, by its name in the list
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
    """One check.

    :param client: reads the rows, at the rate and concurrency it is set to
    :param table: the contact table as it is now
    :param report: takes what is found
    :param default_region: region of national phone numbers
    :param mend: have the next sync send cells that differ, and create rows that are gone
    :param max_gone: with ``mend``, how many rows may be gone
    """

    def __init__(
        self,
        key_map: KeyMap,
        client: AsyncCpaasClient,
        table: ContactTable,
        report: VerifyReport,
        *,
        default_region: str | None,
        mend: bool = False,
        max_gone: int = 100,
    ) -> None:
        self._map = key_map
        self._client = client
        self._comparer = RowComparer(table, key_map.hashes, default_region)
        self._names = {column.id: column.name for column in table.columns}
        self._mend = mend
        self._max_gone = max_gone
        self._drifted: list[tuple[MapEntry, list[str]]] = []
        self._gone: list[MapEntry] = []
        self.report = report

    async def run(self, sample: int | None, progress: Progress) -> None:
        """Check a sample of the rows, or all of them. The report has the result, also when it ends with an error.

        :param sample: how many rows, chosen at random; ``None`` for all
        :param progress: is called after each row
        :raises TooManyGoneError: when more rows are gone than may be; none of them was mended
        :raises CpaasError: when the service cannot be read on
        :raises DatabaseError: when the database cannot be used
        """
        counts = self._map.counts()
        rows = counts[RowState.SYNCED]
        self.report.total = rows if sample is None else min(sample, rows)
        self.report.not_checked = sum(counts.values()) - rows
        entries = _all(self._map) if sample is None else _sampled(self._map, sample)
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
        except CpaasNotFoundError:
            self._gone.append(entry)
            if self._mend and len(self._gone) > self._max_gone:
                raise TooManyGoneError(
                    f"More than {self._max_gone} rows are gone from the contact list. None of these was mended, "
                    "because the connection may lead to another list. If it does not, raise --max-gone."
                ) from None
            return
        except (CpaasAuthenticationError, CpaasNotSentError):
            raise
        except CpaasError:
            report.unreadable += 1
            if report.unreadable > MAX_UNREADABLE:
                raise
            return
        differing = self._comparer.differing(entry.cell_hashes, record.row.columns)
        if differing:
            self._drifted.append((entry, differing))
            if len(self._drifted) >= _AT_ONCE:
                self._flush()
        elif entry.cell_hashes:
            report.equal += 1
        else:
            report.unknown += 1

    def _flush(self) -> None:
        """Count rows that differ, but for those that a task changed meanwhile, and mend them."""
        drifted, self._drifted = self._drifted, []
        columns = {entry.key_hash: differing for entry, differing in drifted}
        changes = []
        for entry in self._unchanged([entry for entry, _ in drifted]):
            differing = columns[entry.key_hash]
            self.report.different += 1
            self.report.columns.update(self._names[column] for column in differing)
            left = CellHashes.from_bytes(entry.cell_hashes).without(differing)
            mended = replace(entry, raw_hash=None, missing_hash=None, cell_hashes=left.to_bytes())
            changes.append(Change(entry, mended))
        if self._mend:
            self._write(changes)

    def _end_gone(self, *, may_mend: bool) -> None:
        """Count rows that are gone, but for those that a task changed meanwhile, and mend them."""
        gone, self._gone = self._gone, []
        found = self._unchanged(gone)
        self.report.gone += len(found)
        if self._mend and may_mend:
            self._write([Change(entry, None) for entry in found])

    def _unchanged(self, entries: list[MapEntry]) -> list[MapEntry]:
        now = self._map.entries(entry.key_hash for entry in entries)
        same = [entry for entry in entries if now.get(entry.key_hash) == entry]
        self.report.changed += len(entries) - len(same)
        return same

    def _write(self, changes: list[Change]) -> None:
        for some in batched(changes):
            with released(self._map.row_lease(owner_of("verify"))) as lease:
                changed = lease.write(some)
            self.report.mended += len(some) - len(changed)


def _all(key_map: KeyMap) -> Iterator[MapEntry]:
    for page in key_map.pages(states=[RowState.SYNCED]):
        yield from (entry for entry in page if entry.row_id is not None)


def _sampled(key_map: KeyMap, count: int) -> Iterator[MapEntry]:
    """Yield some entries with a row, chosen at random."""
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
    with database.connect() as connection:
        keys = [bytes(key_hash) for (key_hash,) in connection.execute(query)]
    for some in batched(keys):
        yield from key_map.entries(some).values()


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
        for tag, cell_hash in CellHashes.from_bytes(known):
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
        yield from map(list, permutations(read)) if len(read) <= _MAX_OPTIONS else [sorted(read)]
