"""What was sent with callbacks, delivery reports, and the events that start DAGs."""

from __future__ import annotations

import secrets

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Create their tables, where the database can store delivery reports."""
    if op.get_bind().dialect.name not in ("sqlite", "postgresql"):
        return
    unfinished, unpublished = sa.text("finished IS NULL"), sa.text("told IS NULL")
    identity = op.create_table(
        "cpaas_identity",
        sa.Column("name", sa.String(20), primary_key=True),
        sa.Column("value", sa.String(64), nullable=False),
    )
    op.create_table(
        "cpaas_sends",
        sa.Column("campaign", sa.String(120), primary_key=True),
        sa.Column("operation", sa.String(40), nullable=False),
        sa.Column("conn_id", sa.String(250), nullable=False),
        sa.Column("dag_id", sa.String(250), nullable=False),
        sa.Column("run_id", sa.String(250), nullable=False),
        sa.Column("task_id", sa.String(250), nullable=False),
        sa.Column("map_index", sa.Integer, nullable=False),
        sa.Column("began", sa.DateTime, nullable=False),
        sa.Column("expected", sa.Integer),
        sa.Column("ended", sa.DateTime),
        sa.Column("finished", sa.DateTime),
        sa.Index("cpaas_sends_began", "began"),
        sa.Index("cpaas_sends_unfinished", "ended", sqlite_where=unfinished, postgresql_where=unfinished),
    )
    op.create_table(
        "cpaas_requests",
        sa.Column("reference", sa.String(100), primary_key=True),
        sa.Column("campaign", sa.String(120), nullable=False),
        sa.Column("recipients", sa.Integer, nullable=False),
        sa.Column("message_id", sa.String(100)),
        sa.Column("noted", sa.DateTime, nullable=False),
        sa.Index("cpaas_requests_campaign", "campaign"),
        sa.Index("cpaas_requests_message_id", "message_id"),
    )
    op.create_table(
        "cpaas_deliveries",
        sa.Column("campaign", sa.String(120), primary_key=True),
        sa.Column("recipient", sa.String(255), primary_key=True),
        sa.Column("reference", sa.String(100)),
        sa.Column("message_id", sa.String(100)),
        sa.Column("conn_id", sa.String(250), nullable=False),
        sa.Column("kind", sa.String(10)),
        sa.Column("state", sa.Integer, nullable=False),
        sa.Column("status", sa.String(50), nullable=False),
        sa.Column("reason", sa.String(300)),
        sa.Column("delivered", sa.Boolean, nullable=False),
        sa.Column("failed", sa.Boolean, nullable=False),
        sa.Column("clicked", sa.Boolean, nullable=False),
        sa.Column("reported", sa.DateTime, nullable=False),
        sa.Column("touched", sa.DateTime, nullable=False),
        sa.Column("failed_in", sa.BigInteger),
        sa.Column("clicked_in", sa.BigInteger),
        sa.Column("topped_up_in", sa.BigInteger),
        sa.Index("cpaas_deliveries_touched", "touched"),
        sa.Index("cpaas_deliveries_state", "campaign", "state", "touched"),
        # Version 4 replaces the table. Only the names of these matter.
        *(sa.Index(f"cpaas_deliveries_{name}", name) for name in ("failed_in", "clicked_in", "topped_up_in")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "cpaas_events",
        sa.Column("seq", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True),
        sa.Column("kind", sa.String(20), nullable=False),
        sa.Column("campaign", sa.String(120), nullable=False),
        sa.Column("batch", sa.BigInteger, nullable=False),
        sa.Column("conn_id", sa.String(250), nullable=False),
        sa.Column("facts", sa.Text, nullable=False),
        sa.Column("made", sa.DateTime, nullable=False),
        sa.Column("told", sa.DateTime),
        sa.Index("cpaas_events_once", "kind", "campaign", "batch", unique=True),
        sa.Index("cpaas_events_batch", "batch"),
        sa.Index("cpaas_events_newest", "kind", "conn_id", "batch"),
        sa.Index("cpaas_events_untold", "seq", sqlite_where=unpublished, postgresql_where=unpublished),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "cpaas_reports",
        sa.Column("digest", sa.LargeBinary(32), primary_key=True),
        sa.Column("received", sa.DateTime, nullable=False),
        sa.Column("conn_id", sa.String(250), nullable=False),
        sa.Column("door", sa.String(10), nullable=False),
        sa.Column("campaign", sa.String(120)),
        sa.Column("recipient", sa.String(255), nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("times", sa.Integer, nullable=False),
        sa.Index("cpaas_reports_received", "received"),
    )
    op.bulk_insert(identity, [{"name": "store", "value": secrets.token_hex(16)}])
