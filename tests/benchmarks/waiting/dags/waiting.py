"""Waits for everything the plan names, each note when they go on."""

from __future__ import annotations

import json
import os
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import DAG

from cpaas_provider.sensors import DeliverySensor, OtpStatusSensor

FOLDER = Path(os.environ["WAITING"])
PLAN = json.loads((FOLDER / "plan.json").read_text())
COMMON: dict[str, Any] = {"deferrable": True, "retries": 0, "timeout": timedelta(hours=1)}


def note(context: Any) -> None:
    """Write down when a worker went on with a task."""
    instance = context["ti"]
    (FOLDER / f"{instance.task_id}-{instance.map_index}").write_text(str(time.time()))


class Delivery(DeliverySensor):
    """The sensor, but for the note."""

    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Any) -> Any:
        note(context)
        return super().resume_execution(next_method, next_kwargs, context)


class Passcode(OtpStatusSensor):
    """The sensor, but for the note."""

    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Any) -> Any:
        note(context)
        return super().resume_execution(next_method, next_kwargs, context)


with DAG("waiting", schedule=None, max_active_tasks=64):
    Delivery.partial(task_id="delivery", **COMMON).expand(send_result=PLAN["delivery"])
    Passcode.partial(task_id="passcode", cpaas_conn_id=PLAN["conn_id"], **COMMON).expand(otp_id=PLAN["passcode"])
