"""What the service said of rejected rows of contact lists."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.types import VARBINARY

revision = "0015"
down_revision = "0014"

_MYSQL = ("mysql", "mariadb")


def upgrade() -> None:
    """Create their table."""
    op.create_table(
        "cpaas_contact_rejections",
        sa.Column("map_id", sa.Integer, sa.ForeignKey("cpaas_contact_maps.id"), primary_key=True),
        sa.Column("key_hash", sa.LargeBinary(16).with_variant(VARBINARY(16), *_MYSQL), primary_key=True),
        sa.Column("source_row", sa.Integer),
        sa.Column("columns", sa.Text, nullable=False),
        sa.Column("reason", sa.String(500), nullable=False),
        sa.Column("first_at", sa.DateTime, nullable=False),
        sa.Column("last_at", sa.DateTime, nullable=False),
        sa.Column("times", sa.Integer, nullable=False),
        sa.Column("cell_hashes", sa.LargeBinary().with_variant(sa.LargeBinary(2**24 - 1), *_MYSQL)),
    )
