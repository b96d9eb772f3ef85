"""The tables, and how a database comes to have them.

A migration that changes a table writes out the earlier form in the migrations before it.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    DateTime,
    Dialect,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    TypeDecorator,
    func,
    insert,
    inspect,
    select,
)
from sqlalchemy.types import VARBINARY

from cpaas_provider.store.errors import StoreError

_MYSQL = ("mysql", "mariadb")

# Any number will do; it is what several processes that create the tables at once wait for.
_CREATION = 0x6370616173


class Moment(TypeDecorator[datetime]):
    """A moment, kept in UTC by whatever database."""

    impl = DateTime
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Write it without a zone, which not every database keeps."""
        return None if value is None else value.astimezone(UTC).replace(tzinfo=None)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Read it as what it is."""
        return None if value is None else value.replace(tzinfo=UTC)


metadata = MetaData()

versions = Table(
    "cpaas_schema",
    metadata,
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("since", Moment, nullable=False),
)

campaigns = Table(
    "cpaas_campaigns",
    metadata,
    Column("campaign", String(200), primary_key=True),
    Column("owner", Text),
    Column("until", Moment),
    Column("term", BigInteger, nullable=False),
)

campaign_values = Table(
    "cpaas_campaign_values",
    metadata,
    Column("campaign", String(200), ForeignKey(campaigns.c.campaign), primary_key=True),
    Column("key", String(200), primary_key=True),
    # MySQL's own TEXT ends at 64 KB.
    Column("value", Text().with_variant(Text(2**24 - 1), *_MYSQL), nullable=False),
)

lookups = Table(
    "cpaas_lookups",
    metadata,
    # MySQL's BLOB can be no key.
    Column("hash", LargeBinary(64).with_variant(VARBINARY(64), *_MYSQL), primary_key=True),
    Column("dnd", Boolean, nullable=False),
    Column("at", Moment, nullable=False),
    Index("cpaas_lookups_at", "at"),
)


def _first(connection: Connection) -> None:
    for table in (campaigns, campaign_values, lookups):
        table.create(connection, checkfirst=True)


MIGRATIONS: list[Callable[[Connection], None]] = [_first]
"""What makes version n of version n-1, in order."""


def version_of(connection: Connection) -> int:
    """Return the version the database has, 0 when it has none of our tables.

    :raises StoreError: when it is newer than this version of the provider knows
    """
    if not inspect(connection).has_table(versions.name):
        return 0
    version = connection.execute(select(func.max(versions.c.version))).scalar() or 0
    if version > len(MIGRATIONS):
        raise StoreError(
            f"The store was written by a newer version of airflow-provider-cpaas (its tables are of version {version}; "
            f"this one knows them up to {len(MIGRATIONS)}). Nothing was read or changed. Install the newer version "
            "wherever tasks run."
        )
    return version


def migrate(connection: Connection) -> None:
    """Bring the tables up to date within a transaction, also where another process does the same now."""
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_advisory_xact_lock(_CREATION)))
    version = version_of(connection)
    versions.create(connection, checkfirst=True)
    for number, migration in enumerate(MIGRATIONS[version:], start=version + 1):
        migration(connection)
        connection.execute(insert(versions).values(version=number, since=datetime.now(UTC)))
