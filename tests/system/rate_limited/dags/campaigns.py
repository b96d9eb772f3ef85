"""Two campaigns of two partitions each."""

from __future__ import annotations

from airflow.sdk import DAG

from cpaas_provider.operators import SmsCampaignOperator, partitions

for name in ("morning", "evening"):
    with DAG(name, schedule=None, params={"source": ""}):
        SmsCampaignOperator.partial(
            task_id="send", source="{{ params.source }}", content="Hello", sender_id="Shop"
        ).expand(partition=partitions(2))
