"""What holds for all requests of a connection, from whatever DAG."""

from __future__ import annotations

from sqlalchemy import Column, String, Table

from cpaas_provider.database.schema.base import UtcDateTime, metadata

# The connections whose requests are stopped. The names of connections are in lower case.
stops = Table(
    "cpaas_stops",
    metadata,
    Column("conn_id", String(250), primary_key=True),
    Column("stopped_at", UtcDateTime, nullable=False),
    Column("stopped_by", String(100), nullable=False),
    Column("reason", String(200), nullable=False),
)
