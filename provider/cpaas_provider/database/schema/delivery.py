"""Sends, and the delivery reports about them."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Float,
    Index,
    Integer,
    LargeBinary,
    String,
    Table,
    Text,
    and_,
    event,
    literal_column,
    text,
    true,
)

from cpaas_provider.database.schema.base import CAMPAIGN_LENGTH, UtcDateTime, index_where, metadata, task_columns

# Sends with callbacks: a campaign, or a single request, which counts as a campaign of its own.
sends = Table(
    "cpaas_sends",
    metadata,
    Column("campaign", String(CAMPAIGN_LENGTH), primary_key=True),
    Column("operation", String(40), nullable=False),
    Column("conn_id", String(250), nullable=False),
    *task_columns(),
    Column("started_at", UtcDateTime, nullable=False),
    # The number of recipients the service accepted, and when the task ended.
    Column("expected", Integer),
    Column("ended_at", UtcDateTime),
    # When the publisher found that the campaign is finished.
    Column("finished_at", UtcDateTime),
    # The number of recipients of unknown outcome when the task ended, without those of requests in cpaas_requests:
    # their journal is lost, or an earlier version of the provider recorded the end.
    Column("unknown", Integer),
    Index("cpaas_sends_started_at", "started_at"),
    Index("cpaas_sends_unfinished", "ended_at", **index_where(text("finished_at IS NULL"))),
)


class RequestState(StrEnum):
    """What is known of a request. One without a row is pending: its task has not ended, or its journal is lost."""

    ACCEPTED = "accepted"
    UNKNOWN = "unknown"
    """The outcome of some of its recipients is unknown. Its reports count in addition to those of accepted requests."""

    SUPERSEDED = "superseded"
    """Its outcome is unknown, but each of its recipients is in a later request that counts instead."""

    NOT_SENT = "not_sent"
    """It was not sent, or rejected, for all of its recipients."""


# The requests of sends: accepted ones while the task sends, the others once it has ended. References and message ids
# are unique within a connection.
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
    # The keyed hashes of the recipients that the service rejected from the request, in hexadecimal digits.
    Column("rejected", Text),
    Column("recorded_at", UtcDateTime, nullable=False),
    # A value of RequestState. Earlier versions of the provider record accepted requests only.
    Column("state", String(10), nullable=False, server_default="accepted"),
    # The number of its recipients whose outcome is unknown. Each counts for the newest of its requests of unknown
    # outcome, so that an earlier one may have none.
    Column("unknown", Integer, nullable=False, server_default="0"),
    Index("cpaas_requests_campaign", "campaign"),
    Index("cpaas_requests_unknown", "campaign", **index_where(text("state = 'unknown'"))),
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
    # The times of the latest report of a permanent failure, and of the latest that proves the recipient reachable, by
    # the reports themselves. And when the first report of a permanent failure was received, by our clock.
    Column("permanent_failure_at", UtcDateTime),
    Column("reached_at", UtcDateTime),
    Column("failure_received_at", UtcDateTime),
    # The batch of the delivery event that reports this row, by kind of event; 0 if none shall report it.
    Column("failed_batch", BigInteger),
    Column("clicked_batch", BigInteger),
    Column("topped_up_batch", BigInteger),
    Index("cpaas_deliveries_updated_at", "updated_at"),
    # Counting a campaign reads only this index.
    Index("cpaas_deliveries_delivery_status", "campaign", "conn_id", "reference", "delivery_status", "updated_at"),
    # The search page looks for a recipient in all campaigns.
    Index("cpaas_deliveries_recipient", "recipient"),
    # The share of a campaign's recipients with a permanent failure.
    Index(
        "cpaas_deliveries_permanent_failure",
        "campaign",
        "recipient",
        **index_where(text("permanent_failure_at IS NOT NULL")),
    ),
    sqlite_with_rowid=False,
)

# Campaigns with too many permanent failures. Their reports add no recipient to the suppression list.
suppression_brakes = Table(
    "cpaas_suppression_brakes",
    metadata,
    Column("campaign", String(CAMPAIGN_LENGTH), primary_key=True),
    Column("conn_id", String(250), nullable=False),
    Column("failures", Integer, nullable=False),
    Column("recipients", Integer, nullable=False),
    Column("braked_at", UtcDateTime, nullable=False),
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
    Index(f"cpaas_deliveries_{_column}", deliveries.c[_column], **index_where(_rows))

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
    Index("cpaas_events_unpublished", "id", **index_where(text("published_at IS NULL"))),
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
    # What was counted: the sum in cpaas_campaign_changes.
    Column("version", BigInteger, nullable=False),
    Column("counted_at", UtcDateTime, nullable=False),
    # The duration of counting.
    Column("seconds", Float, nullable=False),
)
