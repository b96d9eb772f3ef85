"""Tasks of a connection with ``share_rate_limit`` keep to its rate together, and send nothing without the database."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import task
from sqlalchemy import text

from cpaas_provider.database.database import open_database
from cpaas_provider.database.schema.rate_limits import rate_limits
from cpaas_provider.hooks.cpaas import CpaasHook
from cpaas_provider.operators.base_campaign import partitions
from cpaas_provider.operators.sms import SendSmsOperator, SmsCampaignOperator
from tests.airflow.harness.campaigns import (
    all_requests,
    around_requests,
    count_messages,
    digits,
    limit_batches,
    rows,
    sms,
)
from tests.airflow.harness.task_runner import TaskRunner, forget_campaign_database
from tests.airflow.harness.tries import Run, new_dag
from tests.unit.database.conftest import postgres_url as postgres_url
from tests.unit.database.conftest import sqlite_url as sqlite_url
from tests.unit.database.conftest import url as url

RATE = 20


@pytest.fixture(autouse=True)
def database(airflow_db: Path, url: str, monkeypatch: pytest.MonkeyPatch, task_runner: TaskRunner) -> Any:
    monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", url)
    monkeypatch.setattr("cpaas_provider.hooks._rate_limit.limiter._FIRST_PAUSE", 0.01)
    forget_campaign_database()
    limit_batches(task_runner, share_rate_limit=True, requests_per_second=RATE, max_concurrency=4)
    yield
    forget_campaign_database()


def seconds(task_runner: TaskRunner) -> float:
    """Return the time from the first message to the last."""
    sent = sorted(one["created_datetime"] for one in task_runner.sandbox.inbox("sms")["items"])
    first, last = (dt.datetime.fromisoformat(one) for one in (sent[0], sent[-1]))
    return (last - first).total_seconds()


def test_partitions_send_one_after_the_other_at_the_whole_rate(task_runner: TaskRunner) -> None:
    with new_dag() as dag:
        SmsCampaignOperator.partial(task_id="campaign", source=rows(20), content="Hello").expand(
            partition=partitions(2)
        )
    run = Run(task_runner, dag)
    tries = [run.run_try(map_index=index) for index in range(2)]
    assert [one.state for one in tries] == ["success", "success"]
    assert all(f"{RATE} requests per second" in one.log for one in tries)
    assert count_messages(task_runner) == Counter(digits(20))
    assert seconds(task_runner) >= 19 / RATE - 0.1


def test_single_sends_and_the_idempotent_client_share_the_limit(task_runner: TaskRunner) -> None:
    limit_batches(task_runner, share_rate_limit=True, requests_per_second=2)
    with new_dag() as dag:
        SendSmsOperator(task_id="send", recipients=["+2348031234567"], content="Hello")

        @task
        def remind() -> None:
            with CpaasHook().get_idempotent_client() as client:
                client.send_sms("+2348031234568", "Hello")

        remind()
    run = Run(task_runner, dag)
    assert [run.run_try(one).state for one in ("send", "remind")] == ["success", "success"]
    assert seconds(task_runner) >= 0.4


def test_database_that_fails_midway_stops_the_campaign_and_a_retry_continues(
    task_runner: TaskRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit_batches(task_runner, share_rate_limit=True, requests_per_second=5)

    async def fails(request: Callable[[], Awaitable[Any]]) -> Any:
        response = await request()
        if all_requests(task_runner) == 3:
            with open_database() as opened, opened.engine.begin() as connection:
                connection.execute(text("ALTER TABLE cpaas_rate_limits RENAME TO cpaas_away"))
        return response

    with monkeypatch.context() as patch:
        around_requests(patch, fails)
        run = sms(task_runner, rows(12))
        failed = run.run_try()
    assert failed.state == "up_for_retry"
    assert "The shared rate limit of connection 'cpaas_default' could not be used" in failed.error
    assert all_requests(task_runner) < 12
    with open_database() as opened, opened.engine.begin() as connection:
        connection.execute(text("ALTER TABLE cpaas_away RENAME TO cpaas_rate_limits"))
    assert run.run_try().state == "success"
    assert count_messages(task_runner) == Counter(digits(12))


def test_worker_with_another_database_sends_nothing(
    task_runner: TaskRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert sms(task_runner, rows(2)).run_try().state == "success"
    monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", f"sqlite:///{tmp_path}/another.db")
    done = sms(task_runner, rows(2)).run_try()
    assert (done.state, all_requests(task_runner)) == ("failed", 2)
    assert "Another database stores" in done.error


def test_worker_without_the_database_sends_nothing(task_runner: TaskRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", "postgresql://nobody@127.0.0.1:1/none")
    done = sms(task_runner, rows(2), use_suppression_list=False).run_try()
    assert (done.state, all_requests(task_runner)) == ("up_for_retry", 0)
    assert "shared rate limit" in done.error
    assert "so nothing was sent in this try" in done.error


def test_no_rate_limit_is_stored_without_share_rate_limit(task_runner: TaskRunner) -> None:
    limit_batches(task_runner)
    assert sms(task_runner, rows(2)).run_try().state == "success"
    with open_database() as opened, opened.connect() as connection:
        assert connection.execute(rate_limits.select()).all() == []
