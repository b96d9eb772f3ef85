"""Report and results file of a run with several tries: they cover all of them."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from tests.airflow.contacts.test_sync import CREATE, at_once, people, sync
from tests.airflow.harness.task_runner import TaskRunner, fault


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_retry_covers_what_earlier_tries_changed(task_runner: TaskRunner, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"results.{suffix}"
    at_once(task_runner)
    sync(task_runner, people(3), f"tries {suffix}").run_try()
    rows = [*people(3, points=70)[:2], *people(17, 2)]
    run = sync(task_runner, rows, f"tries {suffix}", results_path=str(path), on_missing="delete")
    task_runner.sandbox.control(*fault(CREATE, "unauthorized", after=6, times=1))
    failed = run.run_try()
    assert failed.state == "failed"
    assert failed.report["run"] == {"created": 6, "updated": 2, "deleted": 0}
    run.clear()
    done = run.run_try()
    assert done.state == "success", done.error
    assert (done.result["created"], done.result["unchanged"]) == (10, 9)
    assert done.result["run"] == {"created": 16, "updated": 2, "deleted": 0}
    assert _outcomes(path) == {"created": 16, "updated": 2}
    assert "In all tries of this run 16 rows were created, 2 updated, 0 deleted." in done.log


def test_new_run_begins_with_a_file_and_totals_of_its_own(task_runner: TaskRunner, tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    assert sync(task_runner, people(4), "new run", results_path=str(path)).run_try().result["run"]["created"] == 4
    second = sync(task_runner, people(5), "new run", results_path=str(path)).run_try()
    assert second.result["run"] == {"created": 1, "updated": 0, "deleted": 0}
    assert _outcomes(path) == {"created": 1}


def test_file_that_was_removed_between_tries_is_written_anew(task_runner: TaskRunner, tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    at_once(task_runner)
    run = sync(task_runner, people(6), "removed file", results_path=str(path))
    task_runner.sandbox.control(*fault(CREATE, "unauthorized", after=2, times=1))
    assert run.run_try().state == "failed"
    path.unlink()
    run.clear()
    done = run.run_try()
    assert done.result["run"]["created"] == 6, done.error
    assert _outcomes(path) == {"created": 6}


def test_retry_that_cannot_read_its_source_leaves_the_file_of_the_earlier_try(
    task_runner: TaskRunner, tmp_path: Path
) -> None:
    path, source = tmp_path / "results.jsonl", tmp_path / "people.jsonl"
    source.write_text("".join(f"{json.dumps(row)}\n" for row in people(6)))
    at_once(task_runner)
    run = sync(task_runner, str(source), "lost source", results_path=str(path))
    task_runner.sandbox.control(*fault(CREATE, "unauthorized", after=2, times=1))
    assert run.run_try().state == "failed"
    source.unlink()
    run.clear()
    assert run.run_try().state != "success"
    assert _outcomes(path)["created"] == 2


def _outcomes(path: Path) -> dict[str, int]:
    """Return the number of lines of a results file, by their outcome."""
    if path.suffix == ".jsonl":
        return Counter(json.loads(line)["outcome"] for line in path.read_text().splitlines())
    import pyarrow.parquet

    return Counter(pyarrow.parquet.read_table(path).column("outcome").to_pylist())
