"""A contact sync that a limit stopped and that a person confirms: the confirmed changes are made, and no others."""

from __future__ import annotations

from typing import Any

import pytest

from tests.airflow.contacts.test_sync import CREATE, at_once, people, sync
from tests.airflow.harness.confirming import answer, expire, form, lose_process
from tests.airflow.harness.task_runner import TaskRunner, fault
from tests.airflow.harness.tries import Run
from tests.unit.contacts.listed import listed

TASK = "sync"
LIMITS = {"max_deletes": 0.1, "max_new": 0.5}


def asking(task_runner: TaskRunner, name: str, source: Any, earlier: int = 20, **given: Any) -> Run:
    """Return a run of a sync that asks, once it has stopped at its limit; a run before filled the list."""
    assert sync(task_runner, people(earlier), name).run_try().state == "success"
    run = sync(task_runner, source, name, on_limit="ask", **{"on_missing": "delete", **LIMITS, **given})
    stopped = run.run_try()
    assert (stopped.state, stopped.report) == ("awaiting_input", None), stopped.error
    return run


def rows_left(task_runner: TaskRunner) -> int:
    return len(listed(task_runner.sandbox))


def test_approved_sync_deletes_the_confirmed_rows(task_runner: TaskRunner) -> None:
    before = rows_left(task_runner)
    run = asking(task_runner, "confirmed_approved", people(8))
    shown = form(run, TASK)
    assert "sync stopped at max_deletes. Continue?" in shown
    for row in ("| Rows of the source | 8 |", "| Rows to delete, clear or set | 12 (60.0% of the rows in the map) |"):
        assert row in shown
    assert "continues with `max_deletes` 12." in shown
    assert rows_left(task_runner) == before + 20
    done = answer(run, TASK, "Approve").run_try()
    assert (done.state, done.number, done.result["deleted"]) == ("success", 1, 12), done.error
    assert rows_left(task_runner) == before + 8


def test_all_limits_that_stop_a_sync_are_confirmed_at_once(task_runner: TaskRunner) -> None:
    run = asking(task_runner, "confirmed_several", people(50)[20:], max_changes=5)
    assert "continues with `max_new` 30, `max_deletes` 20, `max_changes` 50." in form(run, TASK)
    done = answer(run, TASK, "Approve").run_try()
    assert (done.state, done.result["created"], done.result["deleted"]) == ("success", 30, 20), done.error


def test_more_deletions_than_confirmed_stop_again(task_runner: TaskRunner) -> None:
    run = asking(task_runner, "confirmed_grown", people(8))
    before = rows_left(task_runner)
    again = answer(run, TASK, "Approve").change(source=people(7)).run_try()
    assert (again.state, rows_left(task_runner)) == ("failed", before)
    assert "would delete or clear 13 rows, and 12 of those that were confirmed are left" in again.error


def test_another_limit_than_the_confirmed_one_still_holds(task_runner: TaskRunner) -> None:
    run = asking(task_runner, "confirmed_another", people(8))
    again = answer(run, TASK, "Approve").change(source=people(60)[12:]).run_try()
    assert again.state == "failed"
    assert "max_new" in again.error


@pytest.mark.parametrize("source", [8, 20], ids=["as it was", "within the limit now"])
def test_rejected_sync_changes_nothing(task_runner: TaskRunner, source: int) -> None:
    run = asking(task_runner, f"rejected {source}", people(8))
    before = rows_left(task_runner)
    failed = answer(run, TASK, "Reject").change(source=people(source, points=5)).run_try()
    assert (failed.state, rows_left(task_runner), failed.report["requests"]) == ("failed", before, 0)
    assert "asked to confirm it, and rejected it" in failed.error


def test_sync_without_an_answer_in_time_fails(task_runner: TaskRunner) -> None:
    run = asking(task_runner, "confirmed_expired", people(8))
    failed = expire(run, TASK).run_try()
    assert failed.state == "failed"
    assert "confirmation_timeout passed without a response" in failed.error


def test_empty_source_cannot_be_confirmed(task_runner: TaskRunner) -> None:
    assert sync(task_runner, people(5), "confirmed_empty").run_try().state == "success"
    failed = sync(task_runner, [], "confirmed_empty", on_missing="delete", on_limit="ask", **LIMITS).run_try()
    assert failed.state == "failed"
    assert "The source has no rows" in failed.error


def test_dry_run_does_not_ask(task_runner: TaskRunner) -> None:
    assert sync(task_runner, people(5), "confirmed_dry").run_try().state == "success"
    run = sync(task_runner, people(1), "confirmed_dry", on_missing="delete", on_limit="ask", dry_run=True, **LIMITS)
    done = run.run_try()
    assert (done.state, done.result["deletes"]) == ("success", 4)


def test_retry_makes_no_more_than_the_rest_of_the_confirmed_changes(task_runner: TaskRunner) -> None:
    at_once(task_runner)
    run = asking(task_runner, "confirmed_retried", people(30), max_changes=5)
    answer(run, TASK, "Approve")
    task_runner.sandbox.control(*fault(CREATE, "rate_limit", after=4, retry_after=0))
    broken = run.run_try()
    assert broken.state == "up_for_retry", broken.error
    made = broken.report["run"]["created"]
    assert 0 < made < 10
    task_runner.sandbox.control("DELETE", "faults")
    # Rows that were confirmed and made count: with one row more than the rest, the sync stops.
    before = rows_left(task_runner)
    stopped = run.change(source=people(31)).run_try()
    assert (stopped.state, rows_left(task_runner)) == ("failed", before)
    assert f"and {10 - made} of those that were confirmed are left" in stopped.error


def test_rest_of_the_confirmed_changes_is_made_by_a_retry(task_runner: TaskRunner) -> None:
    at_once(task_runner)
    run = asking(task_runner, "confirmed_rest", people(30), max_changes=5)
    answer(run, TASK, "Approve")
    task_runner.sandbox.control(*fault(CREATE, "rate_limit", after=4, retry_after=0))
    assert run.run_try().state == "up_for_retry"
    task_runner.sandbox.control("DELETE", "faults")
    done = run.run_try()
    assert (done.state, done.number, done.result["run"]["created"]) == ("success", 2, 10), done.error


def test_try_that_dies_before_the_answer_is_stored_asks_again(task_runner: TaskRunner) -> None:
    run = asking(task_runner, "confirmed_killed", people(8))
    before = rows_left(task_runner)
    lose_process(answer(run, TASK, "Approve"), TASK)
    asked = run.run_try()
    assert (asked.state, asked.number, rows_left(task_runner)) == ("awaiting_input", 2, before)
    assert answer(run, TASK, "Approve").run_try().result["deleted"] == 12
