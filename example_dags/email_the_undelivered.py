"""A DAG that starts when an SMS campaign has finished, and emails the recipients whose SMS was not delivered."""

from __future__ import annotations

import os
import re
from datetime import timedelta
from pathlib import Path

from airflow.sdk import Param, dag, task

from cpaas_provider.assets import on_campaign_finished
from cpaas_provider.operators import EmailCampaignOperator
from cpaas_provider.sources import DeliveryEventSource

# The campaign of the delivery event. A run that you start yourself takes it from its params.
CAMPAIGN = "{{ dag_run.partition_key or params.campaign }}"

PARAMS = {
    "campaign": Param("", type="string", description="For a manual run: the reference of a campaign."),
    "contacts": Param(
        str(Path(__file__).parent / "data" / "customers.csv"),
        type="string",
        description="The customers, with columns phone and email. Delivery reports contain numbers only.",
    ),
    "region": Param("NG", type="string", description="Country of the national numbers in the customer list."),
    "folder": Param(
        None,
        type=["null", "string"],
        description="Folder of the results files, shared by all workers. Default: a folder in AIRFLOW_HOME.",
    ),
    "sender_id": Param("hello@example.com", type="string", description="The sender's address."),
}


def run_folder(params, run_id):
    """Return the folder of a run's results files."""
    home = Path(os.environ.get("AIRFLOW_HOME") or Path.home() / "airflow")
    folder = params["folder"] or f"file://{home}/cpaas_undelivered"
    return f"{folder}/{re.sub(r'[^A-Za-z0-9_.-]+', '_', run_id)}"


# [start howto_start_on_delivery]
@dag(
    schedule=on_campaign_finished("cpaas_default"),
    catchup=False,
    params=PARAMS,
    user_defined_macros={"run_folder": run_folder},
    default_args={"retries": 2, "retry_delay": timedelta(seconds=30), "execution_timeout": timedelta(hours=1)},
    tags=["cpaas", "example"],
    doc_md="""
    ### Email the undelivered
    Starts once for every finished campaign, also if many finish at the same time. It sends an email to each recipient
    whose SMS was not delivered. The delivery reports contain the numbers, and a customer list has the addresses.

    Needs `callback_url` on the connection, so that the service reports to the receiver.
    """,
)
def email_the_undelivered():
    """Describe the order of the steps."""
    email = EmailCampaignOperator(
        task_id="email",
        source=DeliveryEventSource(CAMPAIGN, contacts="{{ params.contacts }}", region="{{ params.region }}"),
        subject="We could not reach your phone",
        content="Our shops are open until midnight on Friday. Is your number still the same?",
        sender_id="{{ params.sender_id }}",
        results_path="{{ run_folder(params, run_id) }}/emails.jsonl",
        max_recipients=10_000,
        max_failure_ratio=0.1,
    )
    has_undelivered_sms() >> email


@task.short_circuit
def has_undelivered_sms(triggering_asset_events=None):
    """Continue only after an SMS campaign. Otherwise this DAG's own email campaign would start it again."""
    finished = [event.extra for events in triggering_asset_events.values() for event in events]
    return not finished or any(one["operation"] == "send_sms" and one["undelivered"] for one in finished)


email_the_undelivered()
# [end howto_start_on_delivery]
