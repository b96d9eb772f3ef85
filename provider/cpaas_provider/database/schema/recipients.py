"""What is known of recipients, by a hash."""

from __future__ import annotations

from sqlalchemy import Column, Index, String, Table, text

from cpaas_provider.database.schema.base import UtcDateTime, hash_type, index_where, metadata

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
    Column("recipient_hash", hash_type(16), primary_key=True),
    Column("channel", String(10), primary_key=True),
    Column("conn_id", String(250), primary_key=True),
    Column("reason", String(20), primary_key=True),
    Column("key_id", String(16), nullable=False),
    Column("source", String(100), nullable=False),
    Column("added_at", UtcDateTime, nullable=False),
    # The time of the newest delivery report that lists the recipient. Empty if a person added the entry.
    Column("reported_at", UtcDateTime),
    # Each send checks whether any entry exists.
    Index("cpaas_suppressions_conn_id", "conn_id", "channel", "reason"),
    # Each batch of delivery reports checks whether reports have made any.
    Index("cpaas_suppressions_reported_at", "reported_at", **index_where(text("reported_at IS NOT NULL"))),
    sqlite_with_rowid=False,
)

# The messages that frequency caps count: one for each recipient of a send, in all its tries.
message_counts = Table(
    "cpaas_message_counts",
    metadata,
    Column("category", String(100), primary_key=True),
    Column("recipient_hash", hash_type(16), primary_key=True),
    Column("send", String(100), primary_key=True),
    Column("counted_at", UtcDateTime, nullable=False),
    Index("cpaas_message_counts_counted_at", "counted_at"),
    sqlite_with_rowid=False,
)
