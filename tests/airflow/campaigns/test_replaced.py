"""A try of a campaign whose task instance Airflow has given to another try meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cpaas_provider.operators import SmsCampaignOperator
from tests.airflow.harness.stage import Stage, phone
from tests.airflow.harness.tries import Run, new_dag


def test_what_it_knows_does_not_take_the_place_of_the_new_trys_outcome_file(stage: Stage, tmp_path: Path) -> None:
    outcomes = tmp_path / "outcomes.jsonl"

    class Replaced(SmsCampaignOperator):
        """The task is cleared while a request is under way, and the new try has written its file."""

        async def send(self, *args: Any) -> Any:
            run.clear()
            outcomes.write_text("of the new try")
            return await super().send(*args)

    with new_dag() as dag:
        Replaced(task_id="c", source=[phone("ada")], content="Hello", results_path=str(outcomes))
    run = Run(stage, dag)
    replaced = run.once()
    assert "replaced this try" in replaced.error
    assert outcomes.read_text() == "of the new try"
