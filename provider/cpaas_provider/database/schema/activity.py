"""What tasks did, for the pages in Airflow's UI."""

from __future__ import annotations

from sqlalchemy import Column, Float, Index, Integer, String, Table, Text

from cpaas_provider.database.schema.base import CAMPAIGN_LENGTH, UtcDateTime, metadata, task_columns

# The progress of a campaign or contact sync as its task last recorded it, for the pages.
task_progress = Table(
    "cpaas_task_progress",
    metadata,
    Column("reference", String(CAMPAIGN_LENGTH), primary_key=True),
    Column("kind", String(20), nullable=False),
    Column("operation", String(40), nullable=False),
    Column("conn_id", String(250), nullable=False),
    *task_columns(),
    # The newest try. An earlier one that was replaced, but still runs, records nothing any more.
    Column("try_number", Integer, nullable=False),
    Column("state", String(20), nullable=False),
    Column("started_at", UtcDateTime, nullable=False),
    Column("updated_at", UtcDateTime, nullable=False),
    Column("ended_at", UtcDateTime),
    # JSON: counts and money, and the operator's arguments.
    Column("figures", Text, nullable=False),
    Column("settings", Text, nullable=False),
    Index("cpaas_task_progress_started_at", "kind", "started_at", "reference"),
    Index("cpaas_task_progress_conn_id", "kind", "conn_id", "started_at", "reference"),
    Index("cpaas_task_progress_dag_id", "kind", "dag_id", "conn_id"),
)

# Passcodes that tasks requested, without code and number.
passcodes = Table(
    "cpaas_passcodes",
    metadata,
    Column("conn_id", String(250), primary_key=True),
    Column("otp_id", String(200), primary_key=True),
    Column("dag_id", String(250), nullable=False),
    Column("outcome", String(20), nullable=False),
    Column("requested_at", UtcDateTime, nullable=False),
    Column("expires_at", UtcDateTime),
    # Counting reads only this index.
    Index("cpaas_passcodes_requested_at", "requested_at", "dag_id", "conn_id", "outcome", "expires_at"),
)

# Purchases of airtime, without the number.
airtime_purchases = Table(
    "cpaas_airtime_purchases",
    metadata,
    Column("conn_id", String(250), primary_key=True),
    Column("reference", String(100), primary_key=True),
    *task_columns(),
    # Empty if it is not known: a delivery report or a person established a purchase of other arguments.
    Column("network", String(40), nullable=False),
    Column("amount", Float),
    Column("charge", Float),
    Column("status", String(50), nullable=False),
    Column("bought_at", UtcDateTime, nullable=False),
    Index("cpaas_airtime_purchases_bought_at", "bought_at", "reference"),
)
