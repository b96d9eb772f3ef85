"""A report is looked up on its own connection alone, and each request has recipients of its own."""

from __future__ import annotations

from collections.abc import Mapping

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Give requests and deliveries another primary key."""
    if op.get_bind().dialect.name not in ("sqlite", "postgresql"):
        return
    op.add_column("cpaas_sends", sa.Column("unknown", sa.Integer))
    for index in ("cpaas_requests_campaign", "cpaas_requests_message_id"):
        op.drop_index(index, "cpaas_requests")
    op.rename_table("cpaas_requests", "cpaas_requests_earlier")
    requests = op.create_table(
        "cpaas_requests",
        sa.Column("conn_id", sa.String(250), primary_key=True),
        sa.Column("reference", sa.String(100), primary_key=True),
        sa.Column("campaign", sa.String(120), nullable=False),
        sa.Column("recipients", sa.Integer, nullable=False),
        sa.Column("message_id", sa.String(100)),
        sa.Column("tracked", sa.Boolean, nullable=False),
        sa.Column("noted", sa.DateTime, nullable=False),
        sa.Index("cpaas_requests_campaign", "campaign"),
        sa.Index("cpaas_requests_message_id", "conn_id", "message_id"),
    )
    # A request whose connection is not known gets an empty one, so no report is matched to it.
    conn_id = "COALESCE((SELECT conn_id FROM cpaas_sends WHERE campaign = earlier.campaign), '')"
    _copy_rows(requests, {"conn_id": conn_id, "tracked": "FALSE"})
    batches = ("failed_in", "clicked_in", "topped_up_in")
    for name in ("touched", "state", *batches):
        op.drop_index(f"cpaas_deliveries_{name}", "cpaas_deliveries")
    op.rename_table("cpaas_deliveries", "cpaas_deliveries_earlier")
    deliveries = op.create_table(
        "cpaas_deliveries",
        sa.Column("campaign", sa.String(120), primary_key=True),
        sa.Column("conn_id", sa.String(250), primary_key=True),
        sa.Column("reference", sa.String(100), primary_key=True),
        sa.Column("recipient", sa.String(255), primary_key=True),
        sa.Column("message_id", sa.String(100)),
        sa.Column("kind", sa.String(10)),
        sa.Column("state", sa.Integer, nullable=False),
        sa.Column("status", sa.String(50), nullable=False),
        sa.Column("reason", sa.String(300)),
        sa.Column("delivered", sa.Boolean, nullable=False),
        sa.Column("failed", sa.Boolean, nullable=False),
        sa.Column("clicked", sa.Boolean, nullable=False),
        sa.Column("reported", sa.DateTime, nullable=False),
        sa.Column("touched", sa.DateTime, nullable=False),
        *(sa.Column(name, sa.BigInteger) for name in batches),
        sa.Index("cpaas_deliveries_touched", "touched"),
        sa.Index("cpaas_deliveries_state", "campaign", "conn_id", "reference", "state", "touched"),
        # Version 7 replaces them. Only their names matter.
        *(sa.Index(f"cpaas_deliveries_{name}", name) for name in batches),
        sqlite_with_rowid=False,
    )
    _copy_rows(deliveries, {"reference": "COALESCE(earlier.reference, '')"})


def _copy_rows(table: sa.Table, new: Mapping[str, str]) -> None:
    """Fill a table from its earlier form, and drop that.

    :param new: SQL over ``earlier`` for the columns that are new or get another value
    """
    expressions = {column.name: new.get(column.name, f"earlier.{column.name}") for column in table.columns}
    columns, values = ", ".join(expressions), ", ".join(expressions.values())
    # All names and expressions are constants of this module.
    op.execute(f"INSERT INTO {table.name} ({columns}) SELECT {values} FROM {table.name}_earlier AS earlier")  # noqa: S608
    op.drop_table(f"{table.name}_earlier")
