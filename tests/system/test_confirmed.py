"""A person confirms what a limit stopped, on a real Airflow, and the worker is killed after that."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.sandbox import Sandbox, connection_json
from tests.system.standalone import Standalone, wait_for
from tests.system.test_capped_at_once import has_sent, reached, task_process

pytestmark = pytest.mark.skipif(
    not os.environ.get("TORTURE"), reason="make torture: tests/airflow confirms limits with real task instances"
)

DAGS = Path(__file__).parent / "confirming" / "dags"
RECIPIENTS = 400
CAMPAIGN, SYNC = "confirmed_campaign", "confirmed_sync"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    with Sandbox(tmp_path_factory.mktemp("sandbox") / "sandbox.log") as running:
        yield running


@pytest.fixture(scope="module")
def airflow(tmp_path_factory: pytest.TempPathFactory, service: Sandbox) -> Iterator[Standalone]:
    home = tmp_path_factory.mktemp("airflow")
    connection = connection_json(service.connection, recipients_per_request=10, max_concurrency=2)
    settings = {
        "AIRFLOW_CONN_CPAAS_DEFAULT": connection,
        "AIRFLOW__CPAAS__DATABASE": f"sqlite:///{home / 'own.db'}",
    }
    with Standalone(home / "airflow", DAGS, settings) as running:
        yield running


def numbers_in(path: Path, first: int) -> list[str]:
    """Write recipients into a file, and return them as they go over the wire."""
    numbers = [f"23480{first + number:08d}" for number in range(RECIPIENTS)]
    path.write_text("phone\n" + "".join(f"+{number}\n" for number in numbers))
    return numbers


def instance(airflow: Standalone, dag_id: str, run_id: str, task_id: str) -> dict[str, Any]:
    found: dict[str, Any] = airflow.api("GET", f"dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}")
    return found


def form(airflow: Standalone, dag_id: str, run_id: str, task_id: str) -> dict[str, Any]:
    """Return what a person is asked, once the task waits for an answer."""

    def look() -> bool | None:
        state = instance(airflow, dag_id, run_id, task_id)["state"]
        assert state not in ("failed", "success"), airflow.task_log(dag_id, run_id, task_id)
        return state == "awaiting_input" or None

    wait_for(f"{task_id} to wait for an answer", look, 120)
    asked: dict[str, Any] = airflow.api("GET", f"dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}/-1/hitlDetails")
    assert asked["response_received"] is False
    return asked


def answer(airflow: Standalone, dag_id: str, run_id: str, task_id: str, option: str) -> None:
    airflow.api(
        "PATCH",
        f"dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}/-1/hitlDetails",
        {"chosen_options": [option], "params_input": {}},
    )


def test_approved_campaign_outlives_a_kill_and_nobody_gets_it_twice(
    airflow: Standalone, service: Sandbox, tmp_path: Path
) -> None:
    service.reset()
    service.control("POST", "faults", {"operation": "send_sms", "kind": "latency", "ms": 250})
    numbers = numbers_in(tmp_path / "phones.csv", 41_000_000)
    run_id = airflow.trigger(CAMPAIGN, {"source": str(tmp_path / "phones.csv"), "max_recipients": 100})
    asked = form(airflow, CAMPAIGN, run_id, "send")
    assert asked["subject"] == "send stopped at max_recipients. Continue?"
    assert f"| Recipients | {RECIPIENTS} |" in asked["body"]
    assert reached(service) == Counter()
    tries = instance(airflow, CAMPAIGN, run_id, "send")["try_number"]
    answer(airflow, CAMPAIGN, run_id, "send", "Approve")
    wait_for("the first messages", partial(has_sent, service, RECIPIENTS // 4), 240)
    process = wait_for("the process", lambda: task_process(airflow, CAMPAIGN, run_id), 10)
    os.kill(process.pid, signal.SIGKILL)
    assert airflow.ended(CAMPAIGN, run_id, 240) == "success", airflow.task_log(CAMPAIGN, run_id, "send")
    ended = instance(airflow, CAMPAIGN, run_id, "send")
    assert ended["try_number"] == tries + 1
    found = reached(service)
    assert set(found.values()) == {1}
    report = airflow.api(
        "GET", f"dags/{CAMPAIGN}/dagRuns/{run_id}/taskInstances/send/xcomEntries/return_value", deserialize="true"
    )["value"]
    assert len(set(numbers) - found.keys()) <= report["unknown_recipients"] <= 20


def test_rejected_campaign_fails_and_sends_nothing(airflow: Standalone, service: Sandbox, tmp_path: Path) -> None:
    service.reset()
    numbers_in(tmp_path / "phones.csv", 42_000_000)
    run_id = airflow.trigger(CAMPAIGN, {"source": str(tmp_path / "phones.csv"), "max_recipients": 100})
    form(airflow, CAMPAIGN, run_id, "send")
    tries = instance(airflow, CAMPAIGN, run_id, "send")["try_number"]
    answer(airflow, CAMPAIGN, run_id, "send", "Reject")
    assert airflow.ended(CAMPAIGN, run_id) == "failed"
    assert instance(airflow, CAMPAIGN, run_id, "send")["try_number"] == tries
    assert reached(service) == Counter()
    assert "rejected it" in airflow.task_log(CAMPAIGN, run_id, "send")


def test_limit_of_one_run_is_lifted_by_a_param(airflow: Standalone, service: Sandbox, tmp_path: Path) -> None:
    service.reset()
    numbers = numbers_in(tmp_path / "phones.csv", 43_000_000)
    run_id = airflow.trigger(CAMPAIGN, {"source": str(tmp_path / "phones.csv"), "max_recipients": "unlimited"})
    assert airflow.ended(CAMPAIGN, run_id) == "success", airflow.task_log(CAMPAIGN, run_id, "send")
    assert reached(service) == Counter(numbers)


def test_approved_sync_deletes_what_was_confirmed(airflow: Standalone, service: Sandbox, tmp_path: Path) -> None:
    service.reset()
    source = tmp_path / "people.csv"
    rows = [f"c-{number},Person {number}\n" for number in range(40)]
    source.write_text("id,name\n" + "".join(rows))
    assert airflow.ended(SYNC, airflow.trigger(SYNC, {"source": str(source)})) == "success"
    source.write_text("id,name\n" + "".join(rows[:10]))
    run_id = airflow.trigger(SYNC, {"source": str(source)})
    asked = form(airflow, SYNC, run_id, "sync")
    assert "| Rows to delete, clear or set | 30 (75.0% of the rows in the map) |" in asked["body"]
    answer(airflow, SYNC, run_id, "sync", "Approve")
    assert airflow.ended(SYNC, run_id) == "success", airflow.task_log(SYNC, run_id, "sync")
    report = airflow.api(
        "GET", f"dags/{SYNC}/dagRuns/{run_id}/taskInstances/sync/xcomEntries/return_value", deserialize="true"
    )["value"]
    assert (report["deleted"], report["complete"]) == (30, True)
