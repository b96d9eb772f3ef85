"""Tables as earlier versions had them, and how rows come from one form of a table into the next."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    text,
)

from cpaas_provider.database.moment import UtcDateTime

metadata = MetaData()

_UNFINISHED = text("finished IS NULL")

sends = Table(
    "cpaas_sends",
    metadata,
    Column("campaign", String(120), primary_key=True),
    Column("operation", String(40), nullable=False),
    Column("conn_id", String(250), nullable=False),
    Column("dag_id", String(250), nullable=False),
    Column("run_id", String(250), nullable=False),
    Column("task_id", String(250), nullable=False),
    Column("map_index", Integer, nullable=False),
    Column("began", UtcDateTime, nullable=False),
    Column("expected", Integer),
    Column("ended", UtcDateTime),
    Column("finished", UtcDateTime),
    Index("cpaas_sends_began", "began"),
    Index("cpaas_sends_unfinished", "ended", sqlite_where=_UNFINISHED, postgresql_where=_UNFINISHED),
)

requests = Table(
    "cpaas_requests",
    metadata,
    Column("reference", String(100), primary_key=True),
    Column("campaign", String(120), nullable=False),
    Column("recipients", Integer, nullable=False),
    Column("message_id", String(100)),
    Column("noted", UtcDateTime, nullable=False),
    Index("cpaas_requests_campaign", "campaign"),
    Index("cpaas_requests_message_id", "message_id"),
)

deliveries = Table(
    "cpaas_deliveries",
    metadata,
    Column("campaign", String(120), primary_key=True),
    Column("recipient", String(255), primary_key=True),
    Column("reference", String(100)),
    Column("message_id", String(100)),
    Column("conn_id", String(250), nullable=False),
    Column("kind", String(10)),
    Column("state", Integer, nullable=False),
    Column("status", String(50), nullable=False),
    Column("reason", String(300)),
    Column("delivered", Boolean, nullable=False),
    Column("failed", Boolean, nullable=False),
    Column("clicked", Boolean, nullable=False),
    Column("reported", UtcDateTime, nullable=False),
    Column("touched", UtcDateTime, nullable=False),
    Column("failed_in", BigInteger),
    Column("clicked_in", BigInteger),
    Column("topped_up_in", BigInteger),
    Index("cpaas_deliveries_touched", "touched"),
    Index("cpaas_deliveries_state", "campaign", "state", "touched"),
    sqlite_with_rowid=False,
)
# A table that is replaced needs no more of its partial indexes than that their names are known.
for _column in ("failed_in", "clicked_in", "topped_up_in"):
    Index(f"cpaas_deliveries_{_column}", deliveries.c[_column])

SECOND = (sends, requests, deliveries)
"""Those that version 2 made."""


def replace(connection: Connection, table: Table, before: Table, new: Mapping[str, str]) -> None:
    """Make a table anew in its later form, with all rows of its earlier one, which goes.

    :param new: what the columns hold that are new or hold something else, in SQL over ``earlier``
    """
    aside = f"{table.name}_earlier"
    for index in before.indexes:
        connection.execute(text(f"DROP INDEX {index.name}"))
    connection.execute(text(f"ALTER TABLE {before.name} RENAME TO {aside}"))
    table.create(connection)
    values = {name: new.get(name, f"earlier.{name}") for name in [column.name for column in table.columns]}
    columns, found = ", ".join(values), ", ".join(values.values())
    # Names and expressions of our own.
    connection.execute(text(f"INSERT INTO {table.name} ({columns}) SELECT {found} FROM {aside} AS earlier"))  # noqa: S608
    connection.execute(text(f"DROP TABLE {aside}"))
