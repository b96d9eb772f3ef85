"""Phone lookups, cached over runs. The cache has hashes of numbers, and no number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import NamedTuple

from sqlalchemy import Connection, Table, delete, insert, select

from cpaas_provider.database.bulk import batched
from cpaas_provider.database.database import Database
from cpaas_provider.database.schema import alembic_version, lookups, phone_records


class PhoneRecord(NamedTuple):
    """What a lookup returned of a number; ``None`` for what the service does not know."""

    operator: str | None
    country: str | None
    ported: bool | None
    dnd: bool | None


class LookupCache:
    """Do-not-disturb flags and whole records of numbers, each with the time of its lookup.

    :param database: where they are stored, by keyed hashes of at most 64 bytes that the caller computes
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def get_many(self, hashes: Sequence[bytes], since: datetime) -> dict[bytes, bool]:
        """Return the do-not-disturb flags of numbers that were looked up at ``since`` or later.

        :raises DatabaseError: when the database cannot be read
        """
        known: dict[bytes, bool] = {}
        with self._database.connect() as connection:
            for batch in batched(hashes):
                wanted = lookups.c.hash.in_(batch)
                rows = connection.execute(
                    select(lookups.c.hash, lookups.c.dnd).where(wanted, lookups.c.looked_up_at >= since)
                )
                known.update((row.hash, row.dnd) for row in rows)
        return known

    def set_many(self, found: Mapping[bytes, bool], at: datetime) -> None:
        """Store do-not-disturb flags in place of earlier ones.

        :raises DatabaseError: when the database cannot be written; some of it may have been
        """
        for batch in batched(found.items()):
            rows = [{"hash": one, "dnd": dnd, "looked_up_at": at} for one, dnd in batch]
            self._database.write(partial(_replace, rows, lookups))

    def get_records(self, hashes: Sequence[bytes], since: datetime) -> dict[bytes, PhoneRecord]:
        """Return the whole records of numbers that were looked up at ``since`` or later with ``set_records``.

        :raises DatabaseError: when the database cannot be read
        """
        known: dict[bytes, PhoneRecord] = {}
        columns = phone_records.c
        with self._database.connect() as connection:
            for batch in batched(hashes):
                query = select(columns.hash, columns.operator, columns.country, columns.ported, columns.dnd)
                rows = connection.execute(query.where(columns.hash.in_(batch), columns.looked_up_at >= since))
                known.update((one, PhoneRecord(*record)) for one, *record in rows)
        return known

    def set_records(self, found: Mapping[bytes, PhoneRecord], at: datetime) -> None:
        """Store whole records, and their do-not-disturb flags for campaigns.

        :raises DatabaseError: when the database cannot be written; some of it may have been
        """
        for batch in batched(found.items()):
            rows = [{"hash": one, "looked_up_at": at, **record._asdict()} for one, record in batch]
            self._database.write(partial(_replace, rows, phone_records))
        self.set_many({one: record.dnd for one, record in found.items() if record.dnd is not None}, at)


def _replace(rows: Sequence[Mapping[str, object]], table: Table, connection: Connection) -> None:
    # Upserts differ between databases. This does not, where only one at a time does it.
    connection.execute(select(alembic_version.c.version_num).with_for_update())
    connection.execute(delete(table).where(table.c.hash.in_([row["hash"] for row in rows])))
    connection.execute(insert(table), rows)
