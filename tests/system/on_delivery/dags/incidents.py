"""Two campaigns to be killed in: one waits for proof of what it sent, the other gives up at once."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, Param

from cpaas_provider.operators import SmsCampaignOperator

for dag_id, unknown_timeout in (("proven_incident", 300.0), ("unproven_incident", 1.0)):
    with DAG(
        dag_id,
        schedule=None,
        # So long that the pages can be read in between. A busy machine may take a try of its own.
        default_args={"retries": 3, "retry_delay": timedelta(seconds=10)},
        params={"source": Param("", type="string")},
    ):
        SmsCampaignOperator(
            task_id="send",
            source="{{ params.source }}",
            content="Hello",
            sender_id="Shop",
            unknown_timeout=unknown_timeout,
        )
