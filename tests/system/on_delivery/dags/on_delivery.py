"""Two DAGs that start on delivery: one does nothing, the other says what it was told."""

from __future__ import annotations

from datetime import timedelta

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, get_current_context, task

from cpaas_provider.assets import on_campaign_finished, on_messages_failed

with DAG("after_campaign", schedule=on_campaign_finished()):
    EmptyOperator(task_id="task")

with DAG("after_failure", schedule=on_messages_failed()):
    # The first run may be under way when the scheduler is killed, which kills its task, too.
    @task(retries=3, retry_delay=timedelta(seconds=1))
    def say():
        """Return what a task sees of why its run was started."""
        context = get_current_context()
        told = [event.extra for events in context["triggering_asset_events"].values() for event in events]
        return {"key": context["dag_run"].partition_key, "told": told}

    say()
