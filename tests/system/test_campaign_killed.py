"""The campaign example on a real Airflow whose task is killed in the middle of a request, and tried again."""

from __future__ import annotations

import contextlib
import os
import signal
from collections import Counter

import psutil
import pytest

from tests.reading import results_in
from tests.sandbox import Sandbox, connection_json
from tests.system.demo import EXAMPLES
from tests.system.standalone import Standalone, wait_for

pytestmark = pytest.mark.skipif(
    not os.environ.get("TORTURE"), reason="make torture: test_campaigns_killed.py kills campaigns at any moment"
)

COLLEAGUE = "2348035550100"
NUMBERS = [f"234803555010{n}" for n in range(1, 7)]
DAG_ID, TASK_ID = "customer_campaign", "send_sms"


@pytest.fixture
def service(tmp_path):
    with Sandbox(tmp_path / "sandbox.log") as running:
        everybody = [COLLEAGUE, *NUMBERS]
        running.control("POST", "seed", {"lookups": [{"phone": number, "dnd": False} for number in everybody]})
        yield running


@pytest.fixture
def airflow(tmp_path, service):
    # One request after the other, so that it is known which of them is under way.
    connection = connection_json(service.connection, recipients_per_request=2, max_concurrency=1)
    with Standalone(tmp_path / "airflow", EXAMPLES, {"AIRFLOW_CONN_CPAAS_DEFAULT": connection}) as running:
        yield running
    assert running.started.processes() == []


def processes_of(airflow, task):
    """Return the process a task runs in, by its title; that of the executor's worker above it is longer."""
    found = []
    for process in airflow.started.processes():
        with contextlib.suppress(psutil.Error):
            if " ".join(process.cmdline()).strip() == f"airflow worker -- {task['id']}":
                found.append(process)
    return found or None


def test_task_killed_in_a_request_sends_no_message_twice_and_names_unknown_requests(airflow, service, tmp_path):
    people = tmp_path / "six.csv"
    rows = [f"c-{number},Person,+{number},,,basic,1,\n" for number in NUMBERS]
    people.write_text("customer_id,name,phone,email,birthday,plan,points,tags\n" + "".join(rows))
    # The second request to two people is under way for long enough to be killed in; the first is to a colleague alone.
    service.control(
        "POST", "faults", {"operation": "send_sms", "kind": "latency", "ms": 20_000, "after": 2, "times": 1}
    )
    run_id = airflow.trigger(DAG_ID, {"csv": str(people), "folder": f"file://{tmp_path}/out"})

    wait_for("the first two requests", lambda: service.counters()["sms"]["recipients"] == 3 or None, 90)
    wait_for("the third request", lambda: service.counters()["faults"].get("latency"), 30)
    task = airflow.api("GET", f"dags/{DAG_ID}/dagRuns/{run_id}/taskInstances/{TASK_ID}")
    for process in wait_for("the task's process", lambda: processes_of(airflow, task), 10):
        os.kill(process.pid, signal.SIGKILL)

    assert airflow.ended(DAG_ID, run_id, 180) == "failed"
    task = airflow.api("GET", f"dags/{DAG_ID}/dagRuns/{run_id}/taskInstances/{TASK_ID}")
    assert (task["state"], task["try_number"]) == ("failed", 2)
    reached = Counter(item["recipient"] for item in service.inbox("sms")["items"])
    assert set(reached.values()) == {1}
    assert {COLLEAGUE, *NUMBERS} - set(reached) <= set(NUMBERS[2:4])

    path = f"dags/{DAG_ID}/dagRuns/{run_id}/taskInstances/summarise/xcomEntries/summary"
    sms = airflow.api("GET", path)["value"]["sms"]
    assert (sms["sent"], sms["unknown_recipients"], sms["not_sent"]) == (5, 2, 0)
    [file] = (tmp_path / "out").glob("*/send_sms.jsonl")
    told = {entry["recipient"]: entry["outcome"] for entry in results_in(file)}
    assert [number for number in NUMBERS if told[number] == "unknown"] == NUMBERS[2:4]
