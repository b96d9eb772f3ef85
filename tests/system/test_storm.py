"""Tasks that fail by the dozen on a real Airflow: few messages, which together state every failure once."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.sandbox import Sandbox, connection_json
from tests.system.demo import EXAMPLES
from tests.system.standalone import Standalone, wait_for

pytestmark = pytest.mark.skipif(
    not os.environ.get("TORTURE"), reason="make torture: the slow tests do the same without the rest of Airflow"
)

DAG_ID = "failure_alerts"
BROKEN = 500
RUN_WITHIN = 60 + 10 * BROKEN
WINDOW = 300
_SEVERAL = re.compile(r"Airflow: (\d+) alerts since .*failure_alerts\.load failed \((\d+)\)")


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Sandbox]:
    with Sandbox(log=tmp_path / "sandbox.log") as sandbox:
        yield sandbox


@pytest.fixture
def airflow(service: Sandbox, tmp_path: Path) -> Iterator[Standalone]:
    settings = {
        "AIRFLOW_CONN_CPAAS_DEFAULT": connection_json(service.connection),
        "AIRFLOW__CPAAS__DATABASE": f"sqlite:///{tmp_path / 'cpaas.db'}",
    }
    with Standalone(tmp_path / "airflow", EXAMPLES, settings) as running:
        yield running


def reported(service: Sandbox) -> list[int]:
    """Return how many failures each SMS states, the first SMS first."""
    found = []
    for item in reversed(service.inbox("sms")["items"]):
        several = _SEVERAL.match(item["text"])
        assert several or "failure_alerts.load failed (ValueError" in item["text"], item["text"]
        found.append(int(several[1]) if several else 1)
        assert several is None or several[1] == several[2]
    return found


def test_every_failure_is_stated_once_in_few_messages(airflow: Standalone, service: Sandbox) -> None:
    conf = {"files": BROKEN + 3, "broken": BROKEN}
    run_id = airflow.trigger(DAG_ID, conf)
    assert airflow.ended(DAG_ID, run_id, RUN_WITHIN) == "failed"
    instances: list[dict[str, Any]] = airflow.api(
        "GET", f"dags/{DAG_ID}/dagRuns/{run_id}/taskInstances", task_id="load", limit=100, state="failed"
    )["task_instances"]
    assert len(instances) == min(BROKEN, 100)
    wait_for("all failures to be stated", lambda: sum(reported(service)) >= BROKEN or None, WINDOW + 120)
    messages = reported(service)
    print(f"{BROKEN} failed tasks were stated in {len(messages)} SMS: {messages}")
    assert sum(messages) == BROKEN
    seconds = airflow.api("GET", f"dags/{DAG_ID}/dagRuns/{run_id}")["duration"]
    assert len(messages) <= 2 + seconds // WINDOW
    # That of the run comes from the DAG processor.
    wait_for("the email about the run", lambda: service.counters()["email"]["recipients"] or None, 120)
    assert service.counters()["email"]["recipients"] == 1
