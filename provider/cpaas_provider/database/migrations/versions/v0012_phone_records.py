"""Cached records of bulk phone lookups."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    """Create their table."""
    op.create_table(
        "cpaas_phone_records",
        # MySQL allows no BLOB in a key.
        sa.Column("hash", sa.LargeBinary(64).with_variant(mysql.VARBINARY(64), "mysql", "mariadb"), primary_key=True),
        sa.Column("operator", sa.Text),
        sa.Column("country", sa.Text),
        sa.Column("ported", sa.Boolean),
        sa.Column("dnd", sa.Boolean),
        sa.Column("looked_up_at", sa.DateTime, nullable=False),
    )
    op.create_index("cpaas_phone_records_looked_up_at", "cpaas_phone_records", ["looked_up_at"])
