"""Rate limits that tasks share."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    """Create their table."""
    op.create_table(
        "cpaas_rate_limits",
        sa.Column("conn_id", sa.String(250), primary_key=True),
        sa.Column("requests_per_second", sa.Double, nullable=False),
        sa.Column("next_at", sa.Double, nullable=False),
        sa.Column("held_until", sa.Double, nullable=False),
    )
