"""Tasks of an author's own over the hook, with the ready-made retry policy."""

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
from tests.airflow.harness.stage import Stage, digits, fault, on_stage, phone
from tests.sandbox import Sandbox

ASKED = 2  # seconds


@pytest.fixture(scope="module")
def played(airflow_db: object, sandbox_process: Sandbox) -> Iterator[Stage]:
    began: dict[str, list[float]] = {}
    with on_stage(sandbox_process) as stage:
        # An hour's delay: only the service's own word can bring a retry within this test's life.
        with stage.dag("retry_policy") as dag:
            careful = {"retry_policy": CpaasRetryPolicy(), "retry_delay": timedelta(hours=1)}

            @task(**careful)
            def greet(number: str, scene: str) -> str:
                began.setdefault(scene, []).append(time.monotonic())
                hook = CpaasHook()
                connection = hook.get_connection_settings().without_retries()
                # So that the policy sees what the service asks, not the client.
                options = {**connection.options, "max_retry_after": 0}
                with CpaasClient(connection.base_url, connection.api_key, **options) as client:
                    return client.send_sms(number, "Shop", "Hello").id

            def play(scene: str, *trouble: tuple, number: str | None = None) -> None:
                greet.override(task_id=stage.set(scene, *trouble))(number or phone(scene), scene)

            @task(**careful)
            async def greet_all(number: str) -> None:
                connection = CpaasHook().get_connection_settings()
                opened = AsyncCpaasClient(connection.base_url, connection.api_key, **connection.options)
                async with opened as client, asyncio.TaskGroup() as group:
                    group.create_task(client.send_sms(number, "Shop", "Hello"))

            greet_all.override(task_id=stage.set("cut_in_a_group", fault("send_sms", "cut_after", times=1)))(
                phone("cut_in_a_group")
            )
            play("works")
            play("bad_number", number="0803")
            play("cut", fault("send_sms", "cut_after"))
            play("asked_to_wait", fault("send_sms", "rate_limit", retry_after=ASKED, times=1))
        stage.play(dag)
        stage.began = began
        stage.serialized = DagSerialization.serialize_dag(dag)
        yield stage


def test_a_dag_with_it_can_be_stored(played: Stage) -> None:
    assert played.outcome("works") == ("success", 1)
    tasks = {one["__var"]["task_id"]: one["__var"] for one in played.serialized["tasks"]}
    assert tasks["works"]["has_retry_policy"] is True


@pytest.mark.parametrize(("scene", "sent"), [("bad_number", 0), ("cut", 1), ("cut_in_a_group", 1)])
def test_what_must_not_be_repeated_keeps_its_retries(played: Stage, scene: str, sent: int) -> None:
    assert played.outcome(scene) == ("failed", 1)
    assert len(played.arrived("sms", digits(scene))) == sent
    assert "could act twice" in played.log(scene)


def test_the_service_s_word_is_the_delay(played: Stage) -> None:
    assert played.outcome("asked_to_wait") == ("success", 2)
    first, second = played.began["asked_to_wait"]
    assert second - first >= ASKED
    assert len(played.arrived("sms", digits("asked_to_wait"))) == 1
