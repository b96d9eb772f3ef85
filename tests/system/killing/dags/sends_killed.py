"""One mapped task for each sending operator; who gets what stands in the run's configuration."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, get_current_context, task

from cpaas_provider.operators import (
    BuyAirtimeOperator,
    CreateContactRowOperator,
    RequestOtpOperator,
    SendEmailOperator,
    SendSmsOperator,
    UpsertContactRowOperator,
)

OPERATORS = {
    "sms": SendSmsOperator,
    "email": SendEmailOperator,
    "airtime": BuyAirtimeOperator,
    "otp": RequestOtpOperator,
    "create_row": CreateContactRowOperator,
    "upsert_row": UpsertContactRowOperator,
}
RETRIES = {"retries": 6, "retry_delay": timedelta(seconds=1)}


@task(**RETRIES)
def cases(name: str) -> list[dict[str, Any]]:
    return list((get_current_context()["dag_run"].conf or {}).get(name, []))


@task(task_id="plain", **RETRIES)
def send_without_journal(recipient: str) -> None:
    """Send as one would without this provider's operators; long enough after the answer to be killed there."""
    from cpaas_provider.hooks.cpaas import CpaasHook

    with CpaasHook().get_conn() as client:
        client.send_sms([recipient], "Example", "Twice?")
    time.sleep(1.5)


with DAG("sends_killed", schedule=None, max_active_tasks=64, max_active_runs=16):
    for name, operator in OPERATORS.items():
        operator.partial(task_id=name, **RETRIES).expand_kwargs(cases.override(task_id=f"{name}_cases")(name))
    send_without_journal.expand_kwargs(cases.override(task_id="plain_cases")("plain"))
