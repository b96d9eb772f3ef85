"""The state of each request of a campaign, not only the accepted requests."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"


def upgrade() -> None:
    """Add their columns. Until now only accepted requests had a row."""
    if op.get_bind().dialect.name not in ("sqlite", "postgresql"):
        return
    op.add_column("cpaas_requests", sa.Column("state", sa.String(10), nullable=False, server_default="accepted"))
    op.add_column("cpaas_requests", sa.Column("unknown", sa.Integer, nullable=False, server_default="0"))
    is_unknown = sa.text("state = 'unknown'")
    op.create_index(
        "cpaas_requests_unknown",
        "cpaas_requests",
        ["campaign"],
        sqlite_where=is_unknown,
        postgresql_where=is_unknown,
    )
