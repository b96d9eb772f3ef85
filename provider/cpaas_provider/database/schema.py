"""The tables of the newest version. ``migrations`` brings older databases to this version."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ColumnElement,
    Connection,
    DateTime,
    Dialect,
    Double,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    TextClause,
    TypeDecorator,
    and_,
    event,
    literal_column,
    text,
    true,
)
from sqlalchemy.types import VARBINARY

_MYSQL = ("mysql", "mariadb")

metadata = MetaData()


class UtcDateTime(TypeDecorator[datetime]):
    """A moment, stored in UTC in any database."""

    impl = DateTime
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Remove the time zone, because not every database stores it."""
        return None if value is None else value.astimezone(UTC).replace(tzinfo=None)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Add the time zone."""
        return None if value is None else value.replace(tzinfo=UTC)


def _hash(length: int) -> LargeBinary:
    # MySQL allows no BLOB in a key.
    return LargeBinary(length).with_variant(VARBINARY(length), *_MYSQL)


def _task_columns() -> list[Column[Any]]:
    """Return the columns that name a task instance."""
    ids = [Column(name, String(250), nullable=False) for name in ("dag_id", "run_id", "task_id")]
    return [*ids, Column("map_index", Integer, nullable=False)]


def _where(rows: ColumnElement[bool] | TextClause) -> dict[str, Any]:
    """Return the options of a partial index, which has only some rows. MySQL indexes all."""
    return {"sqlite_where": rows, "postgresql_where": rows}


CAMPAIGN_LENGTH = 120
"""The longest name of a campaign: our reference, or a prefix and the id of a message that is not recorded yet."""

# The version of all tables, as Alembic records it.
alembic_version = Table("cpaas_alembic_version", metadata, Column("version_num", String(32), primary_key=True))

campaigns = Table(
    "cpaas_campaigns",
    metadata,
    Column("campaign", String(200), primary_key=True),
    Column("owner", Text),
    Column("lease_expires_at", UtcDateTime),
    Column("fencing_token", BigInteger, nullable=False),
)

campaign_values = Table(
    "cpaas_campaign_values",
    metadata,
    Column("campaign", String(200), ForeignKey(campaigns.c.campaign), primary_key=True),
    Column("key", String(200), primary_key=True),
    # MySQL's default TEXT is limited to 64 KB.
    Column("value", Text().with_variant(Text(2**24 - 1), *_MYSQL), nullable=False),
)

# Campaigns with an idempotency key. Each of their partitions is a row of cpaas_campaigns.
keyed_campaigns = Table(
    "cpaas_keyed_campaigns",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("conn_id", String(250), nullable=False),
    Column("base_url", Text, nullable=False),
    # The key of the hashes in the campaign's journal. It is independent of the API key, which may be replaced.
    Column("secret", String(64), nullable=False),
    Column("partitions", Integer, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
)

lookups = Table(
    "cpaas_lookups",
    metadata,
    Column("hash", _hash(64), primary_key=True),
    Column("dnd", Boolean, nullable=False),
    Column("looked_up_at", UtcDateTime, nullable=False),
    Index("cpaas_lookups_looked_up_at", "looked_up_at"),
)

# Whole records of bulk lookups. Campaigns read only the do-not-disturb flags in cpaas_lookups.
phone_records = Table(
    "cpaas_phone_records",
    metadata,
    Column("hash", _hash(64), primary_key=True),
    Column("operator", Text),
    Column("country", Text),
    Column("ported", Boolean),
    Column("dnd", Boolean),
    Column("looked_up_at", UtcDateTime, nullable=False),
    Index("cpaas_phone_records_looked_up_at", "looked_up_at"),
)

identities = Table(
    "cpaas_identity",
    metadata,
    Column("name", String(20), primary_key=True),
    Column("value", String(64), nullable=False),
)

# Sends with callbacks: a campaign, or a single request, which counts as a campaign of its own.
sends = Table(
    "cpaas_sends",
    metadata,
    Column("campaign", String(CAMPAIGN_LENGTH), primary_key=True),
    Column("operation", String(40), nullable=False),
    Column("conn_id", String(250), nullable=False),
    *_task_columns(),
    Column("started_at", UtcDateTime, nullable=False),
    # The number of recipients the service accepted, and when the task ended.
    Column("expected", Integer),
    Column("ended_at", UtcDateTime),
    # When the publisher found that the campaign is finished.
    Column("finished_at", UtcDateTime),
    # The number of recipients of requests whose outcome was unknown when the task ended.
    Column("unknown", Integer),
    Index("cpaas_sends_started_at", "started_at"),
    Index("cpaas_sends_unfinished", "ended_at", **_where(text("finished_at IS NULL"))),
)

# The requests that the service is known to have accepted. References and message ids are unique within a connection.
requests = Table(
    "cpaas_requests",
    metadata,
    Column("conn_id", String(250), primary_key=True),
    Column("reference", String(100), primary_key=True),
    Column("campaign", String(CAMPAIGN_LENGTH), nullable=False),
    Column("recipients", Integer, nullable=False),
    Column("message_id", String(100)),
    # Whether all recipients of the request are in cpaas_deliveries.
    Column("tracked", Boolean, nullable=False),
    Column("recorded_at", UtcDateTime, nullable=False),
    Index("cpaas_requests_campaign", "campaign"),
    Index("cpaas_requests_message_id", "conn_id", "message_id"),
)

# The number of rows of a request in cpaas_deliveries, so that they need not be counted for each report. The number
# may be too high, because rows are pruned and merged. It is too low only if it is 0 or its row is missing.
request_counts = Table(
    "cpaas_request_counts",
    metadata,
    Column("campaign", String(CAMPAIGN_LENGTH), primary_key=True),
    Column("conn_id", String(250), primary_key=True),
    Column("reference", String(100), primary_key=True),
    Column("recipients", Integer, nullable=False),
    # Not indexed, because PostgreSQL would then write to all indexes whenever it changes.
    Column("updated_at", UtcDateTime, nullable=False),
    sqlite_with_rowid=False,
)

# The delivery status of each recipient of each request: the strongest that was reported.
deliveries = Table(
    "cpaas_deliveries",
    metadata,
    Column("campaign", String(CAMPAIGN_LENGTH), primary_key=True),
    Column("conn_id", String(250), primary_key=True),
    # Empty if the report names no reference.
    Column("reference", String(100), primary_key=True),
    # An email address has at most 254 characters. A longer text is no recipient and is cut.
    Column("recipient", String(255), primary_key=True),
    Column("message_id", String(100)),
    Column("kind", String(10)),
    Column("delivery_status", Integer, nullable=False),
    Column("status", String(50), nullable=False),
    Column("reason", String(300)),
    Column("delivered", Boolean, nullable=False),
    Column("failed", Boolean, nullable=False),
    Column("clicked", Boolean, nullable=False),
    Column("reported_at", UtcDateTime, nullable=False),
    Column("updated_at", UtcDateTime, nullable=False),
    # The batch of the delivery event that reports this row, by kind of event; 0 if none shall report it.
    Column("failed_batch", BigInteger),
    Column("clicked_batch", BigInteger),
    Column("topped_up_batch", BigInteger),
    Index("cpaas_deliveries_updated_at", "updated_at"),
    # Counting a campaign reads only this index.
    Index("cpaas_deliveries_delivery_status", "campaign", "conn_id", "reference", "delivery_status", "updated_at"),
    # The search page looks for a recipient in all campaigns.
    Index("cpaas_deliveries_recipient", "recipient"),
    sqlite_with_rowid=False,
)

# Partial indexes, for the rows that belong to no batch yet and for the rows of one batch. A query must repeat the
# condition to use the index.
may_have_failed = deliveries.c.failed.is_(true())
may_have_clicked = deliveries.c.clicked.is_(true())
may_be_topped_up = and_(deliveries.c.kind == literal_column("'airtime'"), deliveries.c.delivered.is_(true()))
for _column, _rows in (
    ("failed_batch", may_have_failed),
    ("clicked_batch", may_have_clicked),
    ("topped_up_batch", may_be_topped_up),
):
    Index(f"cpaas_deliveries_{_column}", deliveries.c[_column], **_where(_rows))

# Delivery events (an outbox): a campaign finished, or recipients of one changed since the last batch.
events = Table(
    "cpaas_events",
    metadata,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("kind", String(20), nullable=False),
    Column("campaign", String(CAMPAIGN_LENGTH), nullable=False),
    # 0 for a campaign that finished.
    Column("batch", BigInteger, nullable=False),
    Column("conn_id", String(250), nullable=False),
    Column("facts", Text, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("published_at", UtcDateTime),
    Index("cpaas_events_once", "kind", "campaign", "batch", unique=True),
    Index("cpaas_events_batch", "batch"),
    Index("cpaas_events_newest", "kind", "conn_id", "batch"),
    Index("cpaas_events_unpublished", "id", **_where(text("published_at IS NULL"))),
    sqlite_autoincrement=True,
)

# Every report as it was received, stored once, with the number of times it was received.
reports = Table(
    "cpaas_reports",
    metadata,
    Column("digest", LargeBinary(32), primary_key=True),
    Column("received_at", UtcDateTime, nullable=False),
    Column("conn_id", String(250), nullable=False),
    Column("source", String(10), nullable=False),
    Column("campaign", String(CAMPAIGN_LENGTH)),
    Column("recipient", String(255), nullable=False),
    Column("body", Text, nullable=False),
    Column("received_count", Integer, nullable=False),
    Index("cpaas_reports_received_at", "received_at"),
)

_HAS_LZ4 = text("SELECT 'lz4' = ANY(enumvals) FROM pg_settings WHERE name = 'default_toast_compression'")


@event.listens_for(reports, "after_create")
def _compress_bodies(_: Table, connection: Connection, **__: Any) -> None:
    """Compress bodies with LZ4, if this PostgreSQL supports it. Its default compression takes five times as long."""
    if connection.dialect.name == "postgresql" and connection.execute(_HAS_LZ4).scalar():
        connection.execute(text(f"ALTER TABLE {reports.name} ALTER COLUMN body SET COMPRESSION lz4"))


# The number of reports that arrived in each minute, for the pages. The campaign is empty for messages that belong to
# none. Processes write to different shards, so that they rarely wait for each other.
report_counts = Table(
    "cpaas_report_counts",
    metadata,
    Column("campaign", String(CAMPAIGN_LENGTH), primary_key=True),
    Column("minute", UtcDateTime, primary_key=True),
    Column("conn_id", String(250), primary_key=True),
    Column("delivery_status", Integer, primary_key=True, autoincrement=False),
    Column("shard", Integer, primary_key=True, autoincrement=False),
    Column("reports", Integer, nullable=False),
    Index("cpaas_report_counts_minute", "minute"),
    sqlite_with_rowid=False,
)

# The delivery counts of a campaign when they were last computed for the pages.
delivery_summaries = Table(
    "cpaas_delivery_summaries",
    metadata,
    Column("campaign", String(CAMPAIGN_LENGTH), primary_key=True),
    Column("summary", Text, nullable=False),
    Column("counted_at", UtcDateTime, nullable=False),
    # The duration of counting.
    Column("seconds", Float, nullable=False),
)

# The progress of a campaign or contact sync as its task last recorded it, for the pages.
task_progress = Table(
    "cpaas_task_progress",
    metadata,
    Column("reference", String(CAMPAIGN_LENGTH), primary_key=True),
    Column("kind", String(20), nullable=False),
    Column("operation", String(40), nullable=False),
    Column("conn_id", String(250), nullable=False),
    *_task_columns(),
    Column("state", String(20), nullable=False),
    Column("started_at", UtcDateTime, nullable=False),
    Column("updated_at", UtcDateTime, nullable=False),
    Column("ended_at", UtcDateTime),
    # JSON: counts and money, and the operator's arguments.
    Column("figures", Text, nullable=False),
    Column("settings", Text, nullable=False),
    Index("cpaas_task_progress_started_at", "kind", "started_at", "reference"),
    Index("cpaas_task_progress_conn_id", "kind", "conn_id", "started_at", "reference"),
    Index("cpaas_task_progress_dag_id", "kind", "dag_id", "conn_id"),
)

# Passcodes that tasks requested, without code and number.
passcodes = Table(
    "cpaas_passcodes",
    metadata,
    Column("conn_id", String(250), primary_key=True),
    Column("otp_id", String(200), primary_key=True),
    Column("dag_id", String(250), nullable=False),
    Column("outcome", String(20), nullable=False),
    Column("requested_at", UtcDateTime, nullable=False),
    Column("expires_at", UtcDateTime),
    # Counting reads only this index.
    Index("cpaas_passcodes_requested_at", "requested_at", "dag_id", "conn_id", "outcome", "expires_at"),
)

# Purchases of airtime, without the number.
airtime_purchases = Table(
    "cpaas_airtime_purchases",
    metadata,
    Column("conn_id", String(250), primary_key=True),
    Column("reference", String(100), primary_key=True),
    *_task_columns(),
    Column("network", String(40), nullable=False),
    Column("amount", Float, nullable=False),
    Column("charge", Float),
    Column("status", String(50), nullable=False),
    Column("bought_at", UtcDateTime, nullable=False),
    Index("cpaas_airtime_purchases_bought_at", "bought_at", "reference"),
)

# Contact maps: which row of a contact list belongs to which key of a source. A connection and a name identify a map.
contact_maps = Table(
    "cpaas_contact_maps",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("conn_id", String(250), nullable=False),
    Column("name", String(100), nullable=False),
    Column("base_url", Text, nullable=False),
    # The contact table of the service that the rows belong to.
    Column("table_id", String(200), nullable=False),
    # The key of the hashes of keys, rows and cells.
    Column("secret", String(64), nullable=False),
    # The token of the newest lease.
    Column("fencing_token", BigInteger, nullable=False),
    Column("created", UtcDateTime, nullable=False),
    Index("cpaas_contact_maps_name", "conn_id", "name", unique=True),
)

# Leases of tasks that write to some buckets of a map.
contact_leases = Table(
    "cpaas_contact_leases",
    metadata,
    Column("map_id", Integer, ForeignKey(contact_maps.c.id), primary_key=True),
    Column("fencing_token", BigInteger, primary_key=True, autoincrement=False),
    Column("owner", String(1000), nullable=False),
    Column("first_bucket", Integer, nullable=False),
    # The first bucket after the leased ones. For a lease on a single row it equals first_bucket.
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

contact_rows = Table(
    "cpaas_contact_rows",
    metadata,
    Column("map_id", Integer, ForeignKey(contact_maps.c.id), primary_key=True),
    Column("key_hash", _hash(16), primary_key=True),
    Column("state", Integer, nullable=False),
    Column("row_id", String(200)),
    # The hash of the source row that the list has; empty if the list may have something else.
    Column("raw_hash", _hash(16)),
    # The hash of the source row that the service rejected.
    Column("rejected_hash", _hash(16)),
    # The hash of what was written when the row was missing from the source.
    Column("missing_hash", _hash(16)),
    Column("cell_hashes", LargeBinary().with_variant(LargeBinary(2**24 - 1), *_MYSQL)),
    # Counts the changes of this entry.
    Column("version", Integer, nullable=False),
    # The lease under which a request is in progress.
    Column("fencing_token", BigInteger),
    # The row number in the source whose creation was requested, and the time of the request.
    Column("source_row", Integer),
    Column("requested", UtcDateTime),
    # A partial index of the few rows that are not in sync.
    Index("cpaas_contact_rows_open", "map_id", "state", **_where(text("state <> 0"))),
    sqlite_with_rowid=False,
)

# Leases by name: the owner may do alone what the name stands for.
leases = Table(
    "cpaas_leases",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("owner", String(200), nullable=False),
    Column("fencing_token", BigInteger, nullable=False),
    Column("expires_at", UtcDateTime, nullable=False),
)

# Groups of alerts, which the next notification to the same recipients reports together.
notifications = Table(
    "cpaas_notifications",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("conn_id", String(250), nullable=False),
    # The alerts that no notification has reported yet: their number, the number by subject, the newest one encrypted.
    Column("alerts", Integer, nullable=False),
    Column("subjects", Text),
    Column("message", Text),
    Column("first_at", UtcDateTime),
    Column("last_at", UtcDateTime),
    # The seconds after a notification in which no other is sent.
    Column("window_seconds", Integer, nullable=False),
    Column("sent_at", UtcDateTime),
    # The number of alerts of a notification whose outcome is not recorded, and the fencing token of its sender.
    Column("in_flight", Integer, nullable=False),
    Column("flight_token", BigInteger, nullable=False),
    # The fencing token of the leader, and until when it waits at the latest.
    Column("fencing_token", BigInteger, nullable=False),
    Column("leads_until", UtcDateTime),
    # Until then no other process sends in its place.
    Column("lease_expires_at", UtcDateTime),
    # Whether the background sender can send for this group, and when it last checked.
    Column("sender_ok", Boolean, nullable=False),
    Column("sender_checked_at", UtcDateTime),
)

# The salts of the keys of recipient hashes. A key is derived from a salt and a secret of the configuration.
hash_keys = Table(
    "cpaas_hash_keys",
    metadata,
    Column("key_id", String(16), primary_key=True),
    Column("salt", String(64), nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
)

# The suppression list: recipients that get no message, by channel, connection (empty for all) and reason.
suppressions = Table(
    "cpaas_suppressions",
    metadata,
    Column("recipient_hash", _hash(16), primary_key=True),
    Column("channel", String(10), primary_key=True),
    Column("conn_id", String(250), primary_key=True),
    Column("reason", String(20), primary_key=True),
    Column("key_id", String(16), nullable=False),
    Column("source", String(100), nullable=False),
    Column("added_at", UtcDateTime, nullable=False),
    # Each send checks whether any entry exists.
    Index("cpaas_suppressions_conn_id", "conn_id", "channel", "reason"),
    sqlite_with_rowid=False,
)

# The messages that frequency caps count: one for each recipient of a send, in all its tries.
message_counts = Table(
    "cpaas_message_counts",
    metadata,
    Column("category", String(100), primary_key=True),
    Column("recipient_hash", _hash(16), primary_key=True),
    Column("send", String(100), primary_key=True),
    Column("counted_at", UtcDateTime, nullable=False),
    Index("cpaas_message_counts_counted_at", "counted_at"),
    sqlite_with_rowid=False,
)

# Rate limits that all tasks of a connection share. Times are Unix time by the clock of the database server.
rate_limits = Table(
    "cpaas_rate_limits",
    metadata,
    Column("conn_id", String(250), primary_key=True),
    Column("requests_per_second", Double, nullable=False),
    # All moments before this one are reserved.
    Column("next_at", Double, nullable=False),
    # The end of a pause that the service asked for.
    Column("held_until", Double, nullable=False),
)


REPORT_DIALECTS = ("sqlite", "postgresql")
"""The databases that can store delivery reports."""

# The tables of delivery reports. They need atomic upserts, which only those databases have.
_REPORT_TABLES = (
    sends,
    requests,
    request_counts,
    deliveries,
    events,
    reports,
    report_counts,
    delivery_summaries,
    task_progress,
    passcodes,
    airtime_purchases,
)


def create_all(connection: Connection) -> None:
    """Create all tables that this kind of database supports."""
    tables = metadata.sorted_tables
    if connection.dialect.name not in REPORT_DIALECTS:
        tables = [table for table in tables if table not in _REPORT_TABLES]
    metadata.create_all(connection, tables)
