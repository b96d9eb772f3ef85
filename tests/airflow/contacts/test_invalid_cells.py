"""Rows with a cell that cannot be used: ``on_invalid_cell="skip_cell"`` sends the rest of the row."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.airflow.contacts.test_sync import COLUMNS, CREATE, UPDATE, names, people, sync
from tests.airflow.harness.campaigns import requests
from tests.airflow.harness.task_runner import TaskRunner, fault
from tests.unit.contacts.listed import BIRTHDAY, NAME, PHONE, POINTS, listed

BORN = {**COLUMNS, "Birthday": "born"}
WRONG = "31.02.1990"


def born(count: int, *, wrong: int | None = None, day: str = "1990-01-31", **cells: Any) -> list[dict[str, Any]]:
    """Return rows with a birthday, of which one may have a wrong one."""
    rows = people(count, born=day)
    if wrong is not None:
        rows[wrong] |= {"born": WRONG, **cells}
    return rows


def sync_skipping_cells(task_runner: TaskRunner, rows: Any, map_name: str, **given: Any) -> Any:
    """Run one sync that skips cells that cannot be used."""
    options = {"columns": BORN, "on_invalid_cell": "skip_cell", "max_failure_ratio": 0.5, **given}
    return sync(task_runner, rows, map_name, **options).run_try()


def test_other_cells_of_a_row_are_sent_and_the_invalid_one_is_left_unchanged(
    task_runner: TaskRunner, tmp_path: Path
) -> None:
    path = tmp_path / "results.jsonl"
    sync_skipping_cells(task_runner, born(5), "cell rest")
    done = sync_skipping_cells(
        task_runner, born(5, wrong=2, phone="+2348039999999"), "cell rest", results_path=str(path)
    )
    assert (done.state, done.result["updated"], done.result["invalid_rows"]) == ("success", 1, 0), done.error
    assert (done.result["partial_rows"], done.result["invalid_cells"]) == (1, {"Birthday": 1})
    assert done.result["complete"] is False
    row = names(task_runner)["Person 2"]
    assert (row[PHONE], row[BIRTHDAY]) == ("2348039999999", "1990-01-31")
    (line,) = map(json.loads, path.read_text().splitlines())
    assert (line["row"], line["outcome"], line["columns"]) == (3, "updated", "Phone")
    assert line["reason"].startswith("Birthday: ")
    sync_skipping_cells(task_runner, born(5, wrong=2, phone="+2348039999999"), "cell rest", results_path=str(path))
    (line,) = map(json.loads, path.read_text().splitlines())
    assert (line["row"], line["outcome"], line["columns"]) == (3, "invalid_cell", "Birthday")
    assert WRONG not in path.read_text() + done.log


def test_row_is_named_in_every_run_without_a_request_until_corrected(task_runner: TaskRunner) -> None:
    rows = born(4, wrong=1)
    first = sync_skipping_cells(task_runner, rows, "cell named")
    assert (first.result["created"], first.result["partial_rows"]) == (4, 1), first.error
    assert names(task_runner)["Person 1"].get(BIRTHDAY) is None
    for _ in range(2):
        again = sync_skipping_cells(task_runner, rows, "cell named")
        assert (again.result["requests"], again.result["partial_rows"], again.result["complete"]) == (0, 1, False)
        assert again.result["unchanged"] == 4
    corrected = sync_skipping_cells(task_runner, born(4), "cell named")
    assert (corrected.result["updated"], corrected.result["partial_rows"]) == (1, 0), corrected.error
    assert names(task_runner)["Person 1"][BIRTHDAY] == "1990-01-31"
    assert sync_skipping_cells(task_runner, born(4), "cell named").result["complete"] is True


def test_row_with_a_wrong_cell_counts_for_the_failure_ratio(task_runner: TaskRunner) -> None:
    failed = sync_skipping_cells(task_runner, born(4, wrong=1), "cell ratio", max_failure_ratio=0.0)
    assert failed.state == "failed"
    assert "1 with invalid cells), more than max_failure_ratio allows" in failed.error
    assert failed.report["created"] == 4
    assert len(listed(task_runner.sandbox)) == 4


def test_partial_row_that_the_service_rejected_is_sent_again_only_when_it_changed(task_runner: TaskRunner) -> None:
    sync_skipping_cells(task_runner, born(3), "cell both")
    task_runner.sandbox.control(*fault(UPDATE, "reject", times=1, message="Points are wrong"))
    rows = born(3, wrong=1, points=500)
    ended = sync_skipping_cells(task_runner, rows, "cell both")
    assert (ended.result["rejected"], ended.result["partial_rows"]) == (1, 0), ended.error
    before = requests(task_runner, UPDATE)
    again = sync_skipping_cells(task_runner, rows, "cell both")
    assert (again.result["rejected_before"], again.result["partial_rows"]) == (1, 0)
    assert again.result["invalid_cells"] == {"Birthday": 1}
    assert requests(task_runner, UPDATE) == before
    sync_skipping_cells(task_runner, born(3, wrong=1, points=501), "cell both")
    assert names(task_runner)["Person 1"][POINTS] == 501


def test_row_without_a_usable_cell_or_key_is_an_invalid_row(task_runner: TaskRunner) -> None:
    rows = [*born(2), {"id": "c-9", "born": WRONG}, {"id": True, "born": "1990-01-31"}]
    done = sync_skipping_cells(task_runner, rows, "no cell", columns={"Birthday": "born"})
    assert done.state == "success", done.error
    assert (done.result["created"], done.result["invalid_rows"], done.result["partial_rows"]) == (2, 2, 0), done.error


def test_template_of_a_wrong_value_is_one_cell_and_other_columns_of_it_are_sent(task_runner: TaskRunner) -> None:
    columns = {"Name": {"template": "{name} {extra}"}, "Phone": "phone", "Points": "points"}
    rows = [{**row, "extra": "" if number else b"\x00"} for number, row in enumerate(people(2))]
    done = sync_skipping_cells(task_runner, rows, "cell template", columns=columns)
    assert (done.result["created"], done.result["invalid_cells"]) == (2, {"Name": 1}), done.error
    assert {row.get(NAME) for row in listed(task_runner.sandbox).values()} == {None, "Person 1"}


def test_wrong_cell_skips_the_whole_row_by_default(task_runner: TaskRunner) -> None:
    done = sync(task_runner, born(3, wrong=1), "default row", columns=BORN, max_failure_ratio=0.5).run_try()
    assert (done.result["invalid_rows"], done.result["partial_rows"], requests(task_runner, CREATE)) == (1, 0, 2)
    assert done.result["invalid_cells"] == {"Birthday": 1}


def test_invalid_on_invalid_cell_is_refused_in_the_dag_file(task_runner: TaskRunner) -> None:
    with pytest.raises(ValueError, match="on_invalid_cell must be one of skip_row, skip_cell; it is 'clear'"):
        sync(task_runner, born(1), "refused", on_invalid_cell="clear")


def test_partial_row_below_the_cursor_stays_counted(task_runner: TaskRunner) -> None:
    rows = [{**row, "at": number} for number, row in enumerate(born(4, wrong=1))]
    assert sync_skipping_cells(task_runner, rows, "cell cursor", cursor_column="at").result["partial_rows"] == 1
    for _ in range(2):
        passed = sync_skipping_cells(task_runner, rows, "cell cursor", cursor_column="at").result
        assert (passed["before_cursor"], passed["incomplete_because"]) == (3, {"failed_before_cursor": 1})
    # A run without a cursor reads the row, and the next one passes over it again.
    assert sync_skipping_cells(task_runner, rows, "cell cursor").result["incomplete_because"] == {"partial_rows": 1}
    passed = sync_skipping_cells(task_runner, rows, "cell cursor", cursor_column="at").result
    assert passed["incomplete_because"] == {"failed_before_cursor": 1}
    assert sync_skipping_cells(task_runner, born(4), "cell cursor").result["complete"] is True
    assert sync_skipping_cells(task_runner, rows[2:], "cell cursor", cursor_column="at").result["complete"] is True


def test_partial_row_of_a_duplicate_key_that_is_not_used_is_only_invalid(task_runner: TaskRunner) -> None:
    rows = born(2, wrong=1)
    done = sync_skipping_cells(
        task_runner, [*rows, born(2)[1]], "cell duplicate", on_duplicate_key="none", max_failure_ratio=1.0
    )
    assert (done.result["created"], done.result["invalid_rows"], done.result["partial_rows"]) == (1, 2, 0), done.error
