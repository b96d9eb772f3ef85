"""How many recipients of each request have a row."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Create the table, where the database can store delivery reports."""
    if op.get_bind().dialect.name not in ("sqlite", "postgresql"):
        return
    op.create_table(
        "cpaas_request_counts",
        sa.Column("campaign", sa.String(120), primary_key=True),
        sa.Column("conn_id", sa.String(250), primary_key=True),
        sa.Column("reference", sa.String(100), primary_key=True),
        sa.Column("recipients", sa.Integer, nullable=False),
        sa.Column("touched", sa.DateTime, nullable=False),
        sqlite_with_rowid=False,
    )
