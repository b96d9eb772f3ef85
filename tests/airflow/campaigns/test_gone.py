"""Resends of campaigns whose source has lost a recipient of unknown outcome."""

from __future__ import annotations

import json
from pathlib import Path

from cpaas_provider.operators import SmsCampaignOperator
from tests.airflow.harness.task_runner import TaskRunner, digits, fault, phone
from tests.airflow.harness.tries import Run, new_dag


def write(source: Path, *names: str) -> None:
    source.write_text("phone\n" + "".join(f"{phone(name)}\n" for name in names))


def test_resend_leaves_out_recipients_removed_from_the_source_and_fails(
    task_runner: TaskRunner, tmp_path: Path
) -> None:
    source, outcomes = tmp_path / "people.csv", tmp_path / "outcomes.jsonl"
    write(source, "ada", "bo")
    with new_dag() as dag:
        SmsCampaignOperator(
            task_id="c", source=str(source), content="Hello", on_unknown="resend", results_path=str(outcomes)
        )
    run = Run(task_runner, dag)
    task_runner.sandbox.control(*fault("send_sms", "error_500"))
    first = run.run_try()
    assert first.state == "up_for_retry"
    assert "They were sent to 4 more times in this try" in first.error
    task_runner.sandbox.control("DELETE", "faults")
    write(source, "bo", "cy")
    second = run.run_try()
    assert second.state == "failed"
    assert "no longer in the source" in second.error
    assert "more times in this try" not in second.error
    assert "airflow cpaas journal resolve --sent" in second.error
    assert [len(task_runner.inbox_items("sms", digits(name))) for name in ("ada", "bo", "cy")] == [0, 1, 1]
    told = [json.loads(line) for line in outcomes.read_text().splitlines()]
    assert [(line["row"], line["outcome"]) for line in told] == [(2, "sent"), (3, "sent"), (None, "unknown")]


def test_rejected_resend_is_not_repeated(task_runner: TaskRunner) -> None:
    with new_dag() as dag:
        SmsCampaignOperator(
            task_id="c", source=[phone("ada"), phone("bo")], content="Hello", on_unknown="resend", max_failure_ratio=0.9
        )
    run = Run(task_runner, dag)
    task_runner.sandbox.control(*fault("send_sms", "cut_before", times=1))
    task_runner.sandbox.control("POST", "seed", {"refused_recipients": [digits("ada")]})
    (only,) = run.run_to_end()
    assert (only.state, only.report["sent"], only.report["unknown_recipients"]) == ("failed", 1, 1)
    assert "rejected on the resend" in only.error
    assert "more times in this try" not in only.error
    assert [len(task_runner.inbox_items("sms", digits(name))) for name in ("ada", "bo")] == [0, 1]
