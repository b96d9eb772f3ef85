"""Compress bodies of new reports with LZ4 on PostgreSQL, if it supports that. Stored bodies stay as they are."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Set the compression of one column, which rewrites no row."""
    bind = op.get_bind()
    if bind.dialect.name != "postgresql":
        return
    # PostgreSQL 13 has no such setting.
    known = sa.text("SELECT 'lz4' = ANY(enumvals) FROM pg_settings WHERE name = 'default_toast_compression'")
    if bind.execute(known).scalar():
        op.execute("ALTER TABLE cpaas_reports ALTER COLUMN body SET COMPRESSION lz4")
