"""What the key map has for one key of the source, and the states of a row of the list."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum
from typing import Any

from sqlalchemy import Row


class RowState(IntEnum):
    """Where a row of the list stands, as far as this provider knows."""

    SYNCED = 0
    CREATING = 1
    """A creation was requested, and no response is recorded."""
    UNKNOWN = 2
    """The outcome of a creation is unknown."""
    REJECTED = 3
    """The service rejected the creation; there is no row."""
    UPDATING = 4
    """An update was requested, and no response is recorded: the changed cells are not known."""
    DELETING = 5
    """A deletion was requested, and no response is recorded."""


REQUESTED = frozenset({RowState.CREATING, RowState.UPDATING, RowState.DELETING})
"""The states of a row that has a request under way, or had one when a try ended."""


@dataclass(frozen=True, slots=True)
class MapEntry:
    """What the map has for one key.

    :param key_hash: the keyed hash of the key
    :param row_id: the row of the list; ``None`` where there is none, or its id is not known
    :param raw_hash: of the source's row as the list has it; ``None`` where the list may have something else
    :param rejected_hash: of the source's row that the service rejected
    :param missing_hash: of what was written when the row was gone from the source
    :param cell_hashes: what the row holds, packed; see ``hashes.CellHashes``
    :param version: counts the changes of the entry; 0 for one that is not stored yet
    :param fencing_token: the lease under which a request is under way
    :param source_row: where the source had the row whose creation was requested
    :param requested: when that was
    """

    key_hash: bytes
    state: RowState = RowState.SYNCED
    row_id: str | None = None
    raw_hash: bytes | None = None
    rejected_hash: bytes | None = None
    missing_hash: bytes | None = None
    cell_hashes: bytes | None = None
    version: int = 0
    fencing_token: int | None = None
    source_row: int | None = None
    requested: datetime | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """One change of the map.

    :param before: the entry as it was read; with version 0 where there was none
    :param after: the entry as it is to be; ``None`` removes it
    """

    before: MapEntry
    after: MapEntry | None


@dataclass(frozen=True)
class MapFacts:
    """What a map is about."""

    map_id: int
    conn_id: str
    name: str
    base_url: str
    table_id: str
    secret: str
    created: datetime


def entry_of(row: Row[Any]) -> MapEntry:
    """Return the entry of a stored row."""
    return MapEntry(
        key_hash=bytes(row.key_hash),
        state=RowState(row.state),
        row_id=row.row_id,
        # A driver of PostgreSQL gives views of memory.
        raw_hash=None if row.raw_hash is None else bytes(row.raw_hash),
        rejected_hash=None if row.rejected_hash is None else bytes(row.rejected_hash),
        missing_hash=None if row.missing_hash is None else bytes(row.missing_hash),
        cell_hashes=None if row.cell_hashes is None else bytes(row.cell_hashes),
        version=row.version,
        fencing_token=row.fencing_token,
        source_row=row.source_row,
        requested=row.requested,
    )


def columns_of(entry: MapEntry) -> dict[str, Any]:
    """Return the columns of an entry, as they are stored."""
    return {name: getattr(entry, name) for name in MapEntry.__slots__} | {"state": int(entry.state)}
