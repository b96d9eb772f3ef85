"""The tables of the first release. ``schema`` creates them, and every migration starts from them."""

from __future__ import annotations

revision = "v0001"
down_revision = None


def upgrade() -> None:
    """Do nothing: Alembic sees only databases that have these tables."""
