"""Two campaigns to be killed in: one waits for proof of what it sent, the other gives up at once."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, Param

from cpaas_provider.operators import SmsCampaignOperator

# The page of the first is read between its tries.
for dag_id, unknown_timeout, retry_delay in (("proven_incident", 300.0, 20), ("unproven_incident", 1.0, 1)):
    with DAG(
        dag_id,
        schedule=None,
        # A busy machine may take a try of its own.
        default_args={"retries": 3, "retry_delay": timedelta(seconds=retry_delay)},
        params={"source": Param("", type="string")},
    ):
        SmsCampaignOperator(
            task_id="send",
            # Each has a service of its own.
            cpaas_conn_id=dag_id,
            source="{{ params.source }}",
            content="Hello",
            sender_id="Shop",
            unknown_timeout=unknown_timeout,
        )
