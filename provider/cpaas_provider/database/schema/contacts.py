"""Contact maps."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, ForeignKey, Index, Integer, LargeBinary, String, Table, Text, text

from cpaas_provider.database.schema.base import MYSQL, UtcDateTime, hash_type, index_where, metadata

MAX_REJECTION_REASON = 500
"""The most characters of the reason of a rejected row."""

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
    Column("key_hash", hash_type(16), primary_key=True),
    Column("state", Integer, nullable=False),
    Column("row_id", String(200)),
    # The hash of the source row that the list has; empty if the list may have something else.
    Column("raw_hash", hash_type(16)),
    # The hash of the source row that the service rejected.
    Column("rejected_hash", hash_type(16)),
    # The hash of what was written when the row was missing from the source.
    Column("missing_hash", hash_type(16)),
    Column("cell_hashes", LargeBinary().with_variant(LargeBinary(2**24 - 1), *MYSQL)),
    # Counts the changes of this entry.
    Column("version", Integer, nullable=False),
    # The lease under which a request is in progress.
    Column("fencing_token", BigInteger),
    # The row number in the source whose creation was requested, and the time of the request.
    Column("source_row", Integer),
    Column("requested", UtcDateTime),
    # A partial index of the few rows that are not in sync.
    Index("cpaas_contact_rows_open", "map_id", "state", **index_where(text("state <> 0"))),
    # Shows that another key has the row of a response.
    Index("cpaas_contact_rows_row_id", "map_id", "row_id"),
    sqlite_with_rowid=False,
)

# What the service said of the rows whose rejected_hash is set. A table of its own, because few of a million rows are.
contact_rejections = Table(
    "cpaas_contact_rejections",
    metadata,
    Column("map_id", Integer, ForeignKey(contact_maps.c.id), primary_key=True),
    Column("key_hash", hash_type(16), primary_key=True),
    Column("source_row", Integer),
    # JSON: the names of the list columns that the error named, or else of those that were sent.
    Column("columns", Text, nullable=False),
    Column("reason", String(MAX_REJECTION_REASON), nullable=False),
    Column("first_at", UtcDateTime, nullable=False),
    Column("last_at", UtcDateTime, nullable=False),
    Column("times", Integer, nullable=False),
    # The hashes of the cells that were sent, so that an erasure finds the recipient's row.
    Column("cell_hashes", LargeBinary().with_variant(LargeBinary(2**24 - 1), *MYSQL)),
)
