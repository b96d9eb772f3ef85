"""Notifiers in a real Airflow: callbacks of tasks in LocalExecutor, of a DAG in its processor, of a deadline."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sandbox import Sandbox, connection_json
from tests.system.standalone import Standalone, wait_for

DAGS = Path(__file__).parent / "notifying" / "dags"


@pytest.fixture
def airflow(sandbox: Sandbox, tmp_path: Path) -> Iterator[Standalone]:
    connection = connection_json(sandbox.connection, sender_id="Ops", email_sender_id="ops@example.com")
    with Standalone(tmp_path / "home", DAGS, {"AIRFLOW_CONN_CPAAS_DEFAULT": connection}) as running:
        yield running


def test_storm_is_one_sms_and_dag_and_deadline_are_an_email_each(airflow: Standalone, sandbox: Sandbox) -> None:
    late = airflow.trigger("late", within=180)
    stormy = airflow.trigger("stormy", within=180)
    assert airflow.ended("stormy", stormy, within=400) == "failed"
    airflow.ended("late", late, within=200)

    def emails() -> dict[str, str] | None:
        found = {one["recipient"]: one["subject"] for one in sandbox.inbox("email")["items"]}
        return found if len(found) == 2 else None

    assert wait_for("two emails", emails, 200) | {"late@example.com": ""} == {
        "dag@example.com": "Airflow: DAG stormy failed",
        "late@example.com": "",
    }
    subjects = wait_for("two emails", emails, 10)
    assert subjects["late@example.com"].startswith("Airflow: DAG late missed its deadline (")
    [sms] = wait_for("an SMS", lambda: sandbox.inbox("sms")["items"] or None, 120)
    assert sms["text"].partition(" since ")[0] == "Airflow: 12 alerts"
    assert sms["text"].endswith(f"{airflow.url}/dags/stormy/runs/{_quoted(stormy)}")
    assert sandbox.counters()["email"]["requests"] == 2
    logs = "".join(path.read_text(errors="replace") for path in (airflow.home / "logs").rglob("*.log"))
    assert "8035550001" not in logs


def _quoted(run_id: str) -> str:
    from urllib.parse import quote

    return quote(run_id, safe="")
