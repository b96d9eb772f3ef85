"""A try of a campaign that Airflow replaced with another try while it ran."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.api.client import ServerResponseError

from cpaas_provider.database.schema.delivery import sends
from cpaas_provider.operators import SmsCampaignOperator
from cpaas_provider.tasks.campaign.runner import CampaignRunner
from tests.airflow.delivery import test_callbacks
from tests.airflow.delivery.test_callbacks import Received
from tests.airflow.harness.campaigns import (
    around_requests,
    clear_faults,
    count_messages,
    digits,
    limit_batches,
    rows,
    sms,
)
from tests.airflow.harness.task_runner import TaskRunner, fault, phone
from tests.airflow.harness.tries import Run, new_dag

received = test_callbacks.received


def test_replaced_try_does_not_overwrite_the_results_file_of_the_new_try(
    task_runner: TaskRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes = tmp_path / "outcomes.jsonl"

    async def replaced_meanwhile(request: Callable[[], Awaitable[Any]]) -> Any:
        """The task is cleared while a request is under way, and the new try has written its file."""
        run.clear()
        outcomes.write_text("of the new try")
        return await request()

    around_requests(monkeypatch, replaced_meanwhile)
    with new_dag() as dag:
        SmsCampaignOperator(task_id="c", source=[phone("ada")], content="Hello", results_path=str(outcomes))
    run = Run(task_runner, dag)
    replaced = run.run_try()
    assert "replaced this try" in replaced.error
    assert outcomes.read_text() == "of the new try"


@pytest.mark.parametrize("state", ["success", "failed"])
def test_try_replaced_after_its_last_write_pushes_no_report(
    task_runner: TaskRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    outcomes = tmp_path / "outcomes.jsonl"
    build_report = CampaignRunner._build_report

    def replaced_meanwhile(runner: CampaignRunner, *arguments: Any) -> Any:
        """The try is frozen after its last write, and the new try has written its file and its report."""
        report = build_report(runner, *arguments)
        if (report["sent"] or report["rejected"]) and not outcomes.exists():
            run.clear()
            outcomes.write_text("of the new try")
        return report

    monkeypatch.setattr(CampaignRunner, "_build_report", replaced_meanwhile)
    if state == "failed":
        limit_batches(task_runner)
        task_runner.sandbox.control(*fault("send_sms", "unauthorized", after=1))
    run = sms(task_runner, rows(2), results_path=str(outcomes))
    # Airflow refuses the state of a try that it has replaced.
    with contextlib.suppress(ServerResponseError):
        run.run_try()
    assert (run.xcom("return_value"), run.xcom("report"), outcomes.read_text()) == (None, None, "of the new try")
    clear_faults(task_runner)
    assert run.run_try().state == "success"
    assert count_messages(task_runner) == Counter(digits(2))


@pytest.mark.parametrize("failure", [None, "unauthorized"])
def test_last_try_that_was_replaced_does_not_end_the_campaign_of_the_new_try(
    task_runner: TaskRunner, received: Received, monkeypatch: pytest.MonkeyPatch, failure: str | None
) -> None:
    """Otherwise a DAG that starts at the end of the campaign could start while the new try sends."""

    cleared: list[bool] = []

    def clear_once() -> None:
        if not cleared:
            cleared.append(True)
            run.clear()

    async def replaced_meanwhile(request: Callable[[], Awaitable[Any]]) -> Any:
        clear_once()
        return await request()

    def replaced_before_the_end(runner: CampaignRunner) -> None:
        clear_once()
        record_end(runner)

    record_end = CampaignRunner.record_end
    limit_batches(task_runner, callback_url=received.url, callback_secret="of-callbacks")
    if failure:
        task_runner.sandbox.control(*fault("send_sms", failure))
        monkeypatch.setattr(CampaignRunner, "record_end", replaced_before_the_end)
    else:
        around_requests(monkeypatch, replaced_meanwhile)
    run = sms(task_runner, rows(2))
    # Airflow refuses the state of a try that it has replaced.
    with contextlib.suppress(ServerResponseError):
        run.run_try()
    assert [(row.expected, row.ended_at) for row in received.rows(sends)] == [(None, None)]
    clear_faults(task_runner)
    assert run.run_try().state == "success"
    assert [(row.expected, row.ended_at is None) for row in received.rows(sends)] == [(2, False)]
