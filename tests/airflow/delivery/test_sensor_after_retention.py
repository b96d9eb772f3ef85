"""DeliverySensor after retention deleted the reports: delivered recipients must not look unreported."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, update

from cpaas_provider.database.database import Database, open_database
from cpaas_provider.database.schema.delivery import deliveries, requests, sends
from cpaas_provider.delivery.tracking.retention import executing, prune
from cpaas_provider.delivery.tracking.sent_requests import (
    SentRequest,
    TrackedSend,
    record_requests,
    record_send_finished,
    record_send_started,
)
from cpaas_provider.sensors.delivery import DeliverySensor
from tests.airflow.delivery.test_sensor import campaign, token_of
from tests.airflow.harness.campaigns import digits
from tests.airflow.harness.task_runner import TaskRunner, forget_campaign_database
from tests.airflow.harness.tries import Run, new_dag
from tests.unit.database.conftest import postgres_url as postgres_url
from tests.unit.database.conftest import sqlite_url as sqlite_url
from tests.unit.database.conftest import url as url
from tests.unit.delivery.report_builders import report, save_reports


@pytest.fixture
def database(airflow_db: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    """The database, with an old campaign to two recipients whose message was delivered."""
    monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", url)
    forget_campaign_database()
    long_ago = datetime.now(UTC) - timedelta(days=100)

    def record(connection: Connection) -> None:
        record_send_started(connection, TrackedSend("old", "send_sms", "shop", "dag", "run", "task", -1))
        record_requests(connection, "old", "shop", [SentRequest(token_of("old").reference, 2)])
        record_send_finished(connection, "old", 2)

    with open_database() as opened:
        opened.write(record)
        save_reports(opened, *(report(number, "delivered", token=token_of("old", 2)) for number in digits(2)))
        for table, names in (
            (sends, ("started_at", "ended_at", "finished_at")), (requests, ("recorded_at",)),
            (deliveries, ("updated_at",)),
        ):  # fmt: skip
            opened.write(executing(update(table).values(dict.fromkeys(names, long_ago))))
        yield opened
    forget_campaign_database()


def wait(task_runner: TaskRunner, results: Path, *, soft_fail: bool, days: int, send_result: Any = None) -> Run:
    with new_dag() as dag:
        DeliverySensor(
            task_id="wait",
            send_result=send_result or campaign("old", 2),
            results_path=str(results),
            timeout=0,
            soft_fail=soft_fail,
            deferrable=False,
        )
    return Run(task_runner, dag).age(days=days)


@pytest.mark.parametrize("soft_fail", [True, False])
def test_wait_whose_reports_were_pruned_ends_without_a_results_file(
    task_runner: TaskRunner, database: Database, tmp_path: Path, *, soft_fail: bool
) -> None:
    before = datetime.now(UTC) - timedelta(days=90)
    assert wait(task_runner, tmp_path / "kept.jsonl", soft_fail=soft_fail, days=100).run_try().state == "success"
    assert dict(prune(database, before, before))["cpaas_sends"] == 1
    results = tmp_path / "pruned.jsonl"
    done = wait(task_runner, results, soft_fail=soft_fail, days=100).run_try()
    # A task downstream that reads the file fails, and sends to nobody again.
    assert (done.state, results.exists()) == ("skipped" if soft_fail else "failed", False)
    assert "Retention has deleted delivery reports" in done.log + done.error


def test_send_that_is_younger_than_what_was_pruned_is_waited_for(
    task_runner: TaskRunner, database: Database, tmp_path: Path
) -> None:
    before = datetime.now(UTC) - timedelta(days=90)
    assert dict(prune(database, before, before))["cpaas_sends"] == 1
    done = wait(task_runner, tmp_path / "results.jsonl", soft_fail=False, days=1).run_try()
    assert "The wait for delivery timed out" in done.error


@pytest.mark.parametrize("recorded_anew", [True, False])
def test_keyed_campaign_whose_first_reports_were_pruned_ends_without_a_results_file(
    task_runner: TaskRunner, database: Database, tmp_path: Path, *, recorded_anew: bool
) -> None:
    """Each run of a campaign with an idempotency key has the same reference."""
    now = datetime.now(UTC)
    before, first_day = now - timedelta(days=90), (now - timedelta(days=100)).date().isoformat()
    result = campaign("old", 3, first_request_on=first_day)
    kept = wait(task_runner, tmp_path / "kept.jsonl", soft_fail=False, days=0, send_result=result).run_try()
    assert "Of 3 recipients 2 are delivered" in kept.error
    assert dict(prune(database, before, before))["cpaas_sends"] == 1

    def record_todays_run(connection: Connection) -> None:
        record_send_started(connection, TrackedSend("old", "send_sms", "shop", "dag", "today", "task", -1))
        record_requests(connection, "old", "shop", [SentRequest("new-request", 1)])
        record_send_finished(connection, "old", 3)

    if recorded_anew:
        database.write(record_todays_run)
    results = tmp_path / "pruned.jsonl"
    done = wait(task_runner, results, soft_fail=True, days=0, send_result=result).run_try()
    assert (done.state, results.exists()) == ("skipped", False)
    assert "Retention has deleted delivery reports" in done.log + done.error


def test_keyed_campaign_that_is_younger_than_what_was_pruned_is_waited_for(
    task_runner: TaskRunner, database: Database, tmp_path: Path
) -> None:
    before = datetime.now(UTC) - timedelta(days=110)
    assert dict(prune(database, before, before))["cpaas_sends"] == 0
    result = campaign("old", 2, first_request_on=(datetime.now(UTC) - timedelta(days=100)).date().isoformat())
    results = tmp_path / "results.jsonl"
    assert wait(task_runner, results, soft_fail=False, days=0, send_result=result).run_try().state == "success"
