"""The register of campaigns with an idempotency key."""

from __future__ import annotations

import secrets

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Create its table, and an id of the database also where no delivery reports are stored."""
    op.create_table(
        "cpaas_keyed_campaigns",
        sa.Column("name", sa.String(64), primary_key=True),
        sa.Column("conn_id", sa.String(250), nullable=False),
        sa.Column("base_url", sa.Text, nullable=False),
        sa.Column("secret", sa.String(64), nullable=False),
        sa.Column("partitions", sa.Integer, nullable=False),
        sa.Column("since", sa.DateTime, nullable=False),
        if_not_exists=True,
    )
    connection = op.get_bind()
    if sa.inspect(connection).has_table("cpaas_identity"):
        return
    identity = op.create_table(
        "cpaas_identity",
        sa.Column("name", sa.String(20), primary_key=True),
        sa.Column("value", sa.String(64), nullable=False),
    )
    op.bulk_insert(identity, [{"name": "store", "value": secrets.token_hex(16)}])
