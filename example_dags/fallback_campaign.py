"""One message over three channels: SMS, then WhatsApp, then email, each only to recipients not delivered to before."""

from __future__ import annotations

import os
import re
from datetime import timedelta
from pathlib import Path

from airflow.sdk import Param, dag

from cpaas_provider.task_groups import deliver_with_fallback

TEXT = "Hello {name}, our shop in your street is closed on Friday."


def run_folder(params, run_id):
    """Return the folder of a run's results files."""
    home = Path(os.environ.get("AIRFLOW_HOME") or Path.home() / "airflow")
    folder = params["folder"] or f"file://{home}/cpaas_fallback"
    return f"{folder}/{re.sub(r'[^A-Za-z0-9_.-]+', '_', run_id)}"


@dag(
    schedule=None,
    catchup=False,
    max_active_runs=1,
    params={
        "csv": Param(
            str(Path(__file__).parent / "data" / "customers.csv"),
            type="string",
            description="The recipients: a path or URL for Airflow's object storage, with phone, email and name.",
        ),
        "folder": Param(
            None,
            type=["null", "string"],
            description="Folder of the results files, shared by all workers. Default: a folder in AIRFLOW_HOME.",
        ),
    },
    user_defined_macros={"run_folder": run_folder},
    default_args={"retries": 2, "retry_delay": timedelta(seconds=30)},
    tags=["cpaas", "example"],
    doc_md="""
    ### Fallback campaign
    Sends an SMS to every customer and waits for delivery. Then it sends a WhatsApp message to those without delivery.
    After another wait it sends an email to the rest. A customer without a phone number gets the email.

    Needs `callback_url` on the connection, so that the service reports to the receiver.
    """,
)
def fallback_campaign():
    """Describe the order of the steps."""
    # [start howto_fallback]
    deliver_with_fallback(
        "closed_on_friday",
        source="{{ params.csv }}",
        steps=[
            {"channel": "sms", "content": TEXT, "sender_id": "Example"},
            {"channel": "whatsapp", "content": TEXT, "sender_id": "Example", "wait": timedelta(hours=6)},
            {
                "channel": "email",
                "subject": "Closed on Friday",
                "content": TEXT,
                "sender_id": "news@example.com",
            },
        ],
        results_folder="{{ run_folder(params, run_id) }}",
        wait=timedelta(hours=1),
        max_recipients=5_000,
        substitution_defaults={"name": "customer"},
    )
    # [end howto_fallback]


fallback_campaign()
