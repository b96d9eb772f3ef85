"""Switches and limits of a contact sync that the params of one run change, without a change of the DAG."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import task

from cpaas_provider.operators.contact_sync import SyncContactsOperator
from tests.airflow.contacts.test_sync import COLUMNS, CREATE, people, sync
from tests.airflow.harness.campaigns import all_requests, requests
from tests.airflow.harness.running import run
from tests.airflow.harness.task_runner import TaskRunner, fault
from tests.airflow.harness.tries import Run, Try, new_dag
from tests.unit.contacts.listed import listed

LIMITS = ("max_deletes", "max_changes", "max_new")
SWITCHES = ("dry_run", "resync", "retry_rejected", "max_failure_ratio", *LIMITS)
PARAMS: dict[str, Any] = {
    "dry_run": False,
    "resync": False,
    "retry_rejected": False,
    "max_deletes": 0.1,
    "max_changes": 1000,
    "max_new": 0.5,
    "max_failure_ratio": 0.0,
}


def run_of(task_runner: TaskRunner, source: Any, map_name: str, *, native: bool = False, **params: Any) -> Try:
    """Run one sync whose switches and limits are those params of its run."""
    with new_dag(params={**PARAMS, **params}, render_template_as_native_obj=native) as dag:
        SyncContactsOperator(
            task_id="sync",
            source=source,
            key="id",
            columns=COLUMNS,
            on_missing="delete",
            map_name=map_name,
            **{name: f"{{{{ params.{name} }}}}" for name in SWITCHES},
        )
    return Run(task_runner, dag).run_try()


@pytest.mark.parametrize("native", [False, True])
def test_params_of_one_run_set_switches_and_limits(task_runner: TaskRunner, native: bool) -> None:
    name = f"params {native}"
    rows = people(20)
    dry = run_of(task_runner, rows, name, native=native, dry_run=True)
    assert (dry.state, dry.result["dry_run"], len(listed(task_runner.sandbox))) == ("success", True, 0), dry.error
    task_runner.sandbox.control(*fault(CREATE, "reject", times=1, message="Plan is unknown"))
    first = run_of(task_runner, rows, name, native=native, max_failure_ratio=0.05)
    assert (first.state, first.result["created"], first.result["rejected"]) == ("success", 19, 1), first.error
    stopped = run_of(task_runner, rows[:10], name, native=native, max_failure_ratio=1.0)
    assert "and max_deletes allows 1 (10% of 19)" in stopped.error
    assert "max_deletes 0.1 (10 %: 1 of 19 rows), max_changes 1,000, max_new 0.5 (50 %: 9 of 19 rows)" in stopped.log
    assert run_of(task_runner, people(40), name, native=native, max_changes=5).state == "failed"
    again = run_of(task_runner, rows, name, native=native, retry_rejected=True, resync="true")
    assert (again.result["created"], again.result["updated"]) == (1, 19), again.error
    raised = run_of(task_runner, rows[:10], name, native=native, max_deletes=10)
    assert raised.result["deleted"] == 10, raised.error


@pytest.mark.parametrize("native", [False, True])
def test_params_of_one_run_lift_each_limit(task_runner: TaskRunner, native: bool) -> None:
    name = f"lifted {native}"
    assert run_of(task_runner, people(4), name, native=native).state == "success"
    grown = people(16)[4:]
    stopped = run_of(task_runner, grown, name, native=native, max_deletes=0.99)
    assert "max_new='unlimited'" in stopped.error
    lifted = run_of(task_runner, grown, name, native=native, **dict.fromkeys(LIMITS, "unlimited"))
    assert (lifted.result["created"], lifted.result["deleted"]) == (12, 4), lifted.error
    missing = run_of(task_runner, people(4), name, native=native, max_new=None)
    assert missing.state == "failed"


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"dry_run": "maybe"}, "dry_run must be True or False; it is a text of 5 characters. Nothing was sent."),
        ({"dry_run": "None"}, "it is 'None'. The template gave no value: check the param."),
        ({"resync": 1}, "resync must be True or False; it is 1. Nothing was sent."),
        ({"max_deletes": 1.0}, 'Write 1 for one row, or "unlimited" for all rows. Nothing was sent.'),
        ({"max_deletes": "all"}, "or a float from 0 to 1; it is a text of 3 characters. Nothing was sent."),
        ({"max_deletes": "None"}, "or a float from 0 to 1; it is 'None'. The template gave no value: check the param."),
        ({"max_new": "None"}, "or a float from 0 to 1; it is 'None'. The template gave no value: check the param."),
        ({"max_changes": -1}, "max_changes must be a whole number of at least 0"),
        ({"max_failure_ratio": 2}, "max_failure_ratio must be a number from 0 to 1; it is 2."),
    ],
)
def test_param_that_cannot_be_used_fails_before_the_first_request(
    task_runner: TaskRunner, params: dict[str, Any], words: str
) -> None:
    before = all_requests(task_runner)
    ended = run_of(task_runner, people(2), "unusable", **params)
    assert ended.state == "failed"
    assert words in ended.error
    assert all_requests(task_runner) == before


def test_text_that_is_no_template_is_refused_in_the_dag_file(task_runner: TaskRunner) -> None:
    with pytest.raises(ValueError, match="dry_run must be True or False; it is 'no'"):
        sync(task_runner, people(1), "text", dry_run="no")
    with pytest.raises(ValueError, match="max_deletes must be a whole number"):
        sync(task_runner, people(1), "text", max_deletes="0.1")


def test_dry_run_of_mapped_syncs_is_rendered(task_runner: TaskRunner) -> None:
    with new_dag(params={"dry_run": True}) as dag:

        @task
        def lists() -> list[dict[str, Any]]:
            return [{"source": people(2), "map_name": "mapped"}]

        SyncContactsOperator.partial(
            task_id="sync", key="id", columns=COLUMNS, dry_run="{{ params.dry_run }}"
        ).expand_kwargs(lists())
    finished = run(dag)
    assert (finished.state("sync", 0), finished.xcom("sync", 0)["dry_run"]) == ("success", True)
    assert requests(task_runner, CREATE) == 0


def test_dry_run_of_a_resync_shows_the_requests_of_the_resync(task_runner: TaskRunner, tmp_path: Path) -> None:
    planned, made = tmp_path / "planned.jsonl", tmp_path / "made.jsonl"
    rows = people(4)
    sync(task_runner, people(5), "resync").run_try()
    options = {"resync": True, "on_missing": "delete"}
    dry = sync(
        task_runner, rows, "resync", dry_run=True, preview_count=9, results_path=str(planned), **options
    ).run_try()
    assert (dry.result["updates"], dry.result["deletes"], dry.result["unchanged"]) == (4, 1, 0), dry.error
    # The dry run changed nothing in the map.
    assert sync(task_runner, people(5), "resync").run_try().result["requests"] == 0
    done = sync(task_runner, rows, "resync", results_path=str(made), **options).run_try()
    assert (done.result["updated"], done.result["deleted"]) == (4, 1), done.error

    def lines(path: Path) -> list[tuple[Any, ...]]:
        read = map(json.loads, path.read_text().splitlines())
        return sorted((line["row"] or 0, line["row_id"], line["columns"] or "") for line in read)

    assert lines(planned) == lines(made)
