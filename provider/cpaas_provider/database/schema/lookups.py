"""What the service said about phone numbers."""

from __future__ import annotations

from sqlalchemy import Boolean, Column, Index, Table, Text

from cpaas_provider.database.schema.base import UtcDateTime, hash_type, metadata

lookups = Table(
    "cpaas_lookups",
    metadata,
    Column("hash", hash_type(64), primary_key=True),
    Column("dnd", Boolean, nullable=False),
    Column("looked_up_at", UtcDateTime, nullable=False),
    Index("cpaas_lookups_looked_up_at", "looked_up_at"),
)

# Whole records of bulk lookups. Campaigns read only the do-not-disturb flags in cpaas_lookups.
phone_records = Table(
    "cpaas_phone_records",
    metadata,
    Column("hash", hash_type(64), primary_key=True),
    Column("operator", Text),
    Column("country", Text),
    Column("ported", Boolean),
    Column("dnd", Boolean),
    Column("looked_up_at", UtcDateTime, nullable=False),
    Index("cpaas_phone_records_looked_up_at", "looked_up_at"),
)
