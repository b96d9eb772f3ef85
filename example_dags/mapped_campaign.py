"""A campaign in partitions: each mapped task sends to its partition of the list, and a last task sums up."""

from __future__ import annotations

import os
import re
from collections import Counter
from datetime import timedelta
from pathlib import Path

from airflow.sdk import Param, dag, get_current_context, task
from airflow.sdk.exceptions import AirflowFailException

from cpaas_provider.operators import SmsCampaignOperator, partitions

# Do not change this number while a run is unfinished: each partition knows only the recipients it sent to itself.
PARTITIONS = 4
COUNTS = ("recipients", "sent", "rejected", "unknown_recipients", "not_sent", "invalid_rows", "duplicates", "requests")

PARAMS = {
    "cpaas_conn_id": Param("cpaas_default", type="string", description="The connection to the service."),
    "recipients": Param(
        str(Path(__file__).parent / "data" / "customers.csv"),
        type="string",
        description="The recipients: a CSV, JSON Lines or Parquet file for all workers, with a column phone.",
    ),
    "folder": Param(
        None,
        type=["null", "string"],
        description="Folder of the results files, shared by all workers. Default: a folder in AIRFLOW_HOME.",
    ),
    "text": Param(
        "Our shops are open until midnight on Friday. Reply STOP to unsubscribe.",
        type="string",
        description="The SMS; placeholders are columns of the file.",
    ),
    "sender_id": Param("Example", type="string", maxLength=11, description="The sender that the phone shows."),
}


def run_folder(params, run_id):
    """Return the folder of a run's results files."""
    home = Path(os.environ.get("AIRFLOW_HOME") or Path.home() / "airflow")
    folder = params["folder"] or f"file://{home}/cpaas_campaign"
    return f"{folder}/{re.sub(r'[^A-Za-z0-9_.-]+', '_', run_id)}"


@dag(
    schedule=None,
    catchup=False,
    params=PARAMS,
    user_defined_macros={"run_folder": run_folder},
    default_args={"retries": 2, "retry_delay": timedelta(seconds=30), "execution_timeout": timedelta(hours=2)},
    tags=["cpaas", "example"],
    doc_md="""
    ### Mapped campaign
    One campaign in several partitions. Each partition is a task instance of its own, on any worker. It reads the whole
    file and sends to its own recipients. A recipient that is listed twice belongs to one partition and gets one
    message. The connection's rate limit and concurrency, and `max_charge`, are divided among the partitions.

    You can retry or clear a failed partition alone. For lists that one task sends quickly enough, see
    `customer_campaign`.
    """,
)
def mapped_campaign():
    """Describe the order of the steps."""
    # [start howto_partitions]
    send = SmsCampaignOperator.partial(
        task_id="send",
        cpaas_conn_id="{{ params.cpaas_conn_id }}",
        source="{{ params.recipients }}",
        content="{{ params.text }}",
        sender_id="{{ params.sender_id }}",
        results_path="{{ run_folder(params, run_id) }}/partition_{{ ti.map_index }}.jsonl",
        max_recipients=100_000,  # in all partitions together
        max_charge=20_000,  # of all partitions together
        max_failure_ratio=0.1,
    ).expand(partition=partitions(PARTITIONS))
    send >> sum_up()
    # [end howto_partitions]


@task(trigger_rule="all_done", retries=0)
def sum_up():
    """Add up the reports, also those of failed partitions. The run succeeds only if every partition did."""
    ti = get_current_context()["ti"]
    every = list(range(PARTITIONS))
    # A failed campaign has its report under the key "report".
    sent = ti.xcom_pull(task_ids="send", map_indexes=every)
    failed = ti.xcom_pull(task_ids="send", map_indexes=every, key="report")
    reports = [one or other for one, other in zip(sent, failed, strict=True)]
    total = Counter()
    for report in filter(None, reports):
        total.update({name: report[name] for name in COUNTS})
        total["charge"] += report["charge"] or 0
    figures = {"partitions": PARTITIONS, "partitions_failed": sum(1 for one in sent if not one), **total}
    ti.xcom_push("summary", figures)
    if figures["partitions_failed"]:
        raise AirflowFailException(
            f"{figures['partitions_failed']} of {PARTITIONS} partitions failed. Their logs have the reasons."
        )


mapped_campaign()
