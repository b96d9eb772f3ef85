"""A campaign spread over the workers: each mapped task sends to its part of the list, and a last one sums them up."""

from __future__ import annotations

import os
import re
from collections import Counter
from datetime import timedelta
from pathlib import Path

from airflow.sdk import Param, dag, get_current_context, task
from airflow.sdk.exceptions import AirflowFailException

from cpaas_provider.operators import SmsCampaignOperator, partitions

# Cleared or retried, a run must go on in as many parts as it began with: each part knows only whom it sent to itself.
PARTS = 4
COUNTS = ("recipients", "sent", "rejected", "unknown_recipients", "not_sent", "invalid_rows", "duplicates", "requests")

PARAMS = {
    "cpaas_conn_id": Param("cpaas_default", type="string", description="The connection to the service."),
    "recipients": Param(
        str(Path(__file__).parent / "data" / "customers.csv"),
        type="string",
        description="Who it is for: a CSV, JSON Lines or Parquet file that all workers can read, with a column phone.",
    ),
    "folder": Param(
        None,
        type=["null", "string"],
        description="Where outcomes are kept: a folder all workers share. Left out: below AIRFLOW_HOME.",
    ),
    "text": Param(
        "Our shops are open until midnight on Friday. Reply STOP to hear no more of us.",
        type="string",
        description="The SMS; placeholders are columns of the file.",
    ),
    "sender_id": Param("Example", type="string", maxLength=11, description="What the phone shows as sender."),
}


def run_folder(params, run_id):
    """Return the folder of a run's outcomes."""
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
    One campaign in several parts, each a task instance of its own, on whatever workers there are. Every part reads the
    whole file and sends to those who belong to it; somebody listed twice belongs to one part, and gets one message.
    The connection's rate, its concurrency and `max_charge` are divided among the parts, so that all of them together
    keep them.

    A part that fails is retried and cleared by itself. For lists that one task sends quickly enough, see
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
        results_path="{{ run_folder(params, run_id) }}/part_{{ ti.map_index }}.jsonl",
        max_recipients=100_000,  # in all of them
        max_charge=20_000,  # of all of them
        max_failure_ratio=0.1,
    ).expand(partition=partitions(PARTS))
    send >> sum_up()
    # [end howto_partitions]


@task(trigger_rule="all_done", retries=0)
def sum_up():
    """Add up the reports, also of parts that failed; the run succeeds only where every part did."""
    ti = get_current_context()["ti"]
    every = list(range(PARTS))
    # A campaign that failed says under another key what it did.
    sent = ti.xcom_pull(task_ids="send", map_indexes=every)
    failed = ti.xcom_pull(task_ids="send", map_indexes=every, key="report")
    reports = [one or other for one, other in zip(sent, failed, strict=True)]
    total = Counter()
    for report in filter(None, reports):
        total.update({name: report[name] for name in COUNTS})
        total["charge"] += report["charge"] or 0
    figures = {"parts": PARTS, "parts_failed": sum(1 for one in sent if not one), **total}
    ti.xcom_push("summary", figures)
    if figures["parts_failed"]:
        raise AirflowFailException(f"{figures['parts_failed']} of {PARTS} parts failed; their logs say why.")


mapped_campaign()
