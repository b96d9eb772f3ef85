"""The key map: which row of the contact list belongs to which key of a source, and what that row holds.

It stores hashes and row ids, nothing of a contact. A change is written under a lease, so that a task that lost its
lease writes nothing. An entry is changed only by a task that knows its latest version.
"""

from __future__ import annotations

import functools
import json
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import IntEnum
from typing import Any

from sqlalchemy import Connection, Row, and_, bindparam, delete, func, insert, select, update
from sqlalchemy.dialects import sqlite

from cpaas_provider.contacts.errors import (
    LeaseLostError,
    LeaseTakenError,
    MapMismatchError,
    NoMapError,
    UnfinishedImportError,
)
from cpaas_provider.contacts.key_map.hashes import BUCKETS, ContactHashes, first_hash
from cpaas_provider.database.batches import batched
from cpaas_provider.database.database import Database
from cpaas_provider.database.schema import contact_leases, contact_map_values, contact_maps, contact_rows

LEASE = timedelta(minutes=5)
"""How long a lease lasts after the last write under it."""

DEFAULT_MAP = "default"

IMPORTING = "importing"
"""The stored value of a map that holds a part of an import: a sync would create the rows of the rest once more."""

_PAGE = 2_000
_NO_BUCKETS = (0, 0)

Clock = Callable[[], datetime]


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


class KeyMap:
    """One key map in our database.

    :param facts: which one; ``open_map`` and ``find_map`` return it
    :param clock: what time it is; the clocks of all workers should agree to within the lease
    """

    def __init__(self, database: Database, facts: MapFacts, *, clock: Clock = lambda: datetime.now(UTC)) -> None:
        self.database = database
        self.facts = facts
        self.hashes = ContactHashes(facts.secret)
        self.clock = clock
        self._mine = contact_rows.c.map_id == facts.map_id

    def raw_hashes(self, key_hashes: Sequence[bytes]) -> dict[bytes, bytes]:
        """Return the hash of the source's row for each key that is in step with the list; the others are left out.

        :raises DatabaseError: when the database cannot be read
        """
        found: dict[bytes, bytes] = {}
        with self.database.connect() as connection:
            for some in batched(key_hashes):
                found.update(_raw_hashes(connection, self.facts.map_id, some))
        return found

    def entries(self, key_hashes: Iterable[bytes]) -> dict[bytes, MapEntry]:
        """Return the entries of some keys; those that have none are left out.

        :raises DatabaseError: when the database cannot be read
        """
        with self.database.connect() as connection:
            return self._entries(connection, key_hashes)

    def pages(
        self, buckets: tuple[int, int] = (0, BUCKETS), *, states: Iterable[RowState] | None = None, size: int = _PAGE
    ) -> Iterator[list[MapEntry]]:
        """Yield all entries of some buckets in the order of their hashes, page by page.

        Entries that are added or removed meanwhile may or may not be among them.

        :param states: only entries in these states
        :raises DatabaseError: when the database cannot be read
        """
        first, end = buckets
        if first >= end:
            return
        where = [self._mine, *_range(first, end)]
        if states is not None:
            where.append(contact_rows.c.state.in_([int(state) for state in states]))
        query = select(contact_rows).order_by(contact_rows.c.key_hash).limit(size)
        after: bytes | None = None
        while True:
            further = [] if after is None else [contact_rows.c.key_hash > after]
            with self.database.connect() as connection:
                page = [_entry(row) for row in connection.execute(query.where(*where, *further))]
            if page:
                yield page
            if len(page) < size:
                return
            after = page[-1].key_hash

    def counts(self, buckets: tuple[int, int] = (0, BUCKETS)) -> dict[RowState, int]:
        """Return how many entries of some buckets are in which state.

        :raises DatabaseError: when the database cannot be read
        """
        counts = dict.fromkeys(RowState, 0)
        query = (
            select(contact_rows.c.state, func.count())
            .where(self._mine, *_range(*buckets))
            .group_by(contact_rows.c.state)
        )
        with self.database.connect() as connection:
            counts.update({RowState(state): count for state, count in connection.execute(query)})
        return counts

    def value(self, key: str) -> Any | None:
        """Return a value that is stored beside the rows, or ``None``.

        :raises DatabaseError: when the database cannot be read
        """
        with self.database.connect() as connection:
            return self._value(connection, key)

    def leased(self) -> dict[int, str]:
        """Return the fencing tokens of all leases that hold now, with their owners.

        :raises DatabaseError: when the database cannot be read
        """
        query = select(contact_leases.c.fencing_token, contact_leases.c.owner).where(
            contact_leases.c.map_id == self.facts.map_id, contact_leases.c.until > self.clock()
        )
        with self.database.connect() as connection:
            return {row.fencing_token: row.owner for row in connection.execute(query)}

    def lease(self, owner: str, buckets: tuple[int, int] = (0, BUCKETS), *, while_importing: bool = False) -> Lease:
        """Take a lease on some buckets, which nobody else can take meanwhile.

        Taking it again as the same owner ends the earlier lease: a task's retry need not wait.

        :param owner: who works on the list, in words for those who are kept waiting
        :param while_importing: take it although the map holds a part of an import
        :raises LeaseTakenError: when somebody else has one of these buckets
        :raises UnfinishedImportError: when the map holds a part of an import
        :raises DatabaseError: when the database cannot be used
        """
        return self._lease(owner, buckets, while_importing)

    def row_lease(self, owner: str, *, while_importing: bool = False) -> Lease:
        """Take a lease under which single rows are written, beside those who have their buckets.

        :param while_importing: take it although the map holds a part of an import
        :raises UnfinishedImportError: when the map holds a part of an import
        :raises DatabaseError: when the database cannot be used
        """
        return self._lease(owner, _NO_BUCKETS, while_importing)

    def _lease(self, owner: str, buckets: tuple[int, int], while_importing: bool) -> Lease:
        token = self.database.write(lambda connection: self._take(connection, owner, buckets, while_importing))
        return Lease(self, owner, buckets, token)

    def _take(self, connection: Connection, owner: str, buckets: tuple[int, int], while_importing: bool) -> int:
        mine = contact_maps.c.id == self.facts.map_id
        held = connection.execute(select(contact_maps.c.fencing_token).where(mine).with_for_update()).one_or_none()
        if held is None:
            raise NoMapError(f"The contact map {self.facts.name!r} was removed. Nothing was sent.")
        if not while_importing and self._value(connection, IMPORTING) is not None:
            raise UnfinishedImportError(
                f"The contact map {self.facts.name!r} holds a part of an import, so a sync would create rows that the "
                "list has already. Nothing was sent. Run the same airflow cpaas contacts import-map again to finish it."
            )
        now = self.clock()
        leases = contact_leases.c.map_id == self.facts.map_id
        connection.execute(delete(contact_leases).where(leases, contact_leases.c.until <= now))
        first, end = buckets
        same = and_(leases, contact_leases.c.first_bucket == first, contact_leases.c.end_bucket == end)
        # Of an earlier try, which a kill may have left behind.
        connection.execute(delete(contact_leases).where(same, contact_leases.c.owner == owner))
        overlap = and_(leases, contact_leases.c.first_bucket < end, contact_leases.c.end_bucket > first)
        if first < end:
            connection.execute(delete(contact_leases).where(overlap, contact_leases.c.owner == owner))
            other = connection.execute(
                select(contact_leases.c.owner, contact_leases.c.until).where(overlap).order_by(contact_leases.c.until)
            ).first()
            if other is not None:
                raise LeaseTakenError(
                    f"{other.owner} syncs this contact list now. Its lease ends with the task, or at "
                    f"{other.until:%Y-%m-%d %H:%M:%S} UTC if the task was killed. Nothing was sent.",
                    other.owner,
                )
        token: int = held.fencing_token + 1
        connection.execute(update(contact_maps).where(mine).values(fencing_token=token))
        connection.execute(
            insert(contact_leases).values(
                map_id=self.facts.map_id,
                fencing_token=token,
                owner=owner,
                first_bucket=first,
                end_bucket=end,
                until=now + LEASE,
            )
        )
        return token

    def _entries(
        self, connection: Connection, key_hashes: Iterable[bytes], *, lock: bool = False
    ) -> dict[bytes, MapEntry]:
        found: dict[bytes, MapEntry] = {}
        for some in batched(key_hashes):
            query = select(contact_rows).where(self._mine, contact_rows.c.key_hash.in_(some))
            query = query.order_by(contact_rows.c.key_hash).with_for_update() if lock else query
            found.update((row.key_hash, _entry(row)) for row in connection.execute(query))
        return found

    def _value(self, connection: Connection, key: str) -> Any | None:
        found = connection.execute(select(contact_map_values.c.value).where(*self._place(key))).scalar_one_or_none()
        return None if found is None else json.loads(found)

    def _place(self, key: str) -> tuple[Any, Any]:
        return contact_map_values.c.map_id == self.facts.map_id, contact_map_values.c.key == key

    # What follows is called by the lease, within its transaction.

    def _write(self, connection: Connection, changes: Sequence[Change]) -> dict[bytes, MapEntry | None]:
        """Write what nobody else has changed meanwhile, and return the others as they are now."""
        now = self._entries(connection, (change.before.key_hash for change in changes), lock=True)
        changed: dict[bytes, MapEntry | None] = {}
        removed: list[bytes] = []
        added: list[dict[str, Any]] = []
        replaced: list[dict[str, Any]] = []
        for change in changes:
            key_hash = change.before.key_hash
            current = now.get(key_hash)
            if (current.version if current else 0) != change.before.version:
                changed[key_hash] = current
            elif change.after is None:
                removed.append(key_hash)
            else:
                values = _values(replace(change.after, version=change.before.version + 1))
                (replaced if current else added).append(values)
        for some in batched(removed):
            connection.execute(delete(contact_rows).where(self._mine, contact_rows.c.key_hash.in_(some)))
        if added:
            connection.execute(insert(contact_rows), [{**row, "map_id": self.facts.map_id} for row in added])
        if replaced:
            statement = update(contact_rows).where(self._mine, contact_rows.c.key_hash == bindparam("of"))
            connection.execute(statement, [{**row, "of": row.pop("key_hash")} for row in replaced])
        return changed

    def _store_value(self, connection: Connection, key: str, value: Any) -> None:
        text = json.dumps(value, separators=(",", ":"), allow_nan=False)
        if not connection.execute(update(contact_map_values).where(*self._place(key)).values(value=text)).rowcount:
            connection.execute(insert(contact_map_values).values(map_id=self.facts.map_id, key=key, value=text))

    def _forget_rows(self, connection: Connection, buckets: tuple[int, int]) -> int:
        """Have all cells of all rows count as not known, so that each is sent once more."""
        known = update(contact_rows).where(self._mine, *_range(*buckets), contact_rows.c.row_id.is_not(None))
        forgotten = known.values(raw_hash=None, cell_hashes=None, missing_hash=None, version=contact_rows.c.version + 1)
        return connection.execute(forgotten).rowcount


class Lease:
    """The right to write to some buckets of a map, or to single rows.

    Every write proves and prolongs it. A lease that ended writes nothing.

    :param fencing_token: grows with every lease of the map
    """

    def __init__(self, key_map: KeyMap, owner: str, buckets: tuple[int, int], fencing_token: int) -> None:
        self.key_map = key_map
        self.owner = owner
        self.buckets = buckets
        self.fencing_token = fencing_token
        self._mine = and_(
            contact_leases.c.map_id == key_map.facts.map_id, contact_leases.c.fencing_token == fencing_token
        )

    def write(self, changes: Sequence[Change], values: Mapping[str, Any] | None = None) -> dict[bytes, MapEntry | None]:
        """Write changes and values in one transaction, durable on return.

        :return: by key hash the entries that were changed by somebody else since they were read, as they are now
            (``None`` for none): these changes were not written
        :raises LeaseLostError: when the lease ended; nothing was written
        :raises DatabaseError: when the database cannot be written
        """

        def work(connection: Connection) -> dict[bytes, MapEntry | None]:
            self._prove(connection)
            changed = self.key_map._write(connection, changes)
            for key, value in (values or {}).items():
                self.key_map._store_value(connection, key, value)
            return changed

        return self.key_map.database.write(work)

    def forget_cells(self, values: Mapping[str, Any]) -> int:
        """Have every row of the lease's buckets be sent whole once more, and store values in the same transaction.

        :return: how many rows
        :raises LeaseLostError: when the lease ended; nothing was written
        :raises DatabaseError: when the database cannot be written
        """

        def work(connection: Connection) -> int:
            self._prove(connection)
            count = self.key_map._forget_rows(connection, self.buckets)
            for key, value in values.items():
                self.key_map._store_value(connection, key, value)
            return count

        return self.key_map.database.write(work)

    def renew(self) -> None:
        """Prolong the lease.

        :raises LeaseLostError: when it ended
        :raises DatabaseError: when the database cannot be written
        """
        self.key_map.database.write(self._prove)

    def release(self) -> None:
        """Let others have the buckets at once. Does nothing when the lease has ended.

        :raises DatabaseError: when the database cannot be written; the lease then ends by itself
        """
        self.key_map.database.write(lambda connection: connection.execute(delete(contact_leases).where(self._mine)))

    def _prove(self, connection: Connection) -> None:
        renewed = update(contact_leases).where(self._mine).values(until=self.key_map.clock() + LEASE)
        if connection.execute(renewed).rowcount != 1:
            raise LeaseLostError(
                f"The lease of {self.owner} on this contact list has ended, and another task may have it now. "
                "Requests that had left may still take effect. Nothing more is sent; a retry goes on from here."
            )


def open_map(
    database: Database,
    *,
    conn_id: str,
    base_url: str,
    table_id: str,
    name: str = DEFAULT_MAP,
    clock: Clock = lambda: datetime.now(UTC),
) -> KeyMap:
    """Return the key map of a contact list, made where there is none yet.

    :param conn_id: the connection that leads to the list
    :param base_url: where it leads now
    :param table_id: the contact table it leads to
    :param name: tells several maps of one list apart, such as those of two sources
    :raises MapMismatchError: when the map belongs to another service or table
    :raises DatabaseError: when the database cannot be used
    """

    def work(connection: Connection) -> MapFacts:
        query = select(contact_maps).where(contact_maps.c.conn_id == conn_id, contact_maps.c.name == name)
        found = connection.execute(query).one_or_none()
        if found is None:
            connection.execute(
                insert(contact_maps).values(
                    conn_id=conn_id,
                    name=name,
                    base_url=base_url,
                    table_id=table_id,
                    secret=secrets.token_hex(16),
                    fencing_token=0,
                    created=clock(),
                )
            )
            found = connection.execute(query).one()
        return _facts(found)

    facts = _found(database, conn_id, name) or database.write(work)
    if (facts.base_url, facts.table_id) != (base_url, table_id):
        what = "base URL" if facts.base_url != base_url else "contact table"
        raise MapMismatchError(
            f"The contact map {name!r} of connection {conn_id!r} was made for another {what}. Its row ids mean nothing "
            "there. Nothing was sent. Set map_name to start another map, or remove this one with: airflow cpaas "
            f"contacts forget-map --conn-id {conn_id} --map {name}"
        )
    return KeyMap(database, facts, clock=clock)


def find_map(
    database: Database, *, conn_id: str, name: str = DEFAULT_MAP, clock: Clock = lambda: datetime.now(UTC)
) -> KeyMap:
    """Return the key map of a connection.

    :raises NoMapError: when there is none
    :raises DatabaseError: when the database cannot be read
    """
    if (facts := _found(database, conn_id, name)) is None:
        raise NoMapError(f"Connection {conn_id!r} has no contact map {name!r}.")
    return KeyMap(database, facts, clock=clock)


def all_maps(database: Database, *, clock: Clock = lambda: datetime.now(UTC)) -> list[KeyMap]:
    """Return all key maps, in the order of connection and name.

    :raises DatabaseError: when the database cannot be read
    """
    query = select(contact_maps).order_by(contact_maps.c.conn_id, contact_maps.c.name)
    with database.connect() as connection:
        return [KeyMap(database, _facts(row), clock=clock) for row in connection.execute(query)]


def forget_map(key_map: KeyMap) -> int:
    """Remove a map with all its entries, and return how many those were. The contact list keeps its rows.

    :raises LeaseTakenError: when a task works on the list now
    :raises DatabaseError: when the database cannot be written
    """
    lease = key_map.lease("airflow cpaas contacts forget-map", while_importing=True)
    map_id = key_map.facts.map_id

    def work(connection: Connection) -> int:
        lease._prove(connection)
        removed = connection.execute(delete(contact_rows).where(contact_rows.c.map_id == map_id)).rowcount
        for table in (contact_map_values, contact_leases):
            connection.execute(delete(table).where(table.c.map_id == map_id))
        connection.execute(delete(contact_maps).where(contact_maps.c.id == map_id))
        return removed

    return key_map.database.write(work)


def _found(database: Database, conn_id: str, name: str) -> MapFacts | None:
    query = select(contact_maps).where(contact_maps.c.conn_id == conn_id, contact_maps.c.name == name)
    with database.connect() as connection:
        found = connection.execute(query).one_or_none()
    return None if found is None else _facts(found)


def _facts(row: Row[Any]) -> MapFacts:
    return MapFacts(row.id, row.conn_id, row.name, row.base_url, row.table_id, row.secret, row.created)


def _raw_hashes(connection: Connection, map_id: int, key_hashes: Sequence[bytes]) -> list[tuple[bytes, bytes]]:
    """Return keys that are in step, with their raw hashes; for a million of them each step counts."""
    query = _IN_STEP.where(contact_rows.c.map_id == map_id, contact_rows.c.key_hash.in_(key_hashes))
    if connection.dialect.name != "sqlite":
        return [(bytes(key), bytes(raw)) for key, raw in connection.execute(query)]
    # SQLAlchemy takes longer over the values and the rows than the database does over the query.
    text = _in_step_text(len(key_hashes))
    rows: Any = connection.exec_driver_sql(text, (map_id, *key_hashes))
    return list(rows.cursor.fetchall())


_IN_STEP = select(contact_rows.c.key_hash, contact_rows.c.raw_hash).where(
    contact_rows.c.state == int(RowState.SYNCED), contact_rows.c.raw_hash.is_not(None)
)


@functools.lru_cache(maxsize=8)
def _in_step_text(count: int) -> str:
    """Return ``_IN_STEP`` for so many keys of a map, as the driver of SQLite takes it."""
    text = str(_IN_STEP.compile(dialect=sqlite.dialect(), compile_kwargs={"literal_binds": True}))
    return f"{text} AND map_id = ? AND key_hash IN ({', '.join('?' * count)})"


def _range(first: int, end: int) -> list[Any]:
    """Return the conditions for keys of some buckets."""
    if first >= end:
        return [contact_rows.c.key_hash < b""]
    conditions = [contact_rows.c.key_hash >= first_hash(first)] if first else []
    return [*conditions, contact_rows.c.key_hash < first_hash(end)] if end < BUCKETS else conditions


def _entry(row: Row[Any]) -> MapEntry:
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


def _values(entry: MapEntry) -> dict[str, Any]:
    return {name: getattr(entry, name) for name in MapEntry.__slots__} | {"state": int(entry.state)}
