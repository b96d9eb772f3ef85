"""Leases on names, and the alerts that wait for a notification."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Create their tables."""
    op.create_table(
        "cpaas_leases",
        sa.Column("name", sa.String(64), primary_key=True),
        sa.Column("owner", sa.String(200), nullable=False),
        sa.Column("fencing_token", sa.BigInteger, nullable=False),
        sa.Column("expires_at", sa.DateTime, nullable=False),
    )
    op.create_table(
        "cpaas_notifications",
        sa.Column("name", sa.String(64), primary_key=True),
        sa.Column("conn_id", sa.String(250), nullable=False),
        sa.Column("alerts", sa.Integer, nullable=False),
        sa.Column("subjects", sa.Text),
        sa.Column("message", sa.Text),
        sa.Column("first_at", sa.DateTime),
        sa.Column("last_at", sa.DateTime),
        sa.Column("window_seconds", sa.Integer, nullable=False),
        sa.Column("sent_at", sa.DateTime),
        sa.Column("in_flight", sa.Integer, nullable=False),
        sa.Column("flight_token", sa.BigInteger, nullable=False),
        sa.Column("fencing_token", sa.BigInteger, nullable=False),
        sa.Column("leads_until", sa.DateTime),
        sa.Column("lease_expires_at", sa.DateTime),
        sa.Column("sender_ok", sa.Boolean, nullable=False),
        sa.Column("sender_checked_at", sa.DateTime),
    )
