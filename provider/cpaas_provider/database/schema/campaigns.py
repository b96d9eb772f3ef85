"""Journals in this database, their leases and values: of campaigns with an idempotency key, and of tasks."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, ForeignKey, Index, Integer, String, Table, Text

from cpaas_provider.database.schema.base import MYSQL, UtcDateTime, metadata

campaigns = Table(
    "cpaas_campaigns",
    metadata,
    Column("campaign", String(200), primary_key=True),
    Column("owner", Text),
    Column("lease_expires_at", UtcDateTime),
    Column("fencing_token", BigInteger, nullable=False),
)

campaign_values = Table(
    "cpaas_campaign_values",
    metadata,
    Column("campaign", String(200), ForeignKey(campaigns.c.campaign), primary_key=True),
    Column("key", String(200), primary_key=True),
    # MySQL's default TEXT is limited to 64 KB.
    Column("value", Text().with_variant(Text(2**24 - 1), *MYSQL), nullable=False),
)

# Campaigns with an idempotency key. Each of their partitions is a row of cpaas_campaigns.
keyed_campaigns = Table(
    "cpaas_keyed_campaigns",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("conn_id", String(250), nullable=False),
    Column("base_url", Text, nullable=False),
    # The key of the hashes in the campaign's journal. It is independent of the API key, which may be replaced.
    Column("secret", String(64), nullable=False),
    Column("partitions", Integer, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
)

# Journals of task instances, where [cpaas] journal is database. Each is a row of cpaas_campaigns, too.
task_journals = Table(
    "cpaas_task_journals",
    metadata,
    Column("journal", String(64), primary_key=True),
    # Names the task instance in an index of one column: the ids together are too long for MySQL.
    Column("task_instance", String(64), nullable=False),
    # Counts the journals of the task instance, as this database stored them: clocks may differ.
    Column("number", Integer, nullable=False),
    Column("dag_id", String(250), nullable=False),
    Column("run_id", String(250), nullable=False),
    Column("task_id", String(250), nullable=False),
    Column("map_index", Integer, nullable=False),
    # Airflow's id of the newest try that opened the journal.
    Column("try_id", String(36), nullable=False),
    Column("try_number", Integer, nullable=False),
    Column("opened_at", UtcDateTime, nullable=False, index=True),
    Index("ix_cpaas_task_journals_number", "task_instance", "number", unique=True),
)
