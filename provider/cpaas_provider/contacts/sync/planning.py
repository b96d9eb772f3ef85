"""Planning: reads the source once and compares it with the key map, before the first request."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from cpaas_provider.api.amounts import counted
from cpaas_provider.api.errors import CpaasInvalidRequestError
from cpaas_provider.contacts.key_map.entries import MapEntry, RowState
from cpaas_provider.contacts.key_map.hashes import bucket_of
from cpaas_provider.contacts.key_map.key_map import Lease
from cpaas_provider.contacts.mapping.rows import InvalidRowError, RowMapping
from cpaas_provider.contacts.sync.cursor import Cursor
from cpaas_provider.contacts.sync.decisions import Action, Plan, SyncRules, decide
from cpaas_provider.contacts.sync.run_totals import RunTotals
from cpaas_provider.contacts.sync.spool import KEY_SEPARATOR, OutcomeLine, RowOutcome, Spool, WorkItem
from cpaas_provider.sources.base import NO_ABSENT_COLUMNS, InvalidRow, Row, Table

_GROUP_SIZE = 2_000
_UNREADABLE = "the row cannot be read: "

_SourceRow = tuple[int, str, bytes, Mapping[str, Any]]
"""Row number, key in plain, raw hash and values."""


_SPOOLED = frozenset({Action.CREATE, Action.UPDATE, Action.DELETE, Action.RECORD, Action.FORGET, Action.BUSY})
UNKNOWN_ROWS = 100
"""The most unknown creations that the report names. The results file names all."""


class Planner:
    """Reads a source, and stores the rows that may differ in a spool.

    :param earlier: what earlier tries of the run changed; their rows have a line in the results of this try, too
    :param check: called between groups of rows; raises if the task has to stop
    :param progress: called between groups of rows with the plan so far
    """

    def __init__(
        self,
        lease: Lease,
        mapping: RowMapping,
        rules: SyncRules,
        spool: Spool,
        *,
        cursor: Cursor | None,
        earlier: RunTotals,
        check: Callable[[], None],
        progress: Callable[[Plan], None],
    ) -> None:
        self._map = lease.key_map
        self._lease = lease
        self._mapping = mapping
        self._rules = rules
        self._spool = spool
        self._row_secret = self._map.hashes.row_secret(mapping.rules_signature + mapping.type_signature)
        self._cursor = cursor
        self._earlier = earlier
        self._check = check
        self._progress = progress
        self.plan = Plan()

    def read(self, table: Table, *, whole: bool) -> Plan:
        """Read all rows and return the plan.

        :param whole: whether the source has all rows; if not, no row counts as missing
        :raises SourceError: when the source cannot be read on
        """
        wanted = list(self._mapping.source_columns)
        if self._cursor is not None and self._cursor.column not in wanted:
            wanted.append(self._cursor.column)
        # Before the source is read: rows that upserts add meanwhile are not those that an earlier sync knew.
        self.plan.mapped = sum(
            count for state, count in self._map.counts(self._lease.buckets).items() if state is not RowState.REJECTED
        )
        rows = table.rows(wanted)
        while batch := list(islice(rows, _GROUP_SIZE)):
            before = replace(self.plan, unknown_rows=list(self.plan.unknown_rows))
            try:
                self._read_group(batch, wanted)
            except Exception:
                # Rows of a group that was not finished have no outcome, so they do not count as read.
                vars(self.plan).update(vars(before))
                raise
            self._pause()
        if self._cursor is not None:
            self.plan.cursor = self._cursor.reached
            self.plan.invalid_before_cursor = self._cursor.invalid_before
            self.plan.without_cursor = self._cursor.without_value
            self.plan.future_cursor = self._cursor.future
            self.plan.rejected_before_cursor = len(self._spool.unseen(self._map.rejected()))
        # A column that no row has would be cleared in every row. A source class of the author may lack this property.
        never = getattr(table, "absent", NO_ABSENT_COLUMNS)
        absent = [name for name in self._mapping.source_columns if name in never]
        if absent and self.plan.rows > self.plan.unreadable:
            raise CpaasInvalidRequestError(
                f"No row of the source has {' or '.join(map(repr, absent))}, which the mapping reads. Nothing was "
                "sent. Correct the name in columns. A row without a value has None there."
            )
        self._count_unread_unknown()
        for row_id in self._earlier.earlier_deleted_ids(self._map):
            self._spool.add_outcome(OutcomeLine(None, None, RowOutcome.DELETED, row_id))
        if self._rules.on_missing != "keep" and whole:
            self._add_missing_rows()
        return self.plan

    def _read_group(self, rows: Sequence[Row | InvalidRow], wanted: Sequence[str]) -> None:
        plan, hashes, secret = self.plan, self._map.hashes, self._row_secret
        first, end = self._lease.buckets
        raw_values = self._mapping.raw_values
        group: dict[bytes, _SourceRow] = {}
        duplicates: list[tuple[bytes, _SourceRow]] = []
        for row in rows:
            plan.rows += 1
            if isinstance(row, InvalidRow):
                self._unreadable(row.number, _UNREADABLE + row.reason)
                continue
            number, values = row
            cells = dict(zip(wanted, values, strict=True))
            try:
                is_new = self._cursor is None or self._cursor.is_new(cells, number)
            except ValueError as error:
                self._unreadable(number, str(error))
                continue
            if not is_new:
                plan.before_cursor += 1
                continue
            try:
                key = self._mapping.key_of(cells)
            except ValueError as error:
                self._unreadable(number, str(error), cells)
                continue
            if key is None:
                self._unreadable(number, "the key is blank", cells)
                continue
            key_hash = hashes.of_key(key)
            if not first <= bucket_of(key_hash) < end:
                plan.other_partitions += 1
                continue
            source_row: _SourceRow = (number, KEY_SEPARATOR.join(key), hashes.of_row(secret, raw_values(cells)), cells)
            if key_hash in group:
                duplicates.append((key_hash, source_row))
            else:
                group[key_hash] = source_row
        earlier = self._spool.add_seen([(key_hash, source_row[0]) for key_hash, source_row in group.items()])
        self._compare({key_hash: source_row for key_hash, source_row in group.items() if key_hash not in earlier})
        for key_hash, number in earlier.items():
            self._duplicate(key_hash, group[key_hash], number)
        for key_hash, source_row in duplicates:
            self._duplicate(key_hash, source_row, earlier.get(key_hash, group[key_hash][0]))

    def _compare(self, rows: Mapping[bytes, _SourceRow]) -> None:
        """Add the rows that may differ from the list to the spool.

        :param rows: by key hash
        """
        plan = self.plan
        if self._earlier.tokens:
            for key_hash, known_entry in self._map.entries(rows).items():
                self._add_earlier(known_entry, *rows[key_hash][:2])
        known = {} if self._rules.resends_cells else self._map.raw_hashes(list(rows))
        differing = {key_hash: row for key_hash, row in rows.items() if known.get(key_hash) != row[2]}
        plan.unchanged += len(rows) - len(differing)
        plan.known += len(rows) - len(differing)
        if not differing:
            return
        entries = self._map.entries(differing)
        plan.known += sum(entry.state is not RowState.REJECTED for entry in entries.values())
        rejected: list[WorkItem] = []
        work: list[tuple[WorkItem, str]] = []
        for key_hash, (number, name, raw_hash, values) in differing.items():
            entry = entries.get(key_hash)
            try:
                item = WorkItem(key_hash, number, name, raw_hash, self._mapping.cells(values))
            except InvalidRowError as error:
                plan.invalid_cells.update(cell.column for cell in error.cells)
                if self._rules.on_invalid_cell == "skip_row" or not error.usable:
                    self._invalid(number, name, str(error), values)
                    if entry is not None:
                        self._count_unknown(entry, number, name, is_missing=True)
                    continue
                columns = ", ".join(cell.column for cell in error.cells)
                self._spool.add_outcome(OutcomeLine(number, name, RowOutcome.INVALID_CELL, None, columns, str(error)))
                item = WorkItem(key_hash, number, name, raw_hash, error.usable, is_partial=True)
            action = decide(item, entry, self._rules, self._lease).action
            if action is Action.UNKNOWN and entry is not None:
                self._count_unknown(entry, number, name)
            else:
                plan.add(action)
            is_partial = item.is_partial and action is not Action.REJECTED_BEFORE
            plan.partial_rows += is_partial
            if self._cursor is not None and (is_partial or action is Action.NOT_IN_MODE):
                self._cursor.add_invalid(values)
            if action in _SPOOLED:
                work.append((item, action.value))
            elif action is Action.REJECTED_BEFORE:
                rejected.append(item)
        self._spool.add_work(work)
        if rejected:
            self._add_rejected_before(rejected)

    def _add_earlier(self, entry: MapEntry, number: int | None = None, name: str | None = None) -> None:
        """Write the line of a row that an earlier try of the run changed."""
        if (outcome := self._earlier.outcome_of(entry)) is not None:
            self._spool.add_outcome(OutcomeLine(number, name, outcome, entry.row_id))

    def _add_rejected_before(self, items: Sequence[WorkItem]) -> None:
        """Write the lines of rows that the service rejected, and that did not change since."""
        rejections = self._map.rejections(item.key_hash for item in items)
        for item in items:
            columns, reason = None, "rejected by an earlier try or run, and not changed since"
            if (rejection := rejections.get(item.key_hash)) is not None:
                columns = ", ".join(rejection.columns)
                since = f"{counted(rejection.times, 'time')}, first {rejection.since:%Y-%m-%d}"
                reason = f"not changed since it was rejected ({since}): {rejection.reason}"
            self._spool.add_outcome(OutcomeLine(item.number, item.name, RowOutcome.REJECTED, None, columns, reason))

    def _duplicate(self, key_hash: bytes, row: _SourceRow, first_number: int) -> None:
        """Record a row with the same key as an earlier row of the source."""
        number, name, _, cells = row
        self.plan.duplicates += 1
        none_is_used = self._rules.on_duplicate_key == "none"
        used = "so none of them is used" if none_is_used else "and only the first row of a key counts"
        self._invalid(number, name, f"its key is that of row {first_number}, {used}", cells)
        if none_is_used and (removed := self._spool.remove_work(key_hash)) is not None:
            action, is_partial = removed
            self.plan.add(Action(action), -1)
            self.plan.partial_rows -= is_partial
            self._invalid(first_number, name, "another row of the source has its key, so none of them is used", cells)

    def _unreadable(self, number: int, reason: str, cells: Mapping[str, Any] | None = None) -> None:
        self.plan.unreadable += 1
        # Its partition is unknown, so only the first partition reports it.
        if self._lease.buckets[0] == 0:
            self._invalid(number, None, reason, cells)
        else:
            self.plan.other_partitions += 1

    def _invalid(self, number: int, name: str | None, reason: str, cells: Mapping[str, Any] | None = None) -> None:
        """Record an invalid row.

        :param cells: its cells, if its cursor can be compared
        """
        self.plan.invalid_rows += 1
        if self._cursor is not None:
            if cells is None:
                self._cursor.without_value += 1
            else:
                self._cursor.add_invalid(cells)
        self._spool.add_outcome(OutcomeLine(number, name, RowOutcome.INVALID, reason=reason))

    def _count_unread_unknown(self) -> None:
        """Count unknown creations whose key was not in the source."""
        states = (RowState.CREATING, RowState.UNKNOWN)
        for page in self._map.pages(self._lease.buckets, states=states):
            absent = self._spool.unseen(entry.key_hash for entry in page)
            for entry in page:
                if entry.key_hash in absent:
                    self._count_unknown(entry, is_missing=True)
            self._pause()

    def _count_unknown(
        self, entry: MapEntry, number: int | None = None, name: str | None = None, *, is_missing: bool = False
    ) -> None:
        """Count a creation of unknown outcome, unless another task has its request in flight.

        :param is_missing: whether no usable row of the source has its key
        """
        if not entry.is_unknown(self._lease.fencing_token):
            return
        self.plan.unknown += 1
        self.plan.unknown_missing += is_missing
        since = "" if entry.requested is None else f" since {entry.requested:%Y-%m-%d %H:%M} UTC"
        where = entry.source_row if number is None else number
        reason = f"the outcome of its creation is unknown{since}"
        line = OutcomeLine(where, name, RowOutcome.UNKNOWN, reason=reason)
        self._spool.add_outcome(line, is_of_source=number is not None)
        named = {"row": where, "key_hash": entry.key_hash.hex()}
        bisect.insort(self.plan.unknown_rows, named, key=lambda named: (named["row"] is None, named["row"] or 0))
        del self.plan.unknown_rows[UNKNOWN_ROWS:]

    def _add_missing_rows(self) -> None:
        """Add rows that are missing from the source to the spool."""
        plan = self.plan
        for page in self._map.pages(self._lease.buckets):
            absent = self._spool.unseen(entry.key_hash for entry in page)
            work: list[tuple[WorkItem, str]] = []
            for entry in page:
                if entry.key_hash not in absent or entry.state in (RowState.CREATING, RowState.UNKNOWN):
                    continue
                self._add_earlier(entry)
                item = WorkItem(entry.key_hash, None, None, b"", {})
                plan.missing += 1
                action = decide(item, entry, self._rules, self._lease).action
                is_record = action in (Action.FORGET, Action.RECORD)
                if action not in _SPOOLED:
                    plan.missing_unchanged += 1
                elif plan.unreadable:
                    # A row that cannot be read may have the key of any row that seems to be missing.
                    plan.missing_skipped += not is_record
                    plan.missing_unchanged += is_record
                else:
                    work.append((item, action.value))
                    plan.missing_changes += not is_record
                    if is_record:
                        plan.missing_records += 1
                    else:
                        plan.add(action)
            self._spool.add_work(work)
            self._pause()

    def _pause(self) -> None:
        self._check()
        self._progress(self.plan)
        self._lease.renew_if_due()
