"""A campaign whose journal is in the database; the run's configuration has its recipients."""

from __future__ import annotations

import os
from typing import Any

from airflow.sdk import DAG, get_current_context, task

from cpaas_provider.operators.sms import SmsCampaignOperator

# Of the processes that read this file: the task's own, among others.
os.environ["AIRFLOW__CPAAS__JOURNAL"] = "database"


@task
def rows() -> list[dict[str, Any]]:
    return list(get_current_context()["dag_run"].conf["rows"])


with DAG("cleared_database", schedule=None):
    SmsCampaignOperator(task_id="campaign", source=rows(), content="Hello", unknown_timeout=0, max_pending_requests=1)
