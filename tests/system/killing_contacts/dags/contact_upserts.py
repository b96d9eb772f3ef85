"""Keyed upserts of rows that a sync of the same map also sends."""

from __future__ import annotations

import json
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, task

from cpaas_provider.operators import UpsertContactRowOperator

FOLDER = Path(os.environ["KILLED_CONTACTS"])


@task(retries=10, retry_delay=timedelta(seconds=1))
def read_rows(name: str) -> list[dict[str, Any]]:
    return list(json.loads((FOLDER / f"{name}_upserts.json").read_text()))


for name in ("whole", "parted"):
    with DAG(f"{name}_upserts", schedule=None, max_active_runs=1):
        UpsertContactRowOperator.partial(
            task_id="upsert",
            map_name=name,
            on_unknown="skip",
            retries=30,
            retry_delay=timedelta(seconds=1),
            max_active_tis_per_dagrun=2,
        ).expand_kwargs(read_rows(name))
