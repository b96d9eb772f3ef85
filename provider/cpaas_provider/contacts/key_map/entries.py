"""An entry of the key map, which belongs to one key of the source, and its states."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import IntEnum
from typing import Any, NamedTuple

from sqlalchemy import Row


class RowState(IntEnum):
    """The state of a row of the contact list, as far as the provider knows."""

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


_REQUESTED = frozenset({RowState.CREATING, RowState.UPDATING, RowState.DELETING})
"""The states of a row whose last request has no recorded result: it is in flight, or the try ended before."""


@dataclass(frozen=True, slots=True)
class MapEntry:
    """The entry of the key map for one key.

    :param key_hash: the keyed hash of the key
    :param row_id: the id of the row in the list; ``None`` if there is no row, or its id is not known
    :param raw_hash: the hash of the source row that the list has; ``None`` if the list may have other cells
    :param rejected_hash: the hash of the source row that the service rejected
    :param missing_hash: the hash of the cells that were written because the row is missing from the source
    :param cell_hashes: the hashes of the row's cells, packed; see ``hashes.CellHashes``
    :param version: counts the changes of the entry; 0 for an entry that is not stored yet
    :param fencing_token: the fencing token of the lease under which a request was started
    :param source_row: the number of the source row whose creation was requested
    :param requested: when the creation was requested
    :param is_leased: whether the lease of ``fencing_token`` was valid in the snapshot of the database in which the
        entry was read; ``key_map.KeyMap`` sets it
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
    is_leased: bool = field(default=False, compare=False)

    def is_busy(self, own: int | None = None) -> bool:
        """Return whether another task has a request for the row in flight.

        :param own: the fencing token of this task's lease
        """
        return self.state in _REQUESTED and self.is_leased and self.fencing_token != own

    def is_unknown(self, own: int | None = None) -> bool:
        """Return whether the outcome of the row's creation is unknown: recorded so, or its task ended without a result.

        :param own: the fencing token of this task's lease
        """
        return self.state is RowState.UNKNOWN or (self.state is RowState.CREATING and not self.is_busy(own))


class RowOwner(NamedTuple):
    """An entry that has a row, and the name of its map."""

    map_name: str
    entry: MapEntry


@dataclass(frozen=True, slots=True)
class Change:
    """One change of the map.

    :param before: the entry as it was read; its version is 0 if there was none
    :param after: the new entry; ``None`` removes the entry
    """

    before: MapEntry
    after: MapEntry | None


@dataclass(frozen=True)
class MapFacts:
    """The identity of a key map: its connection, name and contact list."""

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
        # Some PostgreSQL drivers return memoryview objects.
        raw_hash=None if row.raw_hash is None else bytes(row.raw_hash),
        rejected_hash=None if row.rejected_hash is None else bytes(row.rejected_hash),
        missing_hash=None if row.missing_hash is None else bytes(row.missing_hash),
        cell_hashes=None if row.cell_hashes is None else bytes(row.cell_hashes),
        version=row.version,
        fencing_token=row.fencing_token,
        source_row=row.source_row,
        requested=row.requested,
        # Only a query that reads the leases too has this column.
        is_leased=bool(getattr(row, "is_leased", False)),
    )


def columns_of(entry: MapEntry) -> dict[str, Any]:
    """Return an entry as values for the columns of the database table."""
    return {name: getattr(entry, name) for name in _STORED} | {"state": int(entry.state)}


_STORED = tuple(name for name in MapEntry.__slots__ if name != "is_leased")
