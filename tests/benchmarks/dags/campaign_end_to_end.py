"""A personalised campaign with a results file, as its author would write it."""

from __future__ import annotations

from typing import Any

from airflow.sdk import DAG

from cpaas_provider.operators import SmsCampaignOperator

PARAMS: dict[str, Any] = {"connection": "", "people": "", "results": ""}

with DAG("campaign_end_to_end", schedule=None, params=PARAMS):
    SmsCampaignOperator(
        task_id="send",
        source="{{ params.people }}",
        content="Hello {name}, you have {points} points on your {plan} plan.",
        sender_id="Shop",
        results_path="{{ params.results }}",
        cpaas_conn_id="{{ params.connection }}",
    )
