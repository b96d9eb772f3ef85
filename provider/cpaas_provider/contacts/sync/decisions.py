"""Decides on the action for one row, by the source and the key map, without a request, and counts the decisions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

import msgspec
from msgspec import Struct

from cpaas_provider.api.bounds import PARTIAL, WHOLE
from cpaas_provider.contacts.key_map.entries import MapEntry, RowState
from cpaas_provider.contacts.key_map.hashes import CellHashes, ContactHashes
from cpaas_provider.contacts.key_map.key_map import Lease
from cpaas_provider.contacts.mapping.cells import EMPTY_CELLS
from cpaas_provider.contacts.sync.spool import WorkItem


class Action(Enum):
    """The action for a row."""

    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"
    RECORD = "record"
    """The list has these cells already, so only the map is written."""
    FORGET = "forget"
    """The row is missing from the source and was never in the list, so its entry is removed from the map."""
    NOTHING = "nothing"
    NOT_IN_MODE = "not in mode"
    """``mode`` does not allow the request."""
    REJECTED_BEFORE = "rejected before"
    UNKNOWN = "unknown"
    """The outcome of its creation is unknown, and ``on_unknown`` does not create it again."""
    BUSY = "busy"
    """Another task has a request for the row in flight."""


class Decision(Struct, frozen=True):
    """The action for a row, and the cells to send, by column id.

    :param is_whole: whether the service may clear the cells that are not sent
    """

    action: Action
    cells: Mapping[str, Any] = msgspec.field(default_factory=dict)
    is_whole: bool = False


class SyncRules(Struct, frozen=True):
    """The author's rules for rows that differ; see ``SyncContactsOperator``.

    :param missing_cells: the cells to write into rows that are missing from the source, by column id, as on the wire
    :param row_updates: whether an update sends the changed cells (``partial``) or all cells that are known (``whole``)
    :param resends_cells: plan as if the list were not known to have any cell, for the dry run of a resync
    """

    mode: str = "upsert"
    on_missing: str = "keep"
    missing_cells: Mapping[str, Any] = msgspec.field(default_factory=dict)
    on_deleted_row: str = "create"
    on_unknown: str = "fail"
    retry_rejected: bool = False
    on_duplicate_key: str = "first"
    row_updates: str = PARTIAL
    on_invalid_cell: str = "skip_row"
    resends_cells: bool = False


def decide(item: WorkItem, entry: MapEntry | None, rules: SyncRules, lease: Lease) -> Decision:
    """Return the decision about a row.

    :param entry: the map's entry for its key, ``None`` if there is none
    :param lease: that of this task
    """
    own, hashes = lease.fencing_token, lease.key_map.hashes
    token = 0 if entry is None else entry.fencing_token or 0
    if item.is_missing and (token > own or token in lease.concurrent):
        # An upsert wrote the row since the sync acquired its lease, so the source may have been read before that.
        return Decision(Action.NOTHING)
    if entry is not None and entry.is_busy(own):
        return Decision(Action.BUSY)
    if entry is not None and rules.resends_cells:
        entry = replace(entry, raw_hash=None, missing_hash=None, cell_hashes=None)
    return _missing(item, entry, rules, hashes) if item.is_missing else _present(item, entry, rules, hashes)


def _present(item: WorkItem, entry: MapEntry | None, rules: SyncRules, hashes: ContactHashes) -> Decision:
    # The cells of a new row are those that are not empty, or all cells if all are empty.
    filled = {column: cell for column, cell in item.cells.items() if cell not in EMPTY_CELLS}
    creation = Decision(Action.NOT_IN_MODE if rules.mode == "update" else Action.CREATE, filled or item.cells)
    if entry is None:
        return creation
    if entry.state in (RowState.CREATING, RowState.UNKNOWN):
        return creation if rules.on_unknown == "create" else Decision(Action.UNKNOWN)
    if entry.rejected_hash == item.raw_hash and not rules.retry_rejected:
        return Decision(Action.REJECTED_BEFORE)
    if entry.row_id is None:
        return creation
    if changed := _changed(entry, item.cells, hashes):
        is_in_mode = rules.mode != "insert" or entry.state is RowState.DELETING
        return _update(changed, item.cells, rules) if is_in_mode else Decision(Action.NOT_IN_MODE)
    if entry.raw_hash == item.synced_hash and entry.missing_hash is None and entry.state is RowState.SYNCED:
        return Decision(Action.NOTHING)
    return Decision(Action.RECORD)


def _missing(item: WorkItem, entry: MapEntry | None, rules: SyncRules, hashes: ContactHashes) -> Decision:
    if entry is None:
        return Decision(Action.NOTHING)
    if entry.state in (RowState.CREATING, RowState.UNKNOWN):
        return Decision(Action.UNKNOWN)
    if rules.on_missing == "keep":
        return Decision(Action.NOTHING)
    if entry.row_id is None:
        return Decision(Action.FORGET)
    if rules.on_missing == "delete":
        return Decision(Action.DELETE)
    if entry.missing_hash == missing_hash(rules, hashes):
        return Decision(Action.NOTHING)
    changed = _changed(entry, rules.missing_cells, hashes)
    return _update(changed, rules.missing_cells, rules) if changed else Decision(Action.RECORD)


def _update(changed: Mapping[str, Any], cells: Mapping[str, Any], rules: SyncRules) -> Decision:
    is_whole = rules.row_updates == WHOLE
    return Decision(Action.UPDATE, cells if is_whole else changed, is_whole)


def _changed(entry: MapEntry, cells: Mapping[str, Any], hashes: ContactHashes) -> dict[str, Any]:
    """Return the cells that the row is not known to have."""
    known = CellHashes.from_bytes(entry.cell_hashes)
    return {column: cell for column, cell in cells.items() if not known.has(column, hashes.of_cell(column, cell))}


def missing_hash(rules: SyncRules, hashes: ContactHashes) -> bytes:
    """Return the hash of the cells that are written into rows that are missing from the source."""
    secret = hashes.row_secret("missing")
    return hashes.of_row(secret, tuple(sorted((column, repr(cell)) for column, cell in rules.missing_cells.items())))


def requested(decision: Decision, item: WorkItem, before: MapEntry, lease: Lease) -> MapEntry:
    """Return the entry to store before the request leaves (the intent).

    :param before: the entry now; its version is 0 if there is none
    """
    if decision.action is Action.CREATE:
        return MapEntry(
            item.key_hash,
            RowState.CREATING,
            rejected_hash=before.rejected_hash,
            version=before.version,
            fencing_token=lease.fencing_token,
            source_row=item.number or None,
            requested=lease.key_map.clock(),
        )
    # Until the response arrives, the list may have the new or the old cells.
    known = CellHashes() if decision.is_whole else CellHashes.from_bytes(before.cell_hashes).without(decision.cells)
    is_deletion = decision.action is Action.DELETE
    return replace(
        before,
        state=RowState.DELETING if is_deletion else RowState.UPDATING,
        raw_hash=None,
        missing_hash=None,
        cell_hashes=None if is_deletion else known.to_bytes(),
        fencing_token=lease.fencing_token,
    )


def restored(before: MapEntry) -> MapEntry | None:
    """Return the entry to store after an intent whose request did not leave: the one before it, if there was one."""
    return replace(before, fencing_token=None) if before.version else None


def undone(decision: Decision, intent: MapEntry, before: MapEntry) -> MapEntry | None:
    """Return the entry to store after a request that was not accepted.

    The client never retries a creation, so the list is unchanged. It retries updates and deletions: an earlier attempt
    may have changed the row although the last one was rejected or not sent. So the cells stay unknown until a later
    request is accepted.
    """
    return restored(before) if decision.action is Action.CREATE else replace(intent, fencing_token=None)


def in_step(
    item: WorkItem,
    before: MapEntry,
    row_id: str | None,
    rules: SyncRules,
    hashes: ContactHashes,
    *,
    is_whole: bool = False,
) -> MapEntry:
    """Return the entry to store for a row that the list has with all cells of the source.

    :param before: the entry before the request; its version is 0 if there was none
    :param row_id: the id of the row in the list
    :param is_whole: whether the row may have no other cells than those that were sent
    """
    cells = rules.missing_cells if item.is_missing else item.cells
    known = CellHashes() if before.row_id is None or is_whole else CellHashes.from_bytes(before.cell_hashes)
    known |= hashes.of_cells(cells)
    return MapEntry(
        item.key_hash,
        RowState.SYNCED,
        row_id=row_id,
        raw_hash=item.synced_hash,
        missing_hash=missing_hash(rules, hashes) if item.is_missing else None,
        cell_hashes=known.to_bytes(),
    )


_COUNTED = {
    Action.CREATE: "creates",
    Action.UPDATE: "updates",
    Action.DELETE: "deletes",
    Action.RECORD: "records",
    Action.NOTHING: "unchanged",
    Action.NOT_IN_MODE: "not_in_mode",
    Action.REJECTED_BEFORE: "rejected_before",
    Action.BUSY: "busy",
}


@dataclass
class Plan:
    """The result of comparing the source with the key map.

    :param rows: rows of the source, in all partitions
    :param other_partitions: rows that another partition syncs
    :param before_cursor: rows whose cursor is below that of the last run, which are not compared
    :param unchanged: rows that the list already has with these cells
    :param records: rows that the list already has with these cells, and for which the map must be written
    :param unknown_missing: those of the unknown creations whose key no usable row of the source has
    :param missing: rows of the list that are missing from the source; counted only if ``on_missing`` needs them
    :param missing_changes: missing rows that the sync would delete or clear
    :param missing_records: missing rows of which only the map's entry changes
    :param missing_unchanged: missing rows that already are as ``on_missing`` wants them
    :param missing_skipped: missing rows that would be deleted or cleared, but some row of the source has no usable key
        and may be one of them
    :param mapped: rows in the map
    :param known: rows of the source whose key is in the map
    :param cursor: the largest value of the cursor column
    :param invalid_before_cursor: invalid, partial and not-in-mode rows below it, which the next run passes over
    :param without_cursor: rows whose cursor is unknown
    :param future_cursor: rows whose cursor is in the future, beyond which the stored cursor does not move
    :param rejected_before_cursor: rows below the cursor of the last run that the service rejected
    :param unreadable: rows whose key is unknown
    :param partial_rows: rows of which only the cells that can be used are synced. They also count as created, updated
        or unchanged
    :param invalid_cells: cells that cannot be used, by the name of the list column
    """

    rows: int = 0
    other_partitions: int = 0
    before_cursor: int = 0
    unchanged: int = 0
    invalid_rows: int = 0
    partial_rows: int = 0
    invalid_cells: Counter[str] = field(default_factory=Counter)
    duplicates: int = 0
    unreadable: int = 0
    not_in_mode: int = 0
    rejected_before: int = 0
    unknown: int = 0
    unknown_missing: int = 0
    busy: int = 0
    creates: int = 0
    updates: int = 0
    deletes: int = 0
    records: int = 0
    missing: int = 0
    missing_changes: int = 0
    missing_records: int = 0
    missing_unchanged: int = 0
    missing_skipped: int = 0
    mapped: int = 0
    known: int = 0
    cursor: Any = None
    invalid_before_cursor: int = 0
    without_cursor: int = 0
    future_cursor: int = 0
    rejected_before_cursor: int = 0
    unknown_rows: list[dict[str, Any]] = field(default_factory=list)

    def add(self, action: Action, number: int = 1) -> None:
        """Count rows by the action that was decided for them."""
        name = _COUNTED[action]
        setattr(self, name, getattr(self, name) + number)

    @property
    def requests(self) -> int:
        """The number of requests that the sync needs."""
        return self.creates + self.updates + self.deletes

    @property
    def work(self) -> int:
        """The number of rows in the spool."""
        return self.requests + self.records + self.missing_records + self.busy

    @property
    def here(self) -> int:
        """The number of rows of the source in this partition."""
        return self.rows - self.other_partitions
