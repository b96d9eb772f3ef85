"""What holds for all requests of a connection, from whatever DAG."""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, String, Table

from cpaas_provider.database.schema.base import UtcDateTime, metadata

# The connections whose requests are stopped. The names of connections are in lower case.
stops = Table(
    "cpaas_stops",
    metadata,
    Column("conn_id", String(250), primary_key=True),
    Column("stopped_at", UtcDateTime, nullable=False),
    Column("stopped_by", String(100), nullable=False),
    Column("reason", String(200), nullable=False),
)

# What was spent and is reserved in a day or a month, for connections with a budget, in millionths.
budgets = Table(
    "cpaas_budgets",
    metadata,
    Column("conn_id", String(250), primary_key=True),
    Column("period", String(10), primary_key=True),
    Column("spent", BigInteger, nullable=False),
)

# The highest price of a recipient that was seen, in millionths, for connections with a budget.
prices = Table(
    "cpaas_prices",
    metadata,
    Column("conn_id", String(250), primary_key=True),
    Column("operation", String(40), primary_key=True),
    Column("price", BigInteger),
    # Whether the service named no charge of an accepted request.
    Column("is_missing", Boolean, nullable=False),
    # A request that goes alone until then, to learn the price.
    Column("probed_until", UtcDateTime),
    Column("probe", String(16)),
)
