"""A sync of one CSV file, whole and in four partitions; the run says how."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import DAG

from cpaas_provider.operators import SyncContactsOperator, partitions

FOLDER = Path(os.environ["KILLED_CONTACTS"])
PARTS = 4
COLUMNS = {"Name": "name", "Phone": "phone", "Plan": "plan", "Points": "points"}
SHARED: dict[str, Any] = {
    "key": "id",
    "columns": COLUMNS,
    "on_missing": "delete",
    "max_deletes": None,
    "max_new": None,
    "on_unknown": "skip",
    "results_path": str(FOLDER / "results" / "{{ dag.dag_id }}_{{ ti.map_index }}_{{ ti.try_number }}.jsonl"),
    "spool_path": str(FOLDER / "spool"),
    "max_failure_ratio": 1.0,
    "progress_interval": 2.0,
    "retries": 30,
    "retry_delay": timedelta(seconds=1),
}

for whole in (True, False):
    name = "whole" if whole else "parted"
    given = {**SHARED, "task_id": "sync", "source": str(FOLDER / f"{name}.csv"), "map_name": name, "new_map": True}
    with DAG(name, schedule=None, max_active_runs=1):
        if whole:
            SyncContactsOperator(**given)
        else:
            SyncContactsOperator.partial(**given).expand(partition=partitions(PARTS))
