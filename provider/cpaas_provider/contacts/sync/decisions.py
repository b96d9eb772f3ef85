"""What is to be done about one row: decided from the source and the key map alone, without a request."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from cpaas_provider.contacts.key_map.entries import REQUESTED, MapEntry, RowState
from cpaas_provider.contacts.key_map.hashes import CellHashes, ContactHashes
from cpaas_provider.contacts.sync.spool import WorkItem


class Action(Enum):
    """What is to be done about a row."""

    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"
    RECORD = "record"
    """The list has these cells already: only the map changes."""
    FORGET = "forget"
    """The row is gone from the source and was never in the list: its entry is removed."""
    NOTHING = "nothing"
    NOT_IN_MODE = "not in mode"
    """``mode`` leaves such rows alone."""
    REJECTED_BEFORE = "rejected before"
    UNKNOWN = "unknown"
    """The outcome of its creation is unknown, and ``on_unknown`` does not create it again."""
    BUSY = "busy"
    """Another task has a request for it under way."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What is to be done about a row, and the cells that are sent for it, by column id."""

    action: Action
    cells: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class SyncRules:
    """What a sync does about rows that differ, as the author has set it; see ``SyncContactsOperator``.

    :param missing_cells: what is written into rows that are gone from the source, by column id, as it goes on the wire
    """

    mode: str = "upsert"
    on_missing: str = "keep"
    missing_cells: Mapping[str, Any] = field(default_factory=dict)
    on_deleted_row: str = "create"
    on_unknown: str = "fail"
    retry_rejected: bool = False
    on_duplicate_key: str = "first"


def decide(
    item: WorkItem,
    entry: MapEntry | None,
    rules: SyncRules,
    hashes: ContactHashes,
    others: Collection[int],
) -> Decision:
    """Return what is to be done about a row.

    :param entry: what the map has for its key; ``None`` for nothing
    :param others: the fencing tokens of other tasks that work on the map now
    """
    if entry is not None and entry.state in REQUESTED and entry.fencing_token in others:
        return Decision(Action.BUSY)
    return _missing(item, entry, rules, hashes) if item.is_missing else _present(item, entry, rules, hashes)


def _present(item: WorkItem, entry: MapEntry | None, rules: SyncRules, hashes: ContactHashes) -> Decision:
    creation = Decision(Action.NOT_IN_MODE if rules.mode == "update" else Action.CREATE, creatable(item.cells))
    if entry is None:
        return creation
    if entry.state in (RowState.CREATING, RowState.UNKNOWN):
        return creation if rules.on_unknown == "create" else Decision(Action.UNKNOWN)
    if entry.rejected_hash == item.raw_hash and not rules.retry_rejected:
        return Decision(Action.REJECTED_BEFORE)
    if entry.row_id is None:
        return creation
    if rules.mode == "insert" and entry.state is not RowState.DELETING:
        return Decision(Action.NOT_IN_MODE)
    known = CellHashes.from_bytes(entry.cell_hashes)
    changed = {
        column: cell for column, cell in item.cells.items() if not known.has(column, hashes.of_cell(column, cell))
    }
    if changed:
        return Decision(Action.UPDATE, changed)
    if entry.raw_hash == item.raw_hash and entry.missing_hash is None and entry.state is RowState.SYNCED:
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
    known = CellHashes.from_bytes(entry.cell_hashes)
    changed = {
        column: cell
        for column, cell in rules.missing_cells.items()
        if not known.has(column, hashes.of_cell(column, cell))
    }
    return Decision(Action.UPDATE, changed) if changed else Decision(Action.RECORD)


def missing_hash(rules: SyncRules, hashes: ContactHashes) -> bytes:
    """Return the hash of what is written into rows that are gone from the source."""
    secret = hashes.row_secret("missing")
    return hashes.of_row(secret, tuple(sorted((column, repr(cell)) for column, cell in rules.missing_cells.items())))


def creatable(cells: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the cells that a new row is created with: those that hold something, or all where none does."""
    return {column: cell for column, cell in cells.items() if cell not in (None, "", [])} or cells


def requested(
    decision: Decision, item: WorkItem, entry: MapEntry | None, *, fencing_token: int, now: Any
) -> MapEntry | None:
    """Return the entry as it is to be before the request leaves: an intent."""
    before = entry or MapEntry(item.key_hash)
    if decision.action is Action.CREATE:
        return MapEntry(
            item.key_hash,
            RowState.CREATING,
            version=before.version,
            fencing_token=fencing_token,
            source_row=item.number or None,
            requested=now,
        )
    if decision.action is Action.UPDATE:
        # Until the response is there, the list may have these cells or those from before.
        known = CellHashes.from_bytes(before.cell_hashes).without(decision.cells)
        return replace(
            before,
            state=RowState.UPDATING,
            raw_hash=None,
            missing_hash=None,
            cell_hashes=known.to_bytes(),
            fencing_token=fencing_token,
        )
    if decision.action is Action.DELETE:
        return replace(
            before,
            state=RowState.DELETING,
            raw_hash=None,
            missing_hash=None,
            cell_hashes=None,
            fencing_token=fencing_token,
        )
    return None


def restored(before: MapEntry | None) -> MapEntry | None:
    """Return the entry from before an intent, of a request that did not leave."""
    return None if before is None else replace(before, fencing_token=None)


def undone(decision: Decision, intent: MapEntry, before: MapEntry | None) -> MapEntry | None:
    """Return the entry of a row whose request was not accepted.

    The client never repeats a creation, so the list is as it was. It repeats an update or a deletion: what was rejected
    or not sent in the end may have been carried out before. Its cells stay unknown until one is accepted.
    """
    return restored(before) if decision.action is Action.CREATE else replace(intent, fencing_token=None)


def in_step(item: WorkItem, entry: MapEntry, row_id: str | None, rules: SyncRules, hashes: ContactHashes) -> MapEntry:
    """Return the entry of a row that the list has as it is to be.

    :param entry: as it was before
    :param row_id: of the row in the list
    """
    cells = rules.missing_cells if item.is_missing else item.cells
    known = CellHashes() if entry.row_id is None else CellHashes.from_bytes(entry.cell_hashes)
    return MapEntry(
        item.key_hash,
        RowState.SYNCED,
        row_id=row_id,
        raw_hash=None if item.is_missing else item.raw_hash,
        missing_hash=missing_hash(rules, hashes) if item.is_missing else None,
        cell_hashes=known.merged(hashes.of_cells(cells)).to_bytes(),
    )
