"""Synchronise the contact list with a warehouse table every night, with safety stops and an alert."""

from __future__ import annotations

import os
import re
from datetime import timedelta
from pathlib import Path

from airflow.sdk import Param, dag, get_current_context, task

from cpaas_provider.operators import SendSmsOperator, SyncContactsOperator
from cpaas_provider.sources import SqlSource

# [start howto_contact_columns]
CUSTOMERS = "SELECT customer_id, first_name, last_name, phone, email, born, plan, points, tags FROM customers"
CONTACT_COLUMNS = {
    "Name": {"template": "{first_name} {last_name}"},
    "Phone": {"source": "phone", "region": "NG"},
    "Email": "email",
    "Birthday": "born",
    "Plan": "plan",
    "Points": "points",
    "Tags": {"source": "tags", "separator": ";", "keep_when_blank": True},
}
# [end howto_contact_columns]

ALERT = """Contact sync {{ run_id }} failed.
Changes planned: {{ (ti.xcom_pull(task_ids='sync', key='report') or {}).get('planned_requests', 'unknown') }}.
See the log of its task."""

PARAMS = {
    "cpaas_conn_id": Param("cpaas_default", type="string", description="The connection to the service."),
    "warehouse_conn_id": Param("warehouse", type="string", description="The connection to the SQL database."),
    "operator_phone": Param("+234 803 555 0100", type="string", description="The phone that gets the alert."),
    "sender_id": Param("Example", type="string", maxLength=11, description="The sender that the phone shows."),
    "max_deletes": Param(
        "0.05",
        type="string",
        pattern=r"^(0\.[0-9]+|1\.0|[0-9]+)$",
        description="Deletions that a run may make: a share of the rows that the list has from the source, or a count.",
    ),
    "on_limit": Param(
        "fail",
        enum=["fail", "ask"],
        description="What to do when a safety stop ends the sync: fail, or ask a user in Airflow's UI.",
    ),
    "dry_run": Param(False, type="boolean", description="Name what would change, and send nothing."),
    "folder": Param(
        None,
        type=["null", "string"],
        description="Folder of the results files, shared by all workers. Default: a folder in AIRFLOW_HOME.",
    ),
}


def run_folder(params, run_id):
    """Return the folder of a run's results file."""
    home = Path(os.environ.get("AIRFLOW_HOME") or Path.home() / "airflow")
    folder = params["folder"] or f"file://{home}/cpaas_contact_sync"
    return f"{folder}/{re.sub(r'[^A-Za-z0-9_.-]+', '_', run_id)}"


@dag(
    schedule="0 2 * * *",
    catchup=False,
    max_active_runs=1,
    params=PARAMS,
    user_defined_macros={"run_folder": run_folder},
    default_args={"retries": 2, "retry_delay": timedelta(minutes=1)},
    tags=["cpaas", "example"],
    doc_md="""
    ### Contact list sync
    Reads all customers from a warehouse every night, and sends only the rows and cells that changed since the last run.
    Rows of customers that are gone from the warehouse are deleted.

    * **Safety stops.** If more rows would be deleted or changed than allowed, the sync fails before its first request,
      and an operator gets an SMS. See that the warehouse is complete, or trigger a run with a higher `max_deletes`.
      With `on_limit` set to `ask`, the sync waits for a user who confirms the deletions.
    * **Long first sync.** After four hours no further request begins. The next night continues with the rest.
    * **The results file** names every row that was changed, rejected or invalid.
    """,
)
def contact_list_sync():
    """Describe the order of the steps."""
    # [start howto_sync_contacts]
    sync = SyncContactsOperator(
        task_id="sync",
        cpaas_conn_id="{{ params.cpaas_conn_id }}",
        source=SqlSource("{{ params.warehouse_conn_id }}", CUSTOMERS),
        key="customer_id",
        columns=CONTACT_COLUMNS,
        on_missing="delete",
        max_deletes="{{ params.max_deletes }}",
        on_limit="{{ params.on_limit }}",
        dry_run="{{ params.dry_run }}",
        max_changes=100_000,
        max_failure_ratio=0.02,
        max_duration=timedelta(hours=4),
        results_path="{{ run_folder(params, run_id) }}/contacts.jsonl",
    )
    alert = SendSmsOperator(
        task_id="alert",
        cpaas_conn_id="{{ params.cpaas_conn_id }}",
        recipients=["{{ params.operator_phone }}"],
        content=ALERT,
        sender_id="{{ params.sender_id }}",
        trigger_rule="one_failed",
    )
    # Without summarise, a sent alert would let the run of a failed sync succeed.
    sync >> [alert, summarise()]
    # [end howto_sync_contacts]


@task
def summarise():
    """Return what changed, for the tasks and DAGs behind this one."""
    report = get_current_context()["ti"].xcom_pull(task_ids="sync")
    return {name: report[name] for name in ("created", "updated", "deleted", "rejected", "invalid_rows", "remaining")}


contact_list_sync()
