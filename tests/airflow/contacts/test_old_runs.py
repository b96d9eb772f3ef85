"""Runs that are older than the list: their source, or their cells, would roll it back."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from airflow.sdk import timezone
from airflow.utils.types import DagRunType

from cpaas_provider.operators.contact_sync import SyncContactsOperator
from cpaas_provider.operators.contacts import UpdateContactRowOperator, UpsertContactRowOperator
from tests.airflow.campaigns.test_run_guard import DAILY, DAY, ago
from tests.airflow.contacts.test_sync import COLUMNS, people
from tests.airflow.harness.campaigns import all_requests
from tests.airflow.harness.task_runner import TaskRunner
from tests.airflow.harness.tries import Run, new_dag, scheduled_at
from tests.unit.contacts.listed import NAME, listed

KINDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "sync": (SyncContactsOperator, {"source": people(3), "key": "id", "columns": COLUMNS}),
    "upsert by key": (UpsertContactRowOperator, {"key": "c-1", "columns": {"Name": "Ada"}}),
    "upsert by id": (UpsertContactRowOperator, {"row_id": "{{ '' }}", "columns": {"Name": "Ada"}}),
    "update": (UpdateContactRowOperator, {"columns": {"Name": "Ada"}}),
}
_maps = itertools.count()
EACH = pytest.mark.parametrize("kind", KINDS)


def run_of(
    task_runner: TaskRunner, kind: str, facts: dict[str, Any], dag: dict[str, Any] | None = None, **given: Any
) -> Run:
    operator, arguments = KINDS[kind]
    if operator is UpdateContactRowOperator:
        given = {"row_id": f"row_{next(_maps)}", **given}
        task_runner.sandbox.control("POST", "seed", {"rows": [{"id": given["row_id"], "columns": {NAME: "Before"}}]})
    else:
        # The maps of other tests belong to lists of theirs.
        given = {"map_name": f"old runs {next(_maps)}", "new_map": True, **given}
    with new_dag(**(dag or {})) as opened:
        operator(task_id="contacts", **{**arguments, **given})
    return Run(task_runner, opened, **facts)


@EACH
def test_backfill_is_skipped_unless_the_author_allows_it(task_runner: TaskRunner, kind: str) -> None:
    facts = {"run_type": DagRunType.BACKFILL_JOB, "run_after": timezone.utcnow()}
    skipped = run_of(task_runner, kind, facts, DAILY).run_try()
    assert (skipped.state, all_requests(task_runner)) == ("skipped", 0)
    assert "allow_backfill=True" in skipped.log
    allowed = run_of(task_runner, kind, {**facts, "run_after": ago(90)}, DAILY, allow_backfill=True).run_try()
    assert allowed.state == "success", allowed.error
    assert "Ada" in {row.get(NAME) for row in listed(task_runner.sandbox).values()} or kind == "sync"


@EACH
def test_run_that_catches_up_is_skipped(task_runner: TaskRunner, kind: str) -> None:
    facts = scheduled_at(ago(2), started=timezone.utcnow())
    skipped = run_of(task_runner, kind, facts, {**DAILY, "catchup": True}, max_lateness=None).run_try()
    assert (skipped.state, all_requests(task_runner)) == ("skipped", 0)


@EACH
def test_run_that_is_later_than_max_lateness_is_skipped(task_runner: TaskRunner, kind: str) -> None:
    late = {"run_after": ago(1.1)}
    skipped = run_of(task_runner, kind, late).run_try()
    assert (skipped.state, all_requests(task_runner)) == ("skipped", 0)
    assert "max_lateness" in skipped.log
    assert run_of(task_runner, kind, late, max_lateness=2 * DAY).run_try().state == "success"
    assert run_of(task_runner, kind, late, max_lateness=None).run_try().state == "success"


def test_dry_run_may_be_late(task_runner: TaskRunner) -> None:
    assert run_of(task_runner, "sync", {"run_after": ago(30)}, dry_run=True).run_try().state == "success"


@pytest.mark.parametrize(
    "given",
    [
        {"on_missing": {"Email": "gone@example.com"}},
        {"on_missing": "clear", "clear_columns": ["email"]},
        {"on_missing": {"Phone": None, "Email": None}, "columns": ["Phone"]},
    ],
)
def test_value_for_gone_rows_that_nothing_takes_back_is_refused_where_the_dag_is_parsed(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"on_missing writes into '[Ee]mail', which columns does not fill"), new_dag():
        SyncContactsOperator(task_id="sync", source=people(1), **{"key": "id", "columns": COLUMNS, **given})


@pytest.mark.parametrize(
    "given",
    [
        {"on_missing": {"phone": None}},
        {"on_missing": {"{{ params.column }}": None}},
        {"on_missing": {"Email": None}, "columns": None},
        {"on_missing": {"Email": "x"}, "columns": {**COLUMNS, "Email": {"constant": "y"}}},
    ],
)
def test_value_for_gone_rows_that_is_filled_or_not_known_yet_is_accepted(given: dict[str, Any]) -> None:
    with new_dag():
        SyncContactsOperator(task_id="sync", source=people(1), **{"key": "id", "columns": COLUMNS, **given})
