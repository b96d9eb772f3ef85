"""Shared rate limits."""

from __future__ import annotations

from sqlalchemy import Column, Double, String, Table

from cpaas_provider.database.schema.base import metadata

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
