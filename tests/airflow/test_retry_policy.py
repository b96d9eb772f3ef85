"""Custom tasks with the hook and the ready-made retry policy."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from datetime import timedelta

import pytest
from airflow.sdk import task
from airflow.serialization.serialized_objects import DagSerialization

from cpaas_provider.api import AsyncCpaasClient, CpaasClient
from cpaas_provider.hooks.cpaas import CpaasHook
from cpaas_provider.hooks.retry_policy import CpaasRetryPolicy
from tests.airflow.harness.task_runner import TaskRunner, digits, fault, open_task_runner, phone
from tests.sandbox import Sandbox

ASKED = 2  # seconds


@pytest.fixture(scope="module")
def finished_run(airflow_db: object, sandbox_process: Sandbox) -> Iterator[TaskRunner]:
    began: dict[str, list[float]] = {}
    with open_task_runner(sandbox_process) as task_runner:
        # An hour's delay: only the service's own word can bring a retry within this test's life.
        with task_runner.dag("retry_policy") as dag:
            careful = {"retry_policy": CpaasRetryPolicy(), "retry_delay": timedelta(hours=1)}

            @task(**careful)
            def greet(number: str, case: str) -> str:
                began.setdefault(case, []).append(time.monotonic())
                hook = CpaasHook()
                connection = hook.get_connection_settings().without_retries()
                # So that the policy sees what the service asks, not the client.
                options = {**connection.options, "max_retry_after": 0}
                with CpaasClient(connection.base_url, connection.api_key, **options) as client:
                    return client.send_sms(number, "Shop", "Hello").id

            def add_task(case: str, *trouble: tuple, number: str | None = None) -> None:
                greet.override(task_id=task_runner.prepare(case, *trouble))(number or phone(case), case)

            @task(**careful)
            async def greet_all(number: str) -> None:
                connection = CpaasHook().get_connection_settings()
                opened = AsyncCpaasClient(connection.base_url, connection.api_key, **connection.options)
                async with opened as client, asyncio.TaskGroup() as group:
                    group.create_task(client.send_sms(number, "Shop", "Hello"))

            greet_all.override(task_id=task_runner.prepare("cut_in_a_group", fault("send_sms", "cut_after", times=1)))(
                phone("cut_in_a_group")
            )
            add_task("works")
            add_task("bad_number", number="0803")
            add_task("cut", fault("send_sms", "cut_after"))
            add_task("asked_to_wait", fault("send_sms", "rate_limit", retry_after=ASKED, times=1))
        task_runner.run_dag(dag)
        task_runner.began = began
        task_runner.serialized = DagSerialization.serialize_dag(dag)
        yield task_runner


def test_dag_with_the_policy_can_be_serialized(finished_run: TaskRunner) -> None:
    assert finished_run.outcome("works") == ("success", 1)
    tasks = {one["__var"]["task_id"]: one["__var"] for one in finished_run.serialized["tasks"]}
    assert tasks["works"]["has_retry_policy"] is True


@pytest.mark.parametrize(("case", "sent"), [("bad_number", 0), ("cut", 1), ("cut_in_a_group", 1)])
def test_request_that_must_not_be_repeated_fails_without_a_retry(
    finished_run: TaskRunner, case: str, sent: int
) -> None:
    assert finished_run.outcome(case) == ("failed", 1)
    assert len(finished_run.inbox_items("sms", digits(case))) == sent
    assert "could act twice" in finished_run.log(case)


def test_retry_after_of_the_service_is_the_delay(finished_run: TaskRunner) -> None:
    assert finished_run.outcome("asked_to_wait") == ("success", 2)
    first, second = finished_run.began["asked_to_wait"]
    assert second - first >= ASKED
    assert len(finished_run.inbox_items("sms", digits("asked_to_wait"))) == 1
