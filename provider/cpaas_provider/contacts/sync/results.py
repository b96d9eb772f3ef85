"""Records the result of a request: in the key map, in the counts, and as a line of the results file."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from cpaas_provider.contacts.errors import LeaseLostError, SharedRowError, SpoolError
from cpaas_provider.contacts.key_map.entries import Change, MapEntry, RowState
from cpaas_provider.contacts.key_map.hashes import CellHashes
from cpaas_provider.contacts.key_map.key_map import Lease
from cpaas_provider.contacts.key_map.rejections import Rejection, new_rejection
from cpaas_provider.contacts.sync.decisions import Action, SyncRules, in_step, restored, undone
from cpaas_provider.contacts.sync.rows.requests import Response, Result
from cpaas_provider.contacts.sync.run_totals import RunTotals
from cpaas_provider.contacts.sync.spool import OutcomeLine, RowOutcome, Spool, WorkItem
from cpaas_provider.database.errors import DatabaseError

_REJECTIONS_AT_ONCE = 200
_WORD = re.compile(r"[\w-]+")
_WITHOUT_REQUEST = {Action.REJECTED_BEFORE: "rejected_before", Action.NOT_IN_MODE: "not_in_mode"}
_ACCEPTED = {
    Action.CREATE: RowOutcome.CREATED,
    Action.UPDATE: RowOutcome.UPDATED,
    Action.DELETE: RowOutcome.DELETED,
}


@dataclass
class Counts:
    """The counts of a sync in this try."""

    created: int = 0
    updated: int = 0
    deleted: int = 0
    rejected: int = 0
    rejected_partial: int = 0
    """Rejected rows of which a cell could not be used. They do not count as partial rows."""
    unknown: int = 0
    not_sent: int = 0
    unchanged: int = 0
    missing_unchanged: int = 0
    """Rows that are missing from the source, and that need no request."""
    recorded_rejections: int = 0
    """Rejected rows of which the map has recorded that. The next run sends the others again."""
    rejected_before: int = 0
    not_in_mode: int = 0
    requests: int = 0
    done: int = 0
    """Rows of the spool that are finished."""
    earlier: RunTotals = field(default_factory=lambda: RunTotals("", ""))
    """What earlier tries of the run changed."""

    def add_without_request(self, item: WorkItem, action: Action) -> None:
        """Count a row that is finished and needs no request."""
        name = "missing_unchanged" if item.is_missing else _WITHOUT_REQUEST.get(action, "unchanged")
        setattr(self, name, getattr(self, name) + 1)
        self.done += 1


class ResultRecorder:
    """Records the results of requests.

    :param names: names of the list's columns, by id
    :param on_error: called if the results file cannot be written
    """

    def __init__(
        self,
        lease: Lease,
        rules: SyncRules,
        spool: Spool,
        counts: Counts,
        *,
        names: Mapping[str, str],
        on_error: Callable[[Exception], None],
    ) -> None:
        self._lease = lease
        self._rules = rules
        self._spool = spool
        self._counts = counts
        self._names = names
        self._on_error = on_error
        self._in_a_row: list[Result] = []
        self._to_reject: list[Result] = []

    def change_of(self, result: Result) -> Change:
        """Return the change of the key map that records a result."""
        pending, response = result.pending, result.response
        item, intent, before = pending.item, pending.intent, pending.before
        if response in (Response.ACCEPTED, Response.NOT_STORED):
            return Change(intent, self._accepted(result))
        if response is Response.NOT_BEGUN:
            return Change(intent, restored(before))
        if response is Response.NOT_FOUND:
            rejected = replace(intent, rejected_hash=item.raw_hash or None, fencing_token=None)
            return Change(intent, rejected if self._reports_deleted(item) else None)
        if response is Response.CELLS_LOST:
            return Change(intent, replace(undone(pending.decision, intent, before) or intent, cell_hashes=None))
        if response is Response.UNKNOWN and pending.decision.action is Action.CREATE:
            return Change(intent, replace(intent, state=RowState.UNKNOWN, fencing_token=None))
        return Change(intent, undone(pending.decision, intent, before))

    def _accepted(self, result: Result) -> MapEntry | None:
        """Return the entry to store after a request that was accepted."""
        pending = result.pending
        if pending.decision.action is Action.DELETE:
            return None
        hashes, is_whole = self._lease.key_map.hashes, pending.decision.is_whole
        entry = in_step(pending.item, pending.before, result.row_id, self._rules, hashes, is_whole=is_whole)
        # A later try of the run writes the line of this row, if this one is killed.
        is_created = (
            pending.decision.action is Action.CREATE
            or self._counts.earlier.outcome_of(pending.before) is RowOutcome.CREATED
        )
        number = pending.item.number if is_created else None
        entry = replace(entry, fencing_token=self._lease.fencing_token, source_row=number)
        if not result.unstored:
            return entry
        stored = CellHashes.from_bytes(entry.cell_hashes).without(result.unstored)
        return replace(entry, raw_hash=None, missing_hash=None, cell_hashes=stored.to_bytes())

    async def record_rejections(self, *, is_end: bool = False, are_proved: bool = False) -> None:
        """Record rejected rows, many at once, so that later runs do not send them again unless they change.

        A row is recorded only after a later row was accepted, or at the end. So if a failing service rejects all rows,
        they are not recorded, not even after a crash, and the next run sends them again.

        :param is_end: record also a few rows
        :param are_proved: record also the rows that were rejected after the last accepted one
        """
        if not is_end and len(self._to_reject) < _REJECTIONS_AT_ONCE:
            return
        rejected, self._to_reject = self._to_reject + (self._in_a_row if are_proved else []), []
        changes: list[Change] = []
        rejections: list[Rejection] = []
        for result in rejected:
            if result.unstored:
                entry = self._accepted(result)
            else:
                entry = undone(result.pending.decision, result.pending.intent, result.pending.before)
            item = result.pending.item
            # The result was recorded before, so the entry has the next version, or was removed.
            version = 0 if entry is None else result.pending.intent.version + 1
            before = MapEntry(item.key_hash, version=version)
            if entry is None:
                changes.append(Change(before, MapEntry(item.key_hash, RowState.REJECTED, rejected_hash=item.raw_hash)))
            elif entry.state in (RowState.UNKNOWN, RowState.CREATING):
                # A rejected second creation does not tell the outcome of the first one.
                continue
            else:
                changes.append(Change(before, replace(entry, rejected_hash=item.raw_hash or None)))
            if item.raw_hash:
                rejections.append(self._rejection(result))
        if changes:
            # If this cannot be recorded, the next run sends these rows again, and the service rejects them again.
            with contextlib.suppress(LeaseLostError, SharedRowError, DatabaseError):
                changed = await asyncio.to_thread(self._lease.write, changes, None, rejections)
                self._counts.recorded_rejections += len(changes) - len(changed)

    def run_values(self, finished: Sequence[Result]) -> Mapping[str, Any] | None:
        """Return the value that counts what all tries of the run changed, these results included."""
        if not finished:
            return None
        accepted = [result for result in finished if result.response is Response.ACCEPTED]
        actions = [result.pending.decision.action for result in accepted]
        created, updated, deleted = map(actions.count, _ACCEPTED)
        deleted_ids = [result.row_id for result in accepted if result.pending.decision.action is Action.DELETE]
        return self._counts.earlier.value(self._counts, (created, updated, deleted), deleted_ids)

    def _rejection(self, result: Result) -> Rejection:
        """Return what to store of a rejected row. Its columns are those that the error names, or all that were sent."""
        item, cells, reason = result.pending.item, result.pending.decision.cells, result.reason or ""
        words = set(_WORD.findall(reason))
        named = [column for column in cells if column in words or self._names.get(column) in words]
        return new_rejection(
            item.key_hash,
            item.number or None,
            [self._names.get(column, column) for column in named or cells],
            reason,
            self._lease.key_map.clock(),
            self._lease.key_map.hashes.of_cells(cells).to_bytes(),
        )

    def count(self, result: Result) -> bool:
        """Count a recorded result, and write its line of the results file.

        :return: whether the row must be sent again
        """
        if result.response is Response.NOT_BEGUN:
            # It counts as remaining, like the rows that are still in the spool.
            return False
        pending, response = result.pending, result.response
        if response is Response.NOT_FOUND and not self._reports_deleted(pending.item):
            if pending.item.is_missing:
                self._counts.add_without_request(pending.item, pending.decision.action)
            return not pending.item.is_missing
        if response is Response.ACCEPTED:
            outcome = _ACCEPTED[pending.decision.action]
            self._to_reject += self._in_a_row
            self._in_a_row.clear()
            if outcome is RowOutcome.DELETED:
                self._counts.earlier.add_deleted(result.row_id)
        elif response in (Response.REJECTED, Response.NOT_FOUND, Response.NOT_STORED):
            outcome = RowOutcome.REJECTED
            if result.is_final:
                (self._in_a_row if response is Response.REJECTED else self._to_reject).append(result)
        elif response is Response.UNKNOWN and pending.decision.action is Action.CREATE:
            outcome = RowOutcome.UNKNOWN
        else:
            outcome = RowOutcome.NOT_SENT
        columns = ", ".join(self._names.get(column, column) for column in pending.decision.cells) or None
        self._count(pending.item, outcome, result.row_id or pending.intent.row_id, columns, result.reason)
        self._counts.done += 1
        return False

    def count_without_request(self, item: WorkItem, outcome: RowOutcome, reason: str) -> None:
        """Count a row for which no request is made, and write its line of the results file."""
        self._count(item, outcome, reason=reason)
        self._counts.done += 1

    def count_unrecorded(self, finished: Sequence[Result]) -> None:
        """Count results that could not be recorded, and write their lines of the results file."""
        for result in finished:
            accepted = result.response is Response.ACCEPTED
            reason = "the service accepted it, and the key map could not record that" if accepted else result.reason
            creates = result.pending.decision.action is Action.CREATE
            outcome = RowOutcome.UNKNOWN if creates else RowOutcome.NOT_SENT
            self._count(result.pending.item, outcome, result.row_id, None, reason)
            self._counts.done += 1

    def _count(
        self,
        item: WorkItem,
        outcome: RowOutcome,
        row_id: str | None = None,
        columns: str | None = None,
        reason: str | None = None,
    ) -> None:
        """Count a row and write its line of the results file."""
        setattr(self._counts, outcome.value, getattr(self._counts, outcome.value) + 1)
        self._counts.rejected_partial += outcome is RowOutcome.REJECTED and item.is_partial
        try:
            self._spool.add_outcome(OutcomeLine(item.number, item.name, outcome, row_id, columns, reason))
        except SpoolError as error:
            # The sync ends, but results of requests in flight are still recorded in the map.
            self._on_error(error)

    def _reports_deleted(self, item: WorkItem) -> bool:
        return not item.is_missing and (self._rules.on_deleted_row == "report" or self._rules.mode == "update")
