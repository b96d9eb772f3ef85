"""A campaign and a sync whose workers are not told where the provider's database is: each finds an empty file."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.sdk import DAG

from cpaas_provider.operators import SmsCampaignOperator, SyncContactsOperator

BARE: dict[str, Any] = {"queue": "without-database", "retries": 1, "retry_delay": timedelta(seconds=1)}

with DAG("bare", schedule=None):
    SmsCampaignOperator(
        task_id="send",
        source=[{"phone": "+2348030000001"}],
        recipient_column="phone",
        content="Hello",
        sender_id="Example",
        **BARE,
    )
    SyncContactsOperator(
        task_id="sync",
        source=[{"id": "1", "name": "Ada"}],
        key="id",
        columns={"Name": "name"},
        cpaas_conn_id="cpaas_contacts",
        **BARE,
    )
