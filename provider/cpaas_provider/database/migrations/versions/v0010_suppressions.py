"""The stored suppression list, and the keys of its recipient hashes."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.types import VARBINARY

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    """Create their tables."""
    op.create_table(
        "cpaas_hash_keys",
        sa.Column("key_id", sa.String(16), primary_key=True),
        sa.Column("salt", sa.String(64), nullable=False),
        sa.Column("created_at", sa.DateTime, nullable=False),
    )
    op.create_table(
        "cpaas_suppressions",
        sa.Column(
            "recipient_hash",
            sa.LargeBinary(16).with_variant(VARBINARY(16), "mysql", "mariadb"),
            primary_key=True,
        ),
        sa.Column("channel", sa.String(10), primary_key=True),
        sa.Column("conn_id", sa.String(250), primary_key=True),
        sa.Column("reason", sa.String(20), primary_key=True),
        sa.Column("key_id", sa.String(16), nullable=False),
        sa.Column("source", sa.String(100), nullable=False),
        sa.Column("added_at", sa.DateTime, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_index("cpaas_suppressions_conn_id", "cpaas_suppressions", ["conn_id", "channel", "reason"])
