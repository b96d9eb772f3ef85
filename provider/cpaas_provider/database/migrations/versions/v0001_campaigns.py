"""Campaigns with an idempotency key, and cached lookups."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.types import VARBINARY

revision = "0001"
down_revision = None

_MYSQL = ("mysql", "mariadb")


def upgrade() -> None:
    """Create their tables."""
    op.create_table(
        "cpaas_campaigns",
        sa.Column("campaign", sa.String(200), primary_key=True),
        sa.Column("owner", sa.Text),
        sa.Column("until", sa.DateTime),
        sa.Column("term", sa.BigInteger, nullable=False),
        if_not_exists=True,
    )
    op.create_table(
        "cpaas_campaign_values",
        sa.Column("campaign", sa.String(200), sa.ForeignKey("cpaas_campaigns.campaign"), primary_key=True),
        sa.Column("key", sa.String(200), primary_key=True),
        sa.Column("value", sa.Text().with_variant(sa.Text(2**24 - 1), *_MYSQL), nullable=False),
        if_not_exists=True,
    )
    op.create_table(
        "cpaas_lookups",
        sa.Column("hash", sa.LargeBinary(64).with_variant(VARBINARY(64), *_MYSQL), primary_key=True),
        sa.Column("dnd", sa.Boolean, nullable=False),
        sa.Column("at", sa.DateTime, nullable=False),
        if_not_exists=True,
    )
    op.create_index("cpaas_lookups_at", "cpaas_lookups", ["at"], if_not_exists=True)
