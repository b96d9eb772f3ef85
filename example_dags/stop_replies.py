"""Put customers who reply STOP on the suppression list, then send an offer to all others."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from airflow.sdk import Param, dag, get_current_context, task

from cpaas_provider.operators import SmsCampaignOperator

PARAMS = {
    "cpaas_conn_id": Param("cpaas_default", type="string", description="The connection to the service."),
    "replies": Param(
        [], type="array", description="Inbound messages, as your webhook passes them: mappings with from and text."
    ),
    "recipients": Param(
        str(Path(__file__).parent / "data" / "customers.csv"),
        type="string",
        description="The recipients: a CSV, JSON Lines or Parquet file, with a column phone.",
    ),
    "region": Param("NG", type="string", description="Country of national numbers in the replies."),
    "text": Param(
        "All shoes are half price until Saturday. Reply STOP to unsubscribe.", type="string", description="The SMS."
    ),
    "sender_id": Param("Example", type="string", maxLength=11, description="The sender that the phone shows."),
}


# [start howto_suppressions]
@task
def opt_out() -> int:
    """Add the senders of STOP to the suppression list, and return the number of new entries."""
    from cpaas_provider.hooks.suppressions import add_suppressions

    params = get_current_context()["params"]
    stopped = [one["from"] for one in params["replies"] if one["text"].strip().upper() == "STOP"]
    return add_suppressions(stopped, reason="opt_out", source="inbound SMS", region=params["region"])


@dag(
    schedule=None,
    catchup=False,
    params=PARAMS,
    default_args={"retries": 2, "retry_delay": timedelta(seconds=30), "execution_timeout": timedelta(hours=1)},
    tags=["cpaas", "example"],
    doc_md="""
    ### Replies of STOP
    Puts customers who reply STOP on the suppression list of the provider. Every campaign and every single send leaves
    them out from then on, whatever DAG it is in. Then it sends an offer to the other customers. No customer gets more
    than three marketing messages in seven days, from all DAGs together.

    Trigger it from the webhook that receives your inbound messages, with the messages in the param `replies`.
    """,
)
def stop_replies():
    """Describe the order of the steps."""
    offer = SmsCampaignOperator(
        task_id="offer",
        cpaas_conn_id="{{ params.cpaas_conn_id }}",
        source="{{ params.recipients }}",
        content="{{ params.text }}",
        sender_id="{{ params.sender_id }}",
        frequency_cap=(3, timedelta(days=7)),
        frequency_category="marketing",
        max_recipients=5_000,
        max_failure_ratio=0.1,
    )
    opt_out() >> offer


stop_replies()
# [end howto_suppressions]
