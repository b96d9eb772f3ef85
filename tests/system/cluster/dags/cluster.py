"""A campaign in four partitions with the wait for its delivery, and a contact sync, from a database."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import DAG

from cpaas_provider.operators import SmsCampaignOperator, SyncContactsOperator, partitions
from cpaas_provider.sensors import DeliverySensor
from cpaas_provider.sources import SqlSource

# On the disk of the worker that the task is on, and on no other.
RESULTS = Path(os.environ["AIRFLOW_HOME"]) / "results"
PLACE = "{{ params.round }}/{{ ti.task_id }}_{{ ti.map_index }}.jsonl"
TRIES: dict[str, Any] = {"retries": 9, "retry_delay": timedelta(seconds=1)}
SHARED: dict[str, Any] = {
    "on_unknown": "skip",
    "results_path": f"{RESULTS}/{PLACE}",
    "progress_interval": 2.0,
    **TRIES,
}
SYNC: dict[str, Any] = {
    "source": SqlSource("shop", "SELECT id, name, phone, plan, points FROM contacts ORDER BY place"),
    "key": "id",
    "columns": {"Name": "name", "Phone": "phone", "Plan": "plan", "Points": "points"},
    "cpaas_conn_id": "cpaas_contacts",
    "on_missing": "delete",
    "max_deletes": None,
    **SHARED,
}

with DAG("cluster", schedule=None, max_active_runs=1, max_active_tasks=16, params={"round": 0}):
    send = SmsCampaignOperator.partial(
        task_id="send",
        source=SqlSource("shop", "SELECT phone, name FROM people ORDER BY place"),
        recipient_column="phone",
        content="Hello {name}!",
        sender_id="Example",
        track_recipients=True,
        unknown_timeout=timedelta(seconds=int(os.environ["CLUSTER_UNKNOWN_TIMEOUT"])),
        **SHARED,
    ).expand(partition=partitions(4))
    DeliverySensor(
        task_id="delivered",
        send_result=send.output,
        results_path=f"{RESULTS}/{PLACE}",
        deferrable=True,
        timeout=timedelta(hours=2),
        **TRIES,
    )
    # In one task: of two that end the first sync of a list at the same moment, Airflow may fail one.
    SyncContactsOperator(task_id="sync", **SYNC)

# After what was unknown is resolved.
with DAG("sync_again", schedule=None, max_active_runs=1, params={"round": 0}):
    SyncContactsOperator(task_id="sync_again", **SYNC)
