"""The tables, and how a database comes to have them.

A migration that changes a table writes out the earlier form in the migrations before it.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from datetime import UTC, datetime

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    and_,
    func,
    insert,
    inspect,
    literal_column,
    select,
    text,
    true,
)
from sqlalchemy.types import VARBINARY

from cpaas_provider.database import earlier
from cpaas_provider.database.errors import DatabaseError
from cpaas_provider.database.moment import UtcDateTime as UtcDateTime

_MYSQL = ("mysql", "mariadb")

# Any number will do; it is what several processes that create the tables at once wait for.
_MIGRATION_LOCK = 0x6370616173

metadata = MetaData()

CAMPAIGN_LENGTH = 120
"""Characters of what waiters wait for: a reference of ours, or the id of a message nobody has noted yet, and a mark."""

versions = Table(
    "cpaas_schema",
    metadata,
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("since", UtcDateTime, nullable=False),
)

campaigns = Table(
    "cpaas_campaigns",
    metadata,
    Column("campaign", String(200), primary_key=True),
    Column("owner", Text),
    Column("until", UtcDateTime),
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

# Campaigns with a key, by connection and key; each of their partitions is a row of cpaas_campaigns.
keyed_campaigns = Table(
    "cpaas_keyed_campaigns",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("conn_id", String(250), nullable=False),
    Column("base_url", Text, nullable=False),
    # What the hashes of its journal are keyed with: its own, so that they outlive an API key.
    Column("secret", String(64), nullable=False),
    Column("partitions", Integer, nullable=False),
    Column("since", UtcDateTime, nullable=False),
)

lookups = Table(
    "cpaas_lookups",
    metadata,
    # MySQL's BLOB can be no key.
    Column("hash", LargeBinary(64).with_variant(VARBINARY(64), *_MYSQL), primary_key=True),
    Column("dnd", Boolean, nullable=False),
    Column("at", UtcDateTime, nullable=False),
    Index("cpaas_lookups_at", "at"),
)

identities = Table(
    "cpaas_identity",
    metadata,
    Column("name", String(20), primary_key=True),
    Column("value", String(64), nullable=False),
)

# What a task sends with callbacks: a campaign, or a request that is one by itself.
sends = Table(
    "cpaas_sends",
    metadata,
    Column("campaign", String(CAMPAIGN_LENGTH), primary_key=True),
    Column("operation", String(40), nullable=False),
    Column("conn_id", String(250), nullable=False),
    Column("dag_id", String(250), nullable=False),
    Column("run_id", String(250), nullable=False),
    Column("task_id", String(250), nullable=False),
    Column("map_index", Integer, nullable=False),
    Column("began", UtcDateTime, nullable=False),
    # How many were sent to, known when the task ended; whether all of them are final, found out afterwards.
    Column("expected", Integer),
    Column("ended", UtcDateTime),
    Column("finished", UtcDateTime),
    # Recipients of requests whose outcome was unknown when the task ended.
    Column("unknown", Integer),
    Index("cpaas_sends_began", "began"),
    Index(
        "cpaas_sends_unfinished",
        "ended",
        sqlite_where=text("finished IS NULL"),
        postgresql_where=text("finished IS NULL"),
    ),
)

# The requests the service accepted, as far as known. What names one is of its connection alone.
requests = Table(
    "cpaas_requests",
    metadata,
    Column("conn_id", String(250), primary_key=True),
    Column("reference", String(100), primary_key=True),
    Column("campaign", String(CAMPAIGN_LENGTH), nullable=False),
    Column("recipients", Integer, nullable=False),
    Column("message_id", String(100)),
    # Whether all of its recipients are in cpaas_deliveries.
    Column("tracked", Boolean, nullable=False),
    Column("noted", UtcDateTime, nullable=False),
    Index("cpaas_requests_campaign", "campaign"),
    Index("cpaas_requests_message_id", "conn_id", "message_id"),
)

# How many recipients of a request have a row, so that they need not be counted for each report. It may be too many, as
# rows are pruned and united; it is too few only where it is 0, or there is none.
request_counts = Table(
    "cpaas_request_counts",
    metadata,
    Column("campaign", String(CAMPAIGN_LENGTH), primary_key=True),
    Column("conn_id", String(250), primary_key=True),
    Column("reference", String(100), primary_key=True),
    Column("recipients", Integer, nullable=False),
    # No index holds it, or PostgreSQL would write to all of them whenever it changes.
    Column("touched", UtcDateTime, nullable=False),
    sqlite_with_rowid=False,
)

# What became of each recipient of each request, by the strongest word there was.
deliveries = Table(
    "cpaas_deliveries",
    metadata,
    Column("campaign", String(CAMPAIGN_LENGTH), primary_key=True),
    Column("conn_id", String(250), primary_key=True),
    # Empty where the report named none.
    Column("reference", String(100), primary_key=True),
    # An address of e-mail has 254 characters at most; what is no recipient at all is cut.
    Column("recipient", String(255), primary_key=True),
    Column("message_id", String(100)),
    Column("kind", String(10)),
    Column("state", Integer, nullable=False),
    Column("status", String(50), nullable=False),
    Column("reason", String(300)),
    Column("delivered", Boolean, nullable=False),
    Column("failed", Boolean, nullable=False),
    Column("clicked", Boolean, nullable=False),
    Column("reported", UtcDateTime, nullable=False),
    Column("touched", UtcDateTime, nullable=False),
    # In which batch DAGs were told of it, by what they were told; 0 where nobody was to be.
    Column("failed_in", BigInteger),
    Column("clicked_in", BigInteger),
    Column("topped_up_in", BigInteger),
    Index("cpaas_deliveries_touched", "touched"),
    # Counting a campaign reads this alone.
    Index("cpaas_deliveries_state", "campaign", "conn_id", "reference", "state", "touched"),
    sqlite_with_rowid=False,
)

# Who DAGs are told of. The states are written out, or SQLite would not see that an index holds them.
has_failed = deliveries.c.state.in_((literal_column("10"), literal_column("30")))
has_clicked = deliveries.c.clicked.is_(true())
is_topped_up = and_(deliveries.c.kind == literal_column("'airtime'"), deliveries.c.state == literal_column("20"))
for _column, _who in (("failed_in", has_failed), ("clicked_in", has_clicked), ("topped_up_in", is_topped_up)):
    Index(f"cpaas_deliveries_{_column}", deliveries.c[_column], sqlite_where=_who, postgresql_where=_who)

# What DAGs are started on, each once: a campaign, or what happened in one since the last batch.
events = Table(
    "cpaas_events",
    metadata,
    Column("seq", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("kind", String(20), nullable=False),
    Column("campaign", String(CAMPAIGN_LENGTH), nullable=False),
    # A campaign that finished is in none.
    Column("batch", BigInteger, nullable=False),
    Column("conn_id", String(250), nullable=False),
    Column("facts", Text, nullable=False),
    Column("made", UtcDateTime, nullable=False),
    Column("told", UtcDateTime),
    Index("cpaas_events_once", "kind", "campaign", "batch", unique=True),
    Index("cpaas_events_batch", "batch"),
    Index("cpaas_events_newest", "kind", "conn_id", "batch"),
    Index("cpaas_events_untold", "seq", sqlite_where=text("told IS NULL"), postgresql_where=text("told IS NULL")),
    sqlite_autoincrement=True,
)

# Every report as it came, once, and how often.
reports = Table(
    "cpaas_reports",
    metadata,
    Column("digest", LargeBinary(32), primary_key=True),
    Column("received", UtcDateTime, nullable=False),
    Column("conn_id", String(250), nullable=False),
    Column("door", String(10), nullable=False),
    Column("campaign", String(CAMPAIGN_LENGTH)),
    Column("recipient", String(255), nullable=False),
    Column("body", Text, nullable=False),
    Column("times", Integer, nullable=False),
    Index("cpaas_reports_received", "received"),
)

# Which row of a contact list belongs to which key of a source: one map a connection and name.
contact_maps = Table(
    "cpaas_contact_maps",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("conn_id", String(250), nullable=False),
    Column("name", String(100), nullable=False),
    Column("base_url", Text, nullable=False),
    # The contact table at the service that the rows belong to.
    Column("table_id", String(200), nullable=False),
    # What the hashes of keys, rows and cells are keyed with.
    Column("secret", String(64), nullable=False),
    # The token of the newest lease.
    Column("fencing_token", BigInteger, nullable=False),
    Column("created", UtcDateTime, nullable=False),
    Index("cpaas_contact_maps_name", "conn_id", "name", unique=True),
)

# Which tasks may write to which buckets of a map now.
contact_leases = Table(
    "cpaas_contact_leases",
    metadata,
    Column("map_id", Integer, ForeignKey(contact_maps.c.id), primary_key=True),
    Column("fencing_token", BigInteger, primary_key=True, autoincrement=False),
    Column("owner", String(1000), nullable=False),
    Column("first_bucket", Integer, nullable=False),
    # The first bucket behind the lease; a lease on a single row has none.
    Column("end_bucket", Integer, nullable=False),
    Column("until", UtcDateTime, nullable=False),
)

contact_map_values = Table(
    "cpaas_contact_map_values",
    metadata,
    Column("map_id", Integer, ForeignKey(contact_maps.c.id), primary_key=True),
    Column("key", String(200), primary_key=True),
    Column("value", Text, nullable=False),
)

_HASH = LargeBinary(16).with_variant(VARBINARY(16), *_MYSQL)

contact_rows = Table(
    "cpaas_contact_rows",
    metadata,
    Column("map_id", Integer, ForeignKey(contact_maps.c.id), primary_key=True),
    Column("key_hash", _HASH, primary_key=True),
    Column("state", Integer, nullable=False),
    Column("row_id", String(200)),
    # Of the row in the source as the list has it; none where the list may have something else.
    Column("raw_hash", _HASH),
    # Of the row in the source that the service rejected.
    Column("rejected_hash", _HASH),
    # Of what was written when the row was gone from the source.
    Column("missing_hash", _HASH),
    Column("cell_hashes", LargeBinary().with_variant(LargeBinary(2**24 - 1), *_MYSQL)),
    # Counts the changes of this entry.
    Column("version", Integer, nullable=False),
    # The lease under which a request is under way.
    Column("fencing_token", BigInteger),
    # Where the source had the row whose creation was requested, and when that was.
    Column("source_row", Integer),
    Column("requested", UtcDateTime),
    # Few of many: a query for what is not in step reads these alone.
    Index(
        "cpaas_contact_rows_open",
        "map_id",
        "state",
        sqlite_where=text("state <> 0"),
        postgresql_where=text("state <> 0"),
    ),
    sqlite_with_rowid=False,
)


def _first(connection: Connection) -> None:
    for table in (campaigns, campaign_values, lookups):
        table.create(connection, checkfirst=True)


def _deliveries(connection: Connection) -> None:
    # Elsewhere what becomes of a recipient cannot be written in one statement that no other process comes between.
    if connection.dialect.name not in REPORT_DIALECTS:
        return
    for table in (identities, *earlier.SECOND, events, reports):
        table.create(connection, checkfirst=True)
    connection.execute(insert(identities).values(name="store", value=secrets.token_hex(16)))


def _keyed_campaigns(connection: Connection) -> None:
    keyed_campaigns.create(connection, checkfirst=True)
    # Where no delivery reports are kept, campaigns are, and their database is told from others, too.
    identities.create(connection, checkfirst=True)
    if connection.execute(select(identities.c.value)).first() is None:
        connection.execute(insert(identities).values(name="store", value=secrets.token_hex(16)))


def _by_connection(connection: Connection) -> None:
    # What a report names is looked for on its own connection alone, and each request has recipients of its own.
    if connection.dialect.name not in REPORT_DIALECTS:
        return
    connection.execute(text(f"ALTER TABLE {sends.name} ADD COLUMN unknown INTEGER"))
    # One without a connection is found by no report, as nobody knows any more whose it is.
    conn_id = "COALESCE((SELECT conn_id FROM cpaas_sends WHERE campaign = earlier.campaign), '')"
    earlier.replace(connection, requests, earlier.requests, {"conn_id": conn_id, "tracked": "FALSE"})
    earlier.replace(connection, deliveries, earlier.deliveries, {"reference": "COALESCE(earlier.reference, '')"})


def _request_counts(connection: Connection) -> None:
    if connection.dialect.name in REPORT_DIALECTS:
        request_counts.create(connection, checkfirst=True)


def _contact_maps(connection: Connection) -> None:
    for table in (contact_maps, contact_leases, contact_map_values, contact_rows):
        table.create(connection, checkfirst=True)


REPORT_DIALECTS = ("sqlite", "postgresql")
"""The databases that delivery reports can be kept in."""

MIGRATIONS: list[Callable[[Connection], None]] = [
    _first,
    _deliveries,
    _keyed_campaigns,
    _by_connection,
    _request_counts,
    _contact_maps,
]
"""What makes version n of version n-1, in order."""


def read_version(connection: Connection) -> int:
    """Return the version the database has, 0 when it has none of our tables.

    :raises DatabaseError: when it is newer than this version of the provider knows
    """
    if not inspect(connection).has_table(versions.name):
        return 0
    version = connection.execute(select(func.max(versions.c.version))).scalar() or 0
    if version > len(MIGRATIONS):
        raise DatabaseError(
            "A newer version of airflow-provider-cpaas created the tables of this database (table version "
            f"{version}, supported here up to {len(MIGRATIONS)}). Nothing was read or changed. Install the newer "
            "version wherever tasks run."
        )
    return version


def migrate(connection: Connection) -> None:
    """Bring the tables up to date within a transaction, also where another process does the same now."""
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_advisory_xact_lock(_MIGRATION_LOCK)))
    version = read_version(connection)
    versions.create(connection, checkfirst=True)
    for number, migration in enumerate(MIGRATIONS[version:], start=version + 1):
        migration(connection)
        connection.execute(insert(versions).values(version=number, since=datetime.now(UTC)))
