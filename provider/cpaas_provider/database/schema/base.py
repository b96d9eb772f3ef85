"""What all tables share, and the tables that every process reads first."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    Column,
    ColumnElement,
    DateTime,
    Dialect,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    TextClause,
    TypeDecorator,
    func,
)
from sqlalchemy.types import VARBINARY

MYSQL = ("mysql", "mariadb")

REPORT_DIALECTS = ("sqlite", "postgresql")
"""The databases that can store delivery reports."""

metadata = MetaData()


class UtcDateTime(TypeDecorator[datetime]):
    """A moment, stored in UTC in any database."""

    impl = DateTime
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Remove the time zone, because not every database stores it."""
        return None if value is None else value.astimezone(UTC).replace(tzinfo=None)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Add the time zone."""
        return None if value is None else value.replace(tzinfo=UTC)


def hash_type(length: int) -> LargeBinary:
    """Return the type of a hash of so many bytes."""
    # MySQL allows no BLOB in a key.
    return LargeBinary(length).with_variant(VARBINARY(length), *MYSQL)


def task_columns() -> list[Column[Any]]:
    """Return the columns that name a task instance."""
    ids = [Column(name, String(250), nullable=False) for name in ("dag_id", "run_id", "task_id")]
    return [*ids, Column("map_index", Integer, nullable=False)]


def has_conn_id(column: ColumnElement[str], conn_id: str) -> ColumnElement[bool]:
    """Return whether a column has the id of a connection, in upper or lower case.

    Airflow reads one connection from the environment, in whatever case a DAG writes its id.
    """
    return func.lower(column) == func.lower(conn_id)


def index_where(rows: ColumnElement[bool] | TextClause) -> dict[str, Any]:
    """Return the options of a partial index, which has only some rows. MySQL indexes all."""
    return {"sqlite_where": rows, "postgresql_where": rows}


CAMPAIGN_LENGTH = 120
"""The longest name of a campaign: our reference, or a prefix and the id of a message that is not recorded yet."""

# The version of all tables, as Alembic records it.
alembic_version = Table("cpaas_alembic_version", metadata, Column("version_num", String(32), primary_key=True))

identities = Table(
    "cpaas_identity",
    metadata,
    Column("name", String(20), primary_key=True),
    Column("value", String(64), nullable=False),
)
