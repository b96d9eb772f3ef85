"""Recipients that the service rejected from an accepted request."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    """Add their column."""
    op.add_column("cpaas_requests", sa.Column("rejected", sa.Text))
