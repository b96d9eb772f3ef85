"""A campaign under a rate limit, in one task and in four at once."""

from __future__ import annotations

from airflow.sdk import DAG

from cpaas_provider.operators import SmsCampaignOperator
from cpaas_provider.sending.partitions import partitions

PARAMS = {"people": ""}

with DAG("campaign_limit_whole", schedule=None, params=PARAMS):
    SmsCampaignOperator(task_id="send", source="{{ params.people }}", content="Hello", sender_id="Shop")

with DAG("campaign_limit_parted", schedule=None, params=PARAMS):
    SmsCampaignOperator.partial(task_id="send", source="{{ params.people }}", content="Hello", sender_id="Shop").expand(
        partition=partitions(4)
    )
