"""Loops, which Airflow 3.4 has: each iteration is its own task instance with its own journal."""

from __future__ import annotations

from pathlib import Path

import airflow.sdk
import pytest
from airflow.sdk import DAG, task_group

from cpaas_provider.operators.sms import SendSmsOperator
from tests import journals
from tests.airflow.harness.running import run
from tests.airflow.harness.tries import stored_rows
from tests.sandbox import Sandbox

pytestmark = pytest.mark.skipif(not hasattr(airflow.sdk, "LoopDecision"), reason="This Airflow has no loops.")


def test_each_loop_iteration_has_its_own_reference(airflow_db: Path, cpaas_default: Sandbox) -> None:
    with DAG("looped", schedule=None) as dag:

        @task_group
        def reminders() -> None:
            SendSmsOperator(task_id="send", recipients=["+2348031234567"], content="Hello", sender_id="Shop")

        reminders.loop(max_iterations=2)
    finished = run(dag)
    stored: dict[int, dict[str, str]] = {}
    for row in stored_rows(finished.run_id):
        stored.setdefault(row.region_index, {})[row.key] = row.value
    requests = [journals.requests(of_one) for of_one in stored.values()]
    assert [entry["state"] for found in requests for entry in found.values()] == ["accepted"] * 2
    assert len({reference for found in requests for reference in found}) == 2
    assert cpaas_default.inbox("sms")["total"] == 2
