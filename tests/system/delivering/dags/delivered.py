"""A campaign to everybody in a file, and the wait until it is delivered."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

from airflow.sdk import DAG

from cpaas_provider.operators import SmsCampaignOperator
from cpaas_provider.sensors import DeliverySensor

FOLDER = Path(os.environ["DELIVERING"])
# What a task asks of an API server that is away may cost it a try.
TRIES = {"retries": 9, "retry_delay": timedelta(seconds=1)}

with DAG("delivered", schedule=None):
    send = SmsCampaignOperator(
        task_id="send",
        source=str(FOLDER / "people.csv"),
        content="Hello {name}! https://example.com/offer",
        is_trackable=True,
        **TRIES,
    )
    DeliverySensor(
        task_id="delivered",
        send_result=send.output,
        results_path=str(FOLDER / "delivered.jsonl"),
        deferrable=True,
        timeout=timedelta(hours=2),
        **TRIES,
    )
