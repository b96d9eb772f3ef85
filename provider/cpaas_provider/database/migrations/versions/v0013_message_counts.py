"""Messages that frequency caps count."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.types import VARBINARY

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    """Create their table."""
    op.create_table(
        "cpaas_message_counts",
        sa.Column("category", sa.String(100), primary_key=True),
        sa.Column(
            "recipient_hash",
            sa.LargeBinary(16).with_variant(VARBINARY(16), "mysql", "mariadb"),
            primary_key=True,
        ),
        sa.Column("send", sa.String(100), primary_key=True),
        sa.Column("counted_at", sa.DateTime, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_index("cpaas_message_counts_counted_at", "cpaas_message_counts", ["counted_at"])
