"""A cache of phone lookups that outlives a run. It stores hashes of numbers, never a number."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple

from sqlalchemy import Connection, Row, Select, Table, and_, delete, func, insert, select

from cpaas_provider.database.bulk import batched, select_among
from cpaas_provider.database.database import Database
from cpaas_provider.database.recipients.locks import lock_for_writing
from cpaas_provider.database.schema.lookups import lookups, phone_records


class PhoneRecord(NamedTuple):
    """The record of a number; ``None`` for each value that the service does not know."""

    operator: str | None
    country: str | None
    ported: bool | None
    dnd: bool | None


class _Cache:
    """Lookups, each with its time. Numbers are keyed hashes of at most 64 bytes, which the caller computes."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def _read(self, query: Select[Any], table: Table, hashes: Sequence[bytes], since: datetime) -> Iterator[Row[Any]]:
        with self._database.connect() as connection:
            yield from select_among(connection, query.where(table.c.looked_up_at >= since), table.c.hash, hashes)

    def _replace(self, table: Table, rows: Iterable[dict[str, object]]) -> None:
        def work(connection: Connection, batch: Sequence[dict[str, object]]) -> None:
            # Delete and insert, because the syntax of an upsert differs between databases. The lock makes it safe.
            lock_for_writing(connection, table.name)
            connection.execute(delete(table).where(table.c.hash.in_([row["hash"] for row in batch])))
            connection.execute(insert(table), batch)

        for batch in batched(rows):
            self._database.write(partial(work, batch=batch))


class DndCache(_Cache):
    """The do-not-disturb flags of numbers."""

    def get_many(self, hashes: Sequence[bytes], since: datetime) -> dict[bytes, bool]:
        """Return the flags of numbers that were looked up at ``since`` or later.

        :raises DatabaseError: when the database cannot be read
        """
        return {row.hash: row.dnd for row in self._read(select(lookups.c.hash, lookups.c.dnd), lookups, hashes, since)}

    def set_many(self, found: Mapping[bytes, bool], at: datetime) -> None:
        """Store flags, and replace earlier ones.

        :param at: the time of the lookups
        :raises DatabaseError: when the database cannot be written; some flags may have been stored
        """
        self._replace(lookups, ({"hash": key, "dnd": dnd, "looked_up_at": at} for key, dnd in found.items()))


class PhoneRecordCache(_Cache):
    """The whole records of numbers."""

    def get_many(self, hashes: Sequence[bytes], since: datetime) -> dict[bytes, PhoneRecord]:
        """Return the records of numbers that were looked up at ``since`` or later.

        Their do-not-disturb flags are those that a campaign looked up later, if one did.

        :raises DatabaseError: when the database cannot be read
        """
        records = phone_records.c
        is_later = and_(lookups.c.hash == records.hash, lookups.c.looked_up_at > records.looked_up_at)
        dnd = func.coalesce(lookups.c.dnd, records.dnd)
        query = select(records.hash, records.operator, records.country, records.ported, dnd)
        query = query.select_from(phone_records.outerjoin(lookups, is_later))
        return {row.hash: PhoneRecord._make(row[1:]) for row in self._read(query, phone_records, hashes, since)}

    def set_many(self, found: Mapping[bytes, PhoneRecord], at: datetime) -> None:
        """Store records, and their do-not-disturb flags for campaigns.

        :param at: the time of the lookups
        :raises DatabaseError: when the database cannot be written; some records may have been stored
        """
        rows = ({"hash": key, "looked_up_at": at, **record._asdict()} for key, record in found.items())
        self._replace(phone_records, rows)
        flags = {key: record.dnd for key, record in found.items() if record.dnd is not None}
        DndCache(self._database).set_many(flags, at)
