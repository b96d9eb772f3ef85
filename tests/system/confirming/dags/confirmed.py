"""A campaign and a contact sync that ask a person when a limit stops them. Params of the run set the limits."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, Param

from cpaas_provider.operators import SmsCampaignOperator, SyncContactsOperator

RETRIES = {"retries": 5, "retry_delay": timedelta(seconds=1)}

with DAG(
    "confirmed_campaign",
    schedule=None,
    default_args=RETRIES,
    params={"source": Param("", type="string"), "max_recipients": Param(1, type=["integer", "string"])},
) as campaign:
    SmsCampaignOperator(
        task_id="send",
        source="{{ params.source }}",
        content="Hello",
        sender_id="Shop",
        max_recipients="{{ params.max_recipients }}",
        on_limit="ask",
        on_unknown="skip",
    )

with DAG(
    "confirmed_sync",
    schedule=None,
    default_args=RETRIES,
    params={"source": Param("", type="string"), "max_deletes": Param(0.1, type=["number", "string"])},
) as sync:
    SyncContactsOperator(
        task_id="sync",
        source="{{ params.source }}",
        key="id",
        columns={"Name": "name"},
        on_missing="delete",
        max_deletes="{{ params.max_deletes }}",
        on_limit="ask",
    )
