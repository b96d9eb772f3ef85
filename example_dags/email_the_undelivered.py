"""Those an SMS campaign did not reach get an email: a DAG that starts when a campaign is finished."""

from __future__ import annotations

import os
import re
from datetime import timedelta
from pathlib import Path

from airflow.sdk import Param, dag, task

from cpaas_provider.assets import on_campaign_finished
from cpaas_provider.operators import EmailCampaignOperator
from cpaas_provider.sources import DeliveryEventSource

# What the run is about; one started by hand says it itself.
CAMPAIGN = "{{ dag_run.partition_key or params.campaign }}"

PARAMS = {
    "campaign": Param("", type="string", description="For a run by hand: the reference of a campaign."),
    "contacts": Param(
        str(Path(__file__).parent / "data" / "customers.csv"),
        type="string",
        description="The customers, with columns phone and email: a number does not tell an address.",
    ),
    "region": Param("NG", type="string", description="Whose national numbers are meant in the list of customers."),
    "folder": Param(
        None,
        type=["null", "string"],
        description="Where outcomes are kept: a folder all workers share. Left out: below AIRFLOW_HOME.",
    ),
    "sender_id": Param("hello@example.com", type="string", description="The sender's address."),
}


def run_folder(params, run_id):
    """Return the folder of a run's outcomes."""
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
    Starts once for every campaign that finished, a burst of them included, and writes an email to those whose SMS was
    not delivered. The delivery reports know their numbers; the addresses are in a list of customers.

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
    was_sms_that_failed() >> email


@task.short_circuit
def was_sms_that_failed(triggering_asset_events=None):
    """Go on only after SMS, or the emails of this DAG would start it once more when they are finished."""
    told = [event.extra for events in triggering_asset_events.values() for event in events]
    return not told or any(one["operation"] == "send_sms" and one["undelivered"] for one in told)


email_the_undelivered()
# [end howto_start_on_delivery]
