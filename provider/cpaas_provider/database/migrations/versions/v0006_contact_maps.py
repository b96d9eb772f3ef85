"""Contact maps: which row of a contact list belongs to which key of a source."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.types import VARBINARY

revision = "0006"
down_revision = "0005"

_MYSQL = ("mysql", "mariadb")


def upgrade() -> None:
    """Create their tables."""
    hash_type = sa.LargeBinary(16).with_variant(VARBINARY(16), *_MYSQL)
    op.create_table(
        "cpaas_contact_maps",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("conn_id", sa.String(250), nullable=False),
        sa.Column("name", sa.String(100), nullable=False),
        sa.Column("base_url", sa.Text, nullable=False),
        sa.Column("table_id", sa.String(200), nullable=False),
        sa.Column("secret", sa.String(64), nullable=False),
        sa.Column("fencing_token", sa.BigInteger, nullable=False),
        sa.Column("created", sa.DateTime, nullable=False),
        if_not_exists=True,
    )
    op.create_index(
        "cpaas_contact_maps_name", "cpaas_contact_maps", ["conn_id", "name"], unique=True, if_not_exists=True
    )
    op.create_table(
        "cpaas_contact_leases",
        sa.Column("map_id", sa.Integer, sa.ForeignKey("cpaas_contact_maps.id"), primary_key=True),
        sa.Column("fencing_token", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("owner", sa.String(1000), nullable=False),
        sa.Column("first_bucket", sa.Integer, nullable=False),
        sa.Column("end_bucket", sa.Integer, nullable=False),
        sa.Column("until", sa.DateTime, nullable=False),
        if_not_exists=True,
    )
    op.create_table(
        "cpaas_contact_map_values",
        sa.Column("map_id", sa.Integer, sa.ForeignKey("cpaas_contact_maps.id"), primary_key=True),
        sa.Column("key", sa.String(200), primary_key=True),
        sa.Column("value", sa.Text, nullable=False),
        if_not_exists=True,
    )
    op.create_table(
        "cpaas_contact_rows",
        sa.Column("map_id", sa.Integer, sa.ForeignKey("cpaas_contact_maps.id"), primary_key=True),
        sa.Column("key_hash", hash_type, primary_key=True),
        sa.Column("state", sa.Integer, nullable=False),
        sa.Column("row_id", sa.String(200)),
        sa.Column("raw_hash", hash_type),
        sa.Column("rejected_hash", hash_type),
        sa.Column("missing_hash", hash_type),
        sa.Column("cell_hashes", sa.LargeBinary().with_variant(sa.LargeBinary(2**24 - 1), *_MYSQL)),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("fencing_token", sa.BigInteger),
        sa.Column("source_row", sa.Integer),
        sa.Column("requested", sa.DateTime),
        if_not_exists=True,
        sqlite_with_rowid=False,
    )
    pending = sa.text("state <> 0")
    op.create_index(
        "cpaas_contact_rows_open",
        "cpaas_contact_rows",
        ["map_id", "state"],
        sqlite_where=pending,
        postgresql_where=pending,
        if_not_exists=True,
    )
