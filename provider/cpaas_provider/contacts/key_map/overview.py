"""The contents of a key map for commands and pages: counts, leases, stored values and unknown creations."""

from __future__ import annotations

import bisect
import contextlib
import json
import os
import socket
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

from msgspec import Struct
from sqlalchemy import select

from cpaas_provider.contacts.key_map.entries import MapEntry, RowState
from cpaas_provider.contacts.key_map.hashes import BUCKETS
from cpaas_provider.contacts.key_map.key_map import IMPORTING, KeyMap, Lease
from cpaas_provider.contacts.key_map.maps import find_map, open_map
from cpaas_provider.contacts.key_map.rejections import Rejection, newest
from cpaas_provider.database.database import Database
from cpaas_provider.database.errors import DatabaseError
from cpaas_provider.database.schema.contacts import contact_leases, contact_map_values, contact_maps

KEY_COLUMNS = "key_columns"
"""The stored value that holds the names of the source columns that the keys are made of."""

CURSOR = "cursor"
"""The stored value that holds the cursor of a sync."""

RECIPIENT_COLUMNS = "recipient_columns"
"""The stored value that holds the ids of the list columns of type PHONE NUMBER and EMAIL."""

STATE_WORDS = {state: state.name.lower() for state in RowState} | {RowState.UNKNOWN: "unknown_creations"}


class LeaseFacts(Struct, frozen=True):
    """A valid lease.

    :param share: the share of the keys that it covers, 0 to 1; 0 for a lease on single rows
    """

    owner: str
    until: datetime
    share: float


class MapStatus(Struct, frozen=True):
    """The contents of a key map now.

    :param counts: the number of entries by state; a requested creation without a valid lease counts as unknown
    :param leases: the valid leases
    :param cursor: the cursor's value, a number or as text; ``None`` without one
    :param key_columns: the names of the source columns that the keys are made of
    :param is_importing: whether an import of the map is not finished
    :param unknown: the first unknown creations
    :param rejected_rows: the number of rows that the service rejected, and that were not accepted since
    :param rejected: those of them that were rejected last
    """

    counts: dict[RowState, int]
    leases: list[LeaseFacts]
    cursor: Any
    key_columns: list[str]
    is_importing: bool
    unknown: list[MapEntry]
    rejected_rows: int
    rejected: list[Rejection]


def status_of(key_map: KeyMap, *, limit: int) -> MapStatus:
    """Return the contents of a key map.

    :param limit: the most unknown creations to return, in the order of the source, and the most rejected rows
    :raises DatabaseError: when the database cannot be read
    """
    counts = key_map.counts()
    unknown: list[MapEntry] = []
    without_lease = 0
    for entry in unknown_creations(key_map):
        without_lease += entry.state is RowState.CREATING
        bisect.insort(unknown, entry, key=source_order)
        del unknown[limit:]
    counts[RowState.CREATING] -= without_lease
    counts[RowState.UNKNOWN] += without_lease
    with key_map.database.connect() as connection:
        rejected_rows, rejected = newest(connection, key_map.facts.conn_id, key_map.facts.name, limit)
    return MapStatus(
        counts,
        leases_of(key_map),
        _cursor_of(key_map),
        list(key_map.value(KEY_COLUMNS) or ()),
        key_map.value(IMPORTING) is not None,
        unknown,
        rejected_rows,
        rejected,
    )


def _cursor_of(key_map: KeyMap) -> Any:
    """Return the value of the stored cursor, without its type; ``None`` if there is none in a readable form."""
    stored = key_map.value(CURSOR)
    value = stored.get("value") if isinstance(stored, dict) else None
    return next(iter(value.values()), None) if isinstance(value, dict) else value


def source_order(entry: MapEntry) -> tuple[bool, int]:
    """Return a key that sorts entries by their row in the source, those without a row number last."""
    return entry.source_row is None, entry.source_row or 0


def leases_of(key_map: KeyMap) -> list[LeaseFacts]:
    """Return the valid leases, the oldest first.

    :raises DatabaseError: when the database cannot be read
    """
    query = (
        select(contact_leases)
        .where(contact_leases.c.map_id == key_map.facts.map_id, contact_leases.c.until > key_map.clock())
        .order_by(contact_leases.c.fencing_token)
    )
    with key_map.database.connect() as connection:
        return [
            LeaseFacts(row.owner, row.until, (row.end_bucket - row.first_bucket) / BUCKETS)
            for row in connection.execute(query)
        ]


def values_of(key_map: KeyMap) -> dict[str, Any]:
    """Return the values that are stored beside the rows, except those that are null.

    :raises DatabaseError: when the database cannot be read
    """
    query = (
        select(contact_map_values.c.key, contact_map_values.c.value)
        .where(contact_map_values.c.map_id == key_map.facts.map_id)
        .order_by(contact_map_values.c.key)
    )
    with key_map.database.connect() as connection:
        values = {key: json.loads(value) for key, value in connection.execute(query)}
    return {key: value for key, value in values.items() if value is not None}


def unknown_creations(key_map: KeyMap) -> Iterator[MapEntry]:
    """Yield the entries whose creation has an unknown outcome, including requested ones without a valid lease.

    :raises DatabaseError: when the database cannot be read
    """
    for page in key_map.pages(states=(RowState.UNKNOWN, RowState.CREATING)):
        yield from (entry for entry in page if entry.is_unknown())


def checked_map(database: Database, *, conn_id: str, base_url: str, table_id: str, name: str) -> KeyMap:
    """Return an existing key map, after a check that it belongs to the list of its connection.

    :raises NoMapError: when there is none
    :raises MapMismatchError: when it belongs to another service or table
    :raises DatabaseError: when the database cannot be used
    """
    find_map(database, conn_id=conn_id, name=name)
    return open_map(database, conn_id=conn_id, base_url=base_url, table_id=table_id, name=name)


def owner_of(command: str) -> str:
    """Return the owner for a lease of a command. It contains the process, so no other process has the same.

    :param command: the words after ``airflow cpaas contacts``
    """
    return f"airflow cpaas contacts {command} (process {os.getpid()} on {socket.gethostname()})"


@contextlib.contextmanager
def released(lease: Lease) -> Iterator[Lease]:
    """Release the lease at the end of the block. If that fails, it ends by itself."""
    try:
        yield lease
    finally:
        with contextlib.suppress(DatabaseError):
            lease.release()


def without_cursor(key_map: KeyMap) -> dict[str, None]:
    """Return the value to store so that the next sync reads all rows, also those below its cursor.

    :raises DatabaseError: when the database cannot be read
    """
    return {} if key_map.value(CURSOR) is None else {CURSOR: None}


def recipient_values(key_map: KeyMap, columns: Iterable[str]) -> dict[str, list[str]]:
    """Return the value to store before rows are written, so that an erasure finds recipients in their cells.

    It has the columns of earlier tables, too, because the map has the hashes of their cells.

    :param columns: the ids of the columns with recipients that the contact table has now
    :raises DatabaseError: when the database cannot be read
    """
    stored = key_map.value(RECIPIENT_COLUMNS) or []
    added = [column for column in columns if column not in stored]
    return {RECIPIENT_COLUMNS: [*stored, *added]} if added else {}


def is_alone(lease: Lease) -> bool:
    """Return whether no other task has acquired a lease on the map since this lease.

    :param lease: a lease that was acquired while no other one was valid
    :raises DatabaseError: when the database cannot be read
    """
    key_map = lease.key_map
    query = select(contact_maps.c.fencing_token).where(contact_maps.c.id == key_map.facts.map_id)
    with key_map.database.connect() as connection:
        newest = connection.execute(query).scalar_one_or_none()
    return newest == lease.fencing_token
