"""Campaigns to the same recipients under one cap of one message: two DAGs for each category."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, Param

from cpaas_provider.operators import SmsCampaignOperator

CATEGORIES = ("undisturbed", "killed")


def capped(name: str, category: str) -> DAG:
    """Return the DAG of one campaign."""
    params = {"source": Param("", type="string"), "out": Param("", type="string")}
    with DAG(name, schedule=None, catchup=False, params=params) as dag:
        SmsCampaignOperator(
            task_id="send",
            source="{{ params.source }}",
            content="Hello",
            sender_id="Shop",
            frequency_cap=(1, timedelta(days=7)),
            frequency_category=category,
            on_unknown="skip",
            results_path="{{ params.out }}/" + name + ".jsonl",
            retries=9,
            retry_delay=timedelta(seconds=1),
        )
    return dag


dags = [capped(f"{name}_{category}", category) for category in CATEGORIES for name in ("morning", "evening")]
for one in dags:
    globals()[one.dag_id] = one
