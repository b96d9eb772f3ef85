"""A try of a campaign that Airflow replaced with another try while it ran."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from cpaas_provider.operators import SmsCampaignOperator
from tests.airflow.harness.campaigns import around_requests
from tests.airflow.harness.task_runner import TaskRunner, phone
from tests.airflow.harness.tries import Run, new_dag


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
