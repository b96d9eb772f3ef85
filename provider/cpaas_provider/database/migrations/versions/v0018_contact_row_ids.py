"""An index of the row ids of contact maps, which shows that another key has the row of a response."""

from __future__ import annotations

from alembic import op

revision = "0018"
down_revision = "0017"


def upgrade() -> None:
    """Add the index."""
    op.create_index("cpaas_contact_rows_row_id", "cpaas_contact_rows", ["map_id", "row_id"])
