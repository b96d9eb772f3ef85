"""The key map: for each key of a source, the row of the contact list and the hashes of its cells.

It stores only hashes and row ids. A change is written under a lease, so a task that lost its lease writes nothing. An
entry is changed only by a task that has read its latest version.
"""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Select, and_, bindparam, delete, func, insert, select, update
from sqlalchemy.dialects import sqlite

from cpaas_provider.api.settings import canonical_base_url
from cpaas_provider.contacts.errors import (
    LeaseLostError,
    LeaseTakenError,
    NoMapError,
    SharedRowError,
    UnfinishedImportError,
)
from cpaas_provider.contacts.key_map import rejections
from cpaas_provider.contacts.key_map.entries import (
    Change,
    MapEntry,
    MapFacts,
    RowOwner,
    RowState,
    columns_of,
    entry_of,
)
from cpaas_provider.contacts.key_map.hashes import BUCKETS, ContactHashes, first_hash
from cpaas_provider.contacts.key_map.rejections import Rejection
from cpaas_provider.database.bulk import batched, select_among
from cpaas_provider.database.database import Database
from cpaas_provider.database.errors import DatabaseError
from cpaas_provider.database.schema.contacts import contact_leases, contact_map_values, contact_maps, contact_rows

log = logging.getLogger(__name__)

LEASE = timedelta(minutes=5)
"""How long a lease lasts after the last write under it."""
_RENEWAL_SECONDS = LEASE.total_seconds() / 5

IMPORTING = "importing"
"""The stored value of a map whose import is not finished. A sync would create the rows that are not imported yet."""

_PAGE = 2_000
_NO_BUCKETS = (0, 0)

Clock = Callable[[], datetime]


class KeyMap:
    """One key map in the provider's database. ``open_map`` and ``find_map`` return it.

    :param facts: its identity
    :param clock: returns the current time; the clocks of all workers should differ by less than the lease
    """

    def __init__(self, database: Database, facts: MapFacts, *, clock: Clock = lambda: datetime.now(UTC)) -> None:
        self.database = database
        self.facts = facts
        self.hashes = ContactHashes(facts.secret)
        self.clock = clock
        self._in_map = contact_rows.c.map_id == facts.map_id
        self._in_list = contact_maps.c.conn_id == facts.conn_id, contact_maps.c.table_id == facts.table_id

    def raw_hashes(self, key_hashes: Sequence[bytes]) -> dict[bytes, bytes]:
        """Return the hash of the synced source row for each key whose row is synced.

        :raises DatabaseError: when the database cannot be read
        """
        raw_hashes: dict[bytes, bytes] = {}
        with self.database.connect() as connection:
            for batch in batched(key_hashes):
                raw_hashes.update(_raw_hashes(connection, self.facts.map_id, batch))
        return raw_hashes

    def entries(self, key_hashes: Iterable[bytes]) -> dict[bytes, MapEntry]:
        """Return the entries of these keys, by key hash. A key without an entry is left out.

        Each entry says whether the lease of its request is valid, see ``_select_entries``.

        :raises DatabaseError: when the database cannot be read
        """
        with self.database.connect() as connection:
            return self._entries(connection, key_hashes)

    def entries_of_rows(self, row_ids: Iterable[str]) -> list[MapEntry]:
        """Return all entries that have these rows. Two keys have one row while an import beside a task is unfinished.

        :raises DatabaseError: when the database cannot be read
        """
        query = self._select_entries().where(self._in_map)
        with self.database.connect() as connection:
            return [entry_of(row) for row in _of_rows(connection, query, row_ids)]

    def owners_of_rows(self, row_ids: Iterable[str]) -> list[RowOwner]:
        """Return all entries that have these rows, in this map and in others of its connection and contact list.

        :raises DatabaseError: when the database cannot be read
        """
        with self.database.connect() as connection:
            return self._owners_of_rows(connection, row_ids)

    def pages(
        self, buckets: tuple[int, int] = (0, BUCKETS), *, states: Iterable[RowState] | None = None, size: int = _PAGE
    ) -> Iterator[list[MapEntry]]:
        """Yield all entries of these buckets in the order of their key hashes, page by page.

        Entries that are added or removed meanwhile may be included or not.

        :param states: only entries in these states
        :raises DatabaseError: when the database cannot be read
        """
        where = [self._in_map, *_range(*buckets)]
        if states is not None:
            where.append(contact_rows.c.state.in_([int(state) for state in states]))
        query = self._select_entries().order_by(contact_rows.c.key_hash).limit(size)
        after: bytes | None = None
        while True:
            further = [] if after is None else [contact_rows.c.key_hash > after]
            with self.database.connect() as connection:
                page = [entry_of(row) for row in connection.execute(query.where(*where, *further))]
            if page:
                yield page
            if len(page) < size:
                return
            after = page[-1].key_hash

    def counts(self, buckets: tuple[int, int] = (0, BUCKETS)) -> dict[RowState, int]:
        """Return the number of entries of these buckets, by state.

        :raises DatabaseError: when the database cannot be read
        """
        counts = dict.fromkeys(RowState, 0)
        query = (
            select(contact_rows.c.state, func.count())
            .where(self._in_map, *_range(*buckets))
            .group_by(contact_rows.c.state)
        )
        with self.database.connect() as connection:
            counts.update({RowState(state): count for state, count in connection.execute(query)})
        return counts

    def rejected(self) -> set[bytes]:
        """Return the key hashes of the rows that the service rejected, and that did not change since.

        :raises DatabaseError: when the database cannot be read
        """
        query = select(contact_rows.c.key_hash).where(self._in_map, contact_rows.c.rejected_hash.is_not(None))
        with self.database.connect() as connection:
            return {bytes(key_hash) for key_hash in connection.execute(query).scalars()}

    def rejections(self, key_hashes: Iterable[bytes]) -> dict[bytes, Rejection]:
        """Return what the service said of these rows, by key hash. A row that it did not reject is left out.

        :raises DatabaseError: when the database cannot be read
        """
        with self.database.connect() as connection:
            return rejections.of_keys(connection, self.facts.map_id, key_hashes)

    def value(self, key: str) -> Any | None:
        """Return a value that is stored beside the rows, ``None`` if there is none.

        :raises DatabaseError: when the database cannot be read
        """
        with self.database.connect() as connection:
            return self._value(connection, key)

    def lease(self, owner: str, buckets: tuple[int, int] = (0, BUCKETS), *, while_importing: bool = False) -> Lease:
        """Acquire an exclusive lease on some buckets.

        A new lease of the same owner ends the earlier one, so that a retry of a task need not wait.

        :param owner: the task or command that works on the list; named in the error of a task that cannot get a lease
        :param while_importing: acquire it although an import of the map is not finished
        :raises LeaseTakenError: when another task holds a lease on one of these buckets
        :raises UnfinishedImportError: when an import of the map is not finished
        :raises DatabaseError: when the database cannot be used
        """
        acquired = self.database.write(lambda connection: self._acquire(connection, owner, buckets, while_importing))
        return Lease(self, owner, buckets, *acquired)

    def row_lease(self, owner: str, *, while_importing: bool = False) -> Lease:
        """Acquire a lease to write single rows, also while other tasks hold leases on their buckets.

        :param while_importing: acquire it although an import of the map is not finished
        :raises UnfinishedImportError: when an import of the map is not finished
        :raises DatabaseError: when the database cannot be used
        """
        return self.lease(owner, _NO_BUCKETS, while_importing=while_importing)

    def _acquire(
        self, connection: Connection, owner: str, buckets: tuple[int, int], while_importing: bool
    ) -> tuple[int, frozenset[int]]:
        is_map = contact_maps.c.id == self.facts.map_id
        # Locks the map until the end of the transaction.
        newest = connection.execute(
            select(contact_maps.c.fencing_token).where(is_map).with_for_update()
        ).scalar_one_or_none()
        if newest is None:
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
        # An earlier try of the task may have been killed before it released its lease.
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
        concurrent = frozenset(connection.execute(select(contact_leases.c.fencing_token).where(leases)).scalars())
        token: int = newest + 1
        connection.execute(update(contact_maps).where(is_map).values(fencing_token=token))
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
        return token, concurrent

    def _entries(
        self, connection: Connection, key_hashes: Iterable[bytes], *, lock: bool = False
    ) -> dict[bytes, MapEntry]:
        entries: dict[bytes, MapEntry] = {}
        for batch in batched(key_hashes):
            query = select(contact_rows).with_for_update() if lock else self._select_entries()
            query = query.where(self._in_map, contact_rows.c.key_hash.in_(batch)).order_by(contact_rows.c.key_hash)
            entries.update((row.key_hash, entry_of(row)) for row in connection.execute(query))
        return entries

    def _owners_of_rows(self, connection: Connection, row_ids: Iterable[str]) -> list[RowOwner]:
        is_map = contact_maps.c.id == contact_rows.c.map_id
        query = select(contact_rows, contact_maps.c.name, contact_maps.c.base_url).join(contact_maps, is_map)
        rows = _of_rows(connection, query.where(*self._in_list), row_ids)
        # A map of another base URL is of another list, which may have the same row ids.
        base_url = canonical_base_url(self.facts.base_url)
        return [RowOwner(row.name, entry_of(row)) for row in rows if canonical_base_url(row.base_url) == base_url]

    def _select_entries(self) -> Select[Any]:
        """Return the query of all entries, each with ``is_leased``: whether the lease of its request is valid.

        A task acquires its lease, writes its intent, sends, records the result, and only then releases the lease. Each
        step is a transaction of its own. So an intent without a valid lease was abandoned, but only if both were read
        in one snapshot. Leases that were read first lack the lease of a later intent. Leases that were read later lack
        one whose result was recorded meanwhile. A transaction of two statements is no help: at READ COMMITTED each
        statement has a snapshot of its own. One statement has one snapshot in PostgreSQL, MariaDB and SQLite.
        """
        is_lease = and_(
            contact_leases.c.map_id == contact_rows.c.map_id,
            contact_leases.c.fencing_token == contact_rows.c.fencing_token,
            contact_leases.c.until > self.clock(),
        )
        is_leased = contact_leases.c.fencing_token.is_not(None).label("is_leased")
        return select(contact_rows, is_leased).select_from(contact_rows.outerjoin(contact_leases, is_lease))

    def _value(self, connection: Connection, key: str) -> Any | None:
        text = connection.execute(select(contact_map_values.c.value).where(*self._is_value(key))).scalar_one_or_none()
        return None if text is None else json.loads(text)

    def _is_value(self, key: str) -> tuple[Any, Any]:
        return contact_map_values.c.map_id == self.facts.map_id, contact_map_values.c.key == key

    # The lease calls the following methods within its transaction.

    def _check_owners(self, connection: Connection, recorded: Sequence[MapEntry], *, moves_rows: bool) -> None:
        """Refuse entries of which two, or one and another key of any map of the list, have the same row.

        :param moves_rows: whether another key of this map may have it until its own entry is written
        """
        keys = {entry.row_id: entry.key_hash for entry in recorded if entry.row_id is not None}
        own_name = self.facts.name
        shared = [] if moves_rows or len(keys) == len(recorded) else [own_name]
        for name, entry in self._owners_of_rows(connection, keys):
            if name != own_name or not (moves_rows or entry.key_hash == keys.get(entry.row_id or "")):
                shared.append(name)
        if shared:
            raise SharedRowError(
                f"The contact map {shared[0]!r} has this row for another key already. Nothing was changed. Look for "
                "both rows in the list, then correct the map with: airflow cpaas contacts resolve, forget-row or "
                "import-map"
            )

    def _write(self, connection: Connection, changes: Sequence[Change]) -> dict[bytes, MapEntry | None]:
        """Write changes of entries that no other task changed meanwhile. Return the current state of the others."""
        now = self._entries(connection, (change.before.key_hash for change in changes), lock=True)
        changed: dict[bytes, MapEntry | None] = {}
        removed: list[bytes] = []
        accepted: list[bytes] = []
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
                if current is not None and current.rejected_hash is not None and change.after.rejected_hash is None:
                    accepted.append(key_hash)
                values = columns_of(replace(change.after, version=change.before.version + 1))
                (replaced if current else added).append(values)
        for batch in batched(removed):
            connection.execute(delete(contact_rows).where(self._in_map, contact_rows.c.key_hash.in_(batch)))
        rejections.remove(connection, self.facts.map_id, [*removed, *accepted])
        if added:
            connection.execute(insert(contact_rows), [{**row, "map_id": self.facts.map_id} for row in added])
        if replaced:
            statement = update(contact_rows).where(self._in_map, contact_rows.c.key_hash == bindparam("of"))
            connection.execute(statement, [{**row, "of": row.pop("key_hash")} for row in replaced])
        return changed

    def _store_values(self, connection: Connection, values: Mapping[str, Any]) -> None:
        for key, value in values.items():
            text = json.dumps(value, separators=(",", ":"), allow_nan=False)
            stored = update(contact_map_values).where(*self._is_value(key)).values(value=text)
            if not connection.execute(stored).rowcount:
                connection.execute(insert(contact_map_values).values(map_id=self.facts.map_id, key=key, value=text))


class Lease:
    """The right to write to some buckets of a map, or to single rows.

    Every write checks and renews the lease. After its end, a write fails and changes nothing.

    :param fencing_token: greater than that of each earlier lease of the map
    :param concurrent: the fencing tokens of the leases that were valid when this one was acquired
    """

    def __init__(
        self,
        key_map: KeyMap,
        owner: str,
        buckets: tuple[int, int],
        fencing_token: int,
        concurrent: frozenset[int] = frozenset(),
    ) -> None:
        self.key_map = key_map
        self.owner = owner
        self.buckets = buckets
        self.fencing_token = fencing_token
        self.concurrent = concurrent
        self._renewed = key_map.clock()
        self._is_lease = and_(
            contact_leases.c.map_id == key_map.facts.map_id, contact_leases.c.fencing_token == fencing_token
        )

    def write(
        self,
        changes: Sequence[Change],
        values: Mapping[str, Any] | None = None,
        rejected: Sequence[Rejection] = (),
        *,
        moves_rows: bool = False,
    ) -> dict[bytes, MapEntry | None]:
        """Write changes and values in one transaction, durable on return.

        :param rejected: what the service said of rows that these changes record as rejected
        :param moves_rows: whether rows may get another key, whose own entry is written later. The caller has compared
            all rows of the map
        :return: the changes that were not written, because another task changed the entry since it was read: the
            current entry by key hash, ``None`` if there is none
        :raises SharedRowError: when another key of any map of the list has a row that these changes record; nothing was
            written
        :raises LeaseLostError: when the lease ended; nothing was written
        :raises DatabaseError: when the database cannot be written
        """
        entries = [(change.before, change.after) for change in changes]
        recorded = [after for before, after in entries if after and after.row_id not in (None, before.row_id)]

        def work(connection: Connection) -> dict[bytes, MapEntry | None]:
            if recorded:
                # Other transactions that record new rows of the list wait for this one. The maps are locked before the
                # lease, as where leases are acquired, and in one order.
                maps = select(contact_maps.c.id).where(*self.key_map._in_list).order_by(contact_maps.c.id)
                connection.execute(maps.with_for_update(key_share=True)).all()
            self._assert_held(connection)
            if recorded:
                self.key_map._check_owners(connection, recorded, moves_rows=moves_rows)
            changed = self.key_map._write(connection, changes)
            self.key_map._store_values(connection, values or {})
            written = [rejection for rejection in rejected if rejection.key_hash not in changed]
            rejections.store(connection, self.key_map.facts.map_id, written)
            return changed

        return self.key_map.database.write(work)

    def forget_cells(self, values: Mapping[str, Any]) -> int:
        """Make the next sync send all cells of every row of these buckets. Store values in the same transaction.

        :return: the number of rows
        :raises LeaseLostError: when the lease ended; nothing was written
        :raises DatabaseError: when the database cannot be written
        """

        def work(connection: Connection) -> int:
            self._assert_held(connection)
            self.key_map._store_values(connection, values)
            rows = update(contact_rows).where(
                contact_rows.c.map_id == self.key_map.facts.map_id,
                *_range(*self.buckets),
                contact_rows.c.row_id.is_not(None),
            )
            version = contact_rows.c.version + 1
            cleared = rows.values(raw_hash=None, cell_hashes=None, missing_hash=None, version=version)
            return connection.execute(cleared).rowcount

        return self.key_map.database.write(work)

    def renew(self) -> None:
        """Renew the lease.

        :raises LeaseLostError: when it ended
        :raises DatabaseError: when the database cannot be written
        """
        self.key_map.database.write(self._assert_held)

    @property
    def is_renewal_due(self) -> bool:
        """Whether nothing was written under the lease for a fifth of its time."""
        return self.key_map.clock() - self._renewed > LEASE / 5

    def renew_if_due(self) -> None:
        """Renew the lease, at most once a minute.

        :raises LeaseLostError: when it ended
        :raises DatabaseError: when the database cannot be written
        """
        if self.is_renewal_due:
            self.renew()

    @contextlib.contextmanager
    def renewal(self) -> Iterator[None]:
        """Renew the lease in a thread until the end of the block, however long the task waits there for others.

        A service may ask for long pauses, and a query of the source may take longer than the lease. Without it another
        task takes a request in flight for an abandoned one, or removes the lease.
        """
        ended = threading.Event()
        thread = threading.Thread(target=self._renew_until, args=(ended,), name="contact-lease", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _renew_until(self, ended: threading.Event) -> None:
        while not ended.wait(_RENEWAL_SECONDS):
            try:
                self.renew()
            except LeaseLostError:
                # The next write says so.
                return
            except DatabaseError as error:
                log.warning("The lease on the contact list could not be renewed, the provider tries again: %s", error)

    def release(self) -> None:
        """End the lease, so that another task can acquire one on these buckets. Does nothing after its end.

        :raises DatabaseError: when the database cannot be written; the lease then ends by itself
        """
        self.key_map.database.write(lambda connection: connection.execute(delete(contact_leases).where(self._is_lease)))

    def _assert_held(self, connection: Connection) -> None:
        self._renewed = self.key_map.clock()
        renewed = update(contact_leases).where(self._is_lease).values(until=self._renewed + LEASE)
        if connection.execute(renewed).rowcount != 1:
            raise LeaseLostError(
                f"The lease of {self.owner} on this contact list has ended, and another task may have it now. "
                "Requests that had left may still take effect. Nothing more is sent; a retry goes on from here."
            )


def _of_rows(connection: Connection, query: Select[Any], row_ids: Iterable[str]) -> Iterator[Any]:
    """Yield the entries of a query that have these rows. MariaDB and MySQL also find ids in upper or lower case."""
    wanted = set(row_ids)
    return (row for row in select_among(connection, query, contact_rows.c.row_id, wanted) if row.row_id in wanted)


def _raw_hashes(connection: Connection, map_id: int, key_hashes: Sequence[bytes]) -> list[tuple[bytes, bytes]]:
    """Return the keys whose rows are synced, with their raw hashes. Written for speed: a source may have a million."""
    query = _SYNCED.where(contact_rows.c.map_id == map_id, contact_rows.c.key_hash.in_(key_hashes))
    if connection.dialect.name != "sqlite":
        return [(bytes(key), bytes(raw)) for key, raw in connection.execute(query)]
    # SQLAlchemy takes longer to convert values and rows than SQLite takes for the query.
    text = _synced_text(len(key_hashes))
    rows: Any = connection.exec_driver_sql(text, (map_id, *key_hashes))
    return list(rows.cursor.fetchall())


_SYNCED = select(contact_rows.c.key_hash, contact_rows.c.raw_hash).where(
    contact_rows.c.state == int(RowState.SYNCED), contact_rows.c.raw_hash.is_not(None)
)


@functools.lru_cache(maxsize=8)
def _synced_text(count: int) -> str:
    """Return the statement of ``_SYNCED`` for ``count`` keys of a map, for the driver of SQLite."""
    text = str(_SYNCED.compile(dialect=sqlite.dialect(), compile_kwargs={"literal_binds": True}))
    return f"{text} AND map_id = ? AND key_hash IN ({', '.join('?' * count)})"


def _range(first: int, end: int) -> list[Any]:
    """Return the conditions for the keys of these buckets."""
    if first >= end:
        return [contact_rows.c.key_hash < b""]
    conditions = [contact_rows.c.key_hash >= first_hash(first)] if first else []
    return [*conditions, contact_rows.c.key_hash < first_hash(end)] if end < BUCKETS else conditions
