"""A nightly campaign: an SMS to the rows of a query, once a day, and an email to recipients without a delivered SMS."""

from __future__ import annotations

import os
import re
from datetime import timedelta
from pathlib import Path

import pendulum
from airflow.sdk import Param, dag

from cpaas_provider.operators import EmailCampaignOperator, SmsCampaignOperator
from cpaas_provider.sensors import DeliverySensor
from cpaas_provider.sources import SqlSource
from cpaas_provider.task_groups import UndeliveredSource

# The query runs where the list is: only rows that shall get the offer leave the database.
CUSTOMERS = SqlSource("warehouse", "SELECT phone, email, first_name FROM customers WHERE plan = 'gold' ORDER BY phone")
TEXT = "Hello {name}, all shoes are half price until Saturday. Reply STOP to unsubscribe."


def run_folder(params, run_id):
    """Return the folder of a run's results files."""
    home = Path(os.environ.get("AIRFLOW_HOME") or Path.home() / "airflow")
    folder = params["folder"] or f"file://{home}/cpaas_offer"
    return f"{folder}/{re.sub(r'[^A-Za-z0-9_.-]+', '_', run_id)}"


@dag(
    schedule="0 22 * * *",
    start_date=pendulum.datetime(2026, 1, 1, tz="Africa/Lagos"),
    catchup=False,
    max_active_runs=1,
    params={
        "folder": Param(
            None,
            type=["null", "string"],
            description="Folder of the results files, shared by all workers. Default: a folder in AIRFLOW_HOME.",
        ),
    },
    user_defined_macros={"run_folder": run_folder},
    default_args={"retries": 3, "retry_delay": timedelta(minutes=2)},
    tags=["cpaas", "example"],
    doc_md="""
    ### Nightly offer
    At 22:00 `send` reads the customers from the connection `warehouse`. It waits for the send window, and sends each
    recipient the offer of the day once, however often the day runs. `delivered` waits until 90 % of the SMS are
    delivered. `email` then sends to the recipients without a delivered SMS.

    Needs `callback_url` on the connection, so that the service reports to the receiver.
    """,
)
def nightly_offer():
    """Describe the order of the steps."""
    # [start howto_nightly_campaign]
    send = SmsCampaignOperator(
        task_id="send",
        source=CUSTOMERS,
        content=TEXT,
        sender_id="Example",
        substitutions={"name": "first_name"},
        substitution_defaults={"name": "customer"},
        send_window=("09:00", "20:00"),  # at night the task waits on the triggerer, without a worker slot
        timezone="Africa/Lagos",
        # A second run for the same day sends to no recipient again. A triggered run may have no logical date.
        idempotency_key="offer-{{ (dag_run.logical_date or dag_run.run_after) | ds }}",
        max_lateness=timedelta(hours=2),  # unpaused the next day, yesterday's run does not send
        max_charge=20_000,
        max_failure_ratio=0.02,
    )
    delivered = DeliverySensor(
        task_id="delivered",
        send_result=send.output,
        min_delivered=0.9,
        results_path="{{ run_folder(params, run_id) }}/delivered.jsonl",
        timeout=timedelta(hours=6),
        deferrable=True,
    )
    email = EmailCampaignOperator(
        task_id="email",
        source=UndeliveredSource(
            CUSTOMERS, "{{ run_folder(params, run_id) }}/delivered.jsonl", column="phone", region="NG"
        ),
        subject="Shoes at half price until Saturday",
        content=TEXT.replace(" Reply STOP to unsubscribe.", ""),
        substitutions={"name": "first_name"},
        substitution_defaults={"name": "customer"},
        sender_id="offers@example.com",
        # The channel belongs to the key: SMS and email do not share it.
        idempotency_key="offer-{{ (dag_run.logical_date or dag_run.run_after) | ds }}",
        max_failure_ratio=0.5,  # customers without an address
    )
    send >> delivered >> email
    # [end howto_nightly_campaign]


nightly_offer()
