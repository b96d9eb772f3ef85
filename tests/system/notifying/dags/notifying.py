"""DAGs that fail and are late, and notify."""

from __future__ import annotations

import time
from datetime import timedelta

from airflow.sdk import DAG, AsyncCallback, DeadlineAlert, DeadlineReference, task

from cpaas_provider.notifications import EmailNotifier, SmsNotifier

with DAG(
    "stormy",
    schedule=None,
    default_args={"on_failure_callback": SmsNotifier(recipients="+2348035550001")},
    on_failure_callback=EmailNotifier(recipients="dag@example.com"),
):

    @task
    def load(number):
        raise ValueError(number)

    load.expand(number=list(range(12)))

with DAG(
    "late",
    schedule=None,
    deadline=DeadlineAlert(
        reference=DeadlineReference.DAGRUN_QUEUED_AT,
        interval=timedelta(seconds=1),
        callback=AsyncCallback(EmailNotifier, kwargs={"recipients": "late@example.com"}),
    ),
):

    @task
    def take_long():
        time.sleep(20)

    take_long()
