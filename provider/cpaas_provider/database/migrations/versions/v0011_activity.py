"""Tables for the pages: progress of tasks, and counts of reports, passcodes and airtime."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    """Create the tables of the pages, and an index to search for recipients."""
    if op.get_bind().dialect.name not in ("sqlite", "postgresql"):
        return
    op.create_index("cpaas_deliveries_recipient", "cpaas_deliveries", ["recipient"])
    op.create_table(
        "cpaas_report_counts",
        sa.Column("campaign", sa.String(120), primary_key=True),
        sa.Column("minute", sa.DateTime, primary_key=True),
        sa.Column("conn_id", sa.String(250), primary_key=True),
        sa.Column("delivery_status", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("shard", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("reports", sa.Integer, nullable=False),
        sa.Index("cpaas_report_counts_minute", "minute"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "cpaas_delivery_summaries",
        sa.Column("campaign", sa.String(120), primary_key=True),
        sa.Column("summary", sa.Text, nullable=False),
        sa.Column("counted_at", sa.DateTime, nullable=False),
        sa.Column("seconds", sa.Float, nullable=False),
    )
    op.create_table(
        "cpaas_task_progress",
        sa.Column("reference", sa.String(120), primary_key=True),
        sa.Column("kind", sa.String(20), nullable=False),
        sa.Column("operation", sa.String(40), nullable=False),
        *_task(),
        sa.Column("state", sa.String(20), nullable=False),
        sa.Column("started_at", sa.DateTime, nullable=False),
        sa.Column("updated_at", sa.DateTime, nullable=False),
        sa.Column("ended_at", sa.DateTime),
        sa.Column("figures", sa.Text, nullable=False),
        sa.Column("settings", sa.Text, nullable=False),
        sa.Index("cpaas_task_progress_started_at", "kind", "started_at", "reference"),
        sa.Index("cpaas_task_progress_conn_id", "kind", "conn_id", "started_at", "reference"),
        sa.Index("cpaas_task_progress_dag_id", "kind", "dag_id", "conn_id"),
    )
    op.create_table(
        "cpaas_passcodes",
        sa.Column("conn_id", sa.String(250), primary_key=True),
        sa.Column("otp_id", sa.String(200), primary_key=True),
        sa.Column("dag_id", sa.String(250), nullable=False),
        sa.Column("outcome", sa.String(20), nullable=False),
        sa.Column("requested_at", sa.DateTime, nullable=False),
        sa.Column("expires_at", sa.DateTime),
        sa.Index("cpaas_passcodes_requested_at", "requested_at", "dag_id", "conn_id", "outcome", "expires_at"),
    )
    _, *task = _task()
    op.create_table(
        "cpaas_airtime_purchases",
        sa.Column("conn_id", sa.String(250), primary_key=True),
        sa.Column("reference", sa.String(100), primary_key=True),
        *task,
        sa.Column("network", sa.String(40), nullable=False),
        sa.Column("amount", sa.Float, nullable=False),
        sa.Column("charge", sa.Float),
        sa.Column("status", sa.String(50), nullable=False),
        sa.Column("bought_at", sa.DateTime, nullable=False),
        sa.Index("cpaas_airtime_purchases_bought_at", "bought_at", "reference"),
    )


def _task() -> list[sa.Column[str] | sa.Column[int]]:
    names = ("conn_id", "dag_id", "run_id", "task_id")
    columns: list[sa.Column[str] | sa.Column[int]] = [sa.Column(name, sa.String(250), nullable=False) for name in names]
    return [*columns, sa.Column("map_index", sa.Integer, nullable=False)]
