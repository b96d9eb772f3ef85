"""When permanent failures were reported, and the campaigns with too many of them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"

_REPORT_DIALECTS = ("sqlite", "postgresql")


def upgrade() -> None:
    """Add their columns and their table."""
    op.add_column("cpaas_suppressions", sa.Column("reported_at", sa.DateTime))
    is_reported = sa.text("reported_at IS NOT NULL")
    op.create_index(
        "cpaas_suppressions_reported_at",
        "cpaas_suppressions",
        ["reported_at"],
        sqlite_where=is_reported,
        postgresql_where=is_reported,
    )
    # Entries that reports made had this source. No command or function has it as its default.
    entries = sa.table("cpaas_suppressions", sa.column("reported_at"), sa.column("added_at"), sa.column("source"))
    made = entries.update().where(entries.c.source == "delivery report")
    op.execute(made.values(reported_at=entries.c.added_at))
    if op.get_bind().dialect.name not in _REPORT_DIALECTS:
        return
    for name in ("permanent_failure_at", "reached_at"):
        op.add_column("cpaas_deliveries", sa.Column(name, sa.DateTime))
    has_failed = sa.text("permanent_failure_at IS NOT NULL")
    op.create_index(
        "cpaas_deliveries_permanent_failure",
        "cpaas_deliveries",
        ["campaign", "recipient"],
        sqlite_where=has_failed,
        postgresql_where=has_failed,
    )
    op.create_table(
        "cpaas_suppression_brakes",
        sa.Column("campaign", sa.String(120), primary_key=True),
        sa.Column("conn_id", sa.String(250), nullable=False),
        sa.Column("failures", sa.Integer, nullable=False),
        sa.Column("recipients", sa.Integer, nullable=False),
        sa.Column("braked_at", sa.DateTime, nullable=False),
    )
