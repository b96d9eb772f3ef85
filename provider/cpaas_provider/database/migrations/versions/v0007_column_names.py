"""Renames columns after the glossary. No index depends on the numbers of delivery statuses any more."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"

_MOMENT = sa.DateTime()

_COLUMNS: dict[str, list[tuple[str, str, sa.types.TypeEngine[Any], bool]]] = {
    "cpaas_campaigns": [
        ("until", "lease_expires_at", _MOMENT, True),
        ("term", "fencing_token", sa.BigInteger(), False),
    ],
    "cpaas_keyed_campaigns": [("since", "created_at", _MOMENT, False)],
    "cpaas_lookups": [("at", "looked_up_at", _MOMENT, False)],
    "cpaas_sends": [
        ("began", "started_at", _MOMENT, False),
        ("ended", "ended_at", _MOMENT, True),
        ("finished", "finished_at", _MOMENT, True),
    ],
    "cpaas_requests": [("noted", "recorded_at", _MOMENT, False)],
    "cpaas_request_counts": [("touched", "updated_at", _MOMENT, False)],
    "cpaas_deliveries": [
        ("state", "delivery_status", sa.Integer(), False),
        ("reported", "reported_at", _MOMENT, False),
        ("touched", "updated_at", _MOMENT, False),
        ("failed_in", "failed_batch", sa.BigInteger(), True),
        ("clicked_in", "clicked_batch", sa.BigInteger(), True),
        ("topped_up_in", "topped_up_batch", sa.BigInteger(), True),
    ],
    "cpaas_events": [
        ("seq", "id", sa.BigInteger(), False),
        ("made", "created_at", _MOMENT, False),
        ("told", "published_at", _MOMENT, True),
    ],
    "cpaas_reports": [
        ("received", "received_at", _MOMENT, False),
        ("door", "source", sa.String(10), False),
        ("times", "received_count", sa.Integer(), False),
    ],
}
"""By table: the old name of a column, its new name, its type, and whether it is nullable."""

_DROPPED = {
    "cpaas_lookups": ["at"],
    "cpaas_sends": ["began"],
    "cpaas_deliveries": ["touched", "state", "failed_in", "clicked_in", "topped_up_in"],
    "cpaas_events": ["untold"],
    "cpaas_reports": ["received"],
}
"""By table: the suffixes of the names of the indexes to drop."""

_DELIVERY_KEY = ["campaign", "conn_id", "reference"]

_CREATED: dict[str, list[tuple[str, list[str], sa.ColumnElement[bool] | None]]] = {
    "cpaas_lookups": [("looked_up_at", ["looked_up_at"], None)],
    "cpaas_sends": [("started_at", ["started_at"], None)],
    "cpaas_deliveries": [
        ("updated_at", ["updated_at"], None),
        ("delivery_status", [*_DELIVERY_KEY, "delivery_status", "updated_at"], None),
        ("failed_batch", ["failed_batch"], sa.column("failed", sa.Boolean).is_(sa.true())),
        ("clicked_batch", ["clicked_batch"], sa.column("clicked", sa.Boolean).is_(sa.true())),
        (
            "topped_up_batch",
            ["topped_up_batch"],
            sa.and_(
                sa.column("kind") == sa.literal_column("'airtime'"), sa.column("delivered", sa.Boolean).is_(sa.true())
            ),
        ),
    ],
    "cpaas_events": [("unpublished", ["id"], sa.column("published_at").is_(sa.null()))],
    "cpaas_reports": [("received_at", ["received_at"], None)],
}
"""By table: the suffixes of the names of the new indexes, their columns, and the condition of partial indexes."""


def upgrade() -> None:
    """Rename columns, and replace the indexes that are named after them."""
    inspector = sa.inspect(op.get_bind())
    for table, columns in _COLUMNS.items():
        if not inspector.has_table(table):
            continue
        for name in _DROPPED.get(table, ()):
            op.drop_index(f"{table}_{name}", table)
        # Renamed in place, so that no row is copied.
        with op.batch_alter_table(table, recreate="never") as batch:
            for before, name, kind, nullable in columns:
                batch.alter_column(before, new_column_name=name, existing_type=kind, existing_nullable=nullable)
        for name, names, rows in _CREATED.get(table, ()):
            op.create_index(f"{table}_{name}", table, names, sqlite_where=rows, postgresql_where=rows)
    op.execute("UPDATE cpaas_identity SET name = 'database' WHERE name = 'store'")
