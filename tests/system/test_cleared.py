""" "Clear task" in a real Airflow 3.4, by the request that its UI makes: it drops the task state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow.api_fastapi.core_api.datamodels.task_instances import ClearTaskInstancesBody

from tests.sandbox import Sandbox, connection_json
from tests.system.standalone import Standalone

pytestmark = pytest.mark.skipif(
    "keep_task_state" not in ClearTaskInstancesBody.model_fields,
    reason="make test-prerelease: this Airflow retains the task state in every clear",
)

DAGS = Path(__file__).parent / "clearing" / "dags"
RECIPIENTS = 6
PRICE = 4
"""Of a message, in the sandbox."""

SENT_FIRST = 2
"""The recipients for whose messages the balance suffices at first."""

WITHIN = 240.0


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    with Sandbox(tmp_path_factory.mktemp("sandbox") / "sandbox.log") as running:
        yield running


@pytest.fixture(scope="module")
def airflow(sandbox: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    home = tmp_path_factory.mktemp("cleared")
    connection = connection_json(sandbox.connection, sender_id="Example", recipients_per_request=1, max_concurrency=1)
    settings = {
        "AIRFLOW_CONN_CPAAS_DEFAULT": connection,
        "AIRFLOW__CPAAS__DATABASE": f"sqlite:///{home / 'cpaas.db'}",
    }
    with Standalone(home, DAGS, settings) as running:
        yield running


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("stored_in", "keeps_state", "resumes"),
    [("task_state", False, False), ("task_state", True, True), ("database", False, True), ("database", True, True)],
)
def test_clear_task_sends_to_no_recipient_twice_and_names_or_sends_to_the_others(
    airflow: Standalone, sandbox: Sandbox, stored_in: str, keeps_state: bool, resumes: bool
) -> None:
    dag_id = f"cleared_{stored_in}"
    sandbox.reset()
    sandbox.control("PUT", "balance", {"balance": PRICE * SENT_FIRST})
    first = 2348031200000 + 100 * keeps_state
    recipients = [str(first + number) for number in range(RECIPIENTS)]
    run_id = airflow.trigger(dag_id, {"rows": [{"phone": f"+{recipient}"} for recipient in recipients]}, WITHIN)
    assert airflow.ended(dag_id, run_id, WITHIN) == "failed"
    assert received(sandbox) == Counter(recipients[:SENT_FIRST]), airflow.task_log(dag_id, run_id, "campaign")
    sandbox.control("PUT", "balance", {"balance": 1_000_000})

    clear = {"dag_run_id": run_id, "task_ids": ["campaign"], "only_failed": False, "dry_run": False}
    airflow.api("POST", f"dags/{dag_id}/clearTaskInstances", clear | ({"keep_task_state": True} if keeps_state else {}))
    state = airflow.ended(dag_id, run_id, WITHIN)
    log = airflow.task_log(dag_id, run_id, "campaign")
    assert state == ("success" if resumes else "failed"), log
    report = airflow.api("GET", f"{path(dag_id, run_id)}/{'return_value' if resumes else 'report'}")["value"]
    if resumes:
        assert (report["sent"], received(sandbox)) == (RECIPIENTS, Counter(recipients)), log
    else:
        assert (report["unknown_recipients"], received(sandbox)) == (RECIPIENTS, Counter(recipients[:SENT_FIRST])), log


def path(dag_id: str, run_id: str) -> str:
    return f"dags/{dag_id}/dagRuns/{run_id}/taskInstances/campaign/xcomEntries"


def received(sandbox: Sandbox) -> Counter[Any]:
    """Return how many messages each recipient got."""
    return Counter(item["recipient"] for item in sandbox.inbox("sms", limit=1000)["items"])
