"""The connection's ``row_updates`` as real task instances see it, on a service that clears omitted cells."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from cpaas_provider.operators.contact_sync import SyncContactsOperator
from cpaas_provider.operators.contacts import UpsertContactRowOperator
from tests.airflow.harness.task_runner import TaskRunner
from tests.airflow.harness.tries import Run, Try, new_dag
from tests.row_service import Column, RowService, Switches

CELLS = {"Key": "k1", "Name": "Ada", "Plan": "basic"}


@pytest.fixture
def service() -> Iterator[RowService]:
    """A service that clears the cells that an update does not send."""
    columns = [Column("c_key", "Key"), Column("c_name", "Name"), Column("c_plan", "Plan")]
    with RowService(columns, Switches(patch_omitted="clear")) as running:
        yield running


def connect(task_runner: TaskRunner, service: RowService, **extras: Any) -> None:
    task_runner.connect("cpaas_default", host=service.url, password=service.api_key, allow_http=True, **extras)


def sync(task_runner: TaskRunner, map_name: str, plan: str) -> Try:
    with new_dag() as dag:
        SyncContactsOperator(
            task_id="sync",
            source=[{"Key": "k1", "Name": "Ada", "Plan": plan}],
            key="Key",
            columns=["Key", "Name", "Plan"],
            map_name=map_name,
        )
    return Run(task_runner, dag).run_try()


def upsert(task_runner: TaskRunner, map_name: str, columns: dict[str, str]) -> Try:
    with new_dag() as dag:
        UpsertContactRowOperator(task_id="upsert", key="k1", map_name=map_name, columns=columns)
    return Run(task_runner, dag).run_try()


def listed(service: RowService) -> list[dict[str, Any]]:
    with service.locked() as table:
        return [dict(row.columns) for row in table.rows.values()]


def test_sync_fails_for_good_at_the_first_update_and_repairs_with_whole(
    task_runner: TaskRunner, service: RowService
) -> None:
    connect(task_runner, service)
    assert sync(task_runner, "updates", "basic").state == "success"
    failed = sync(task_runner, "updates", "gold")
    assert failed.state == "failed"
    assert "row_updates" in failed.error
    connect(task_runner, service, row_updates="whole")
    repaired = sync(task_runner, "updates", "gold")
    assert repaired.state == "success", repaired.error
    assert listed(service) == [{"c_key": "k1", "c_name": "Ada", "c_plan": "gold"}]


def test_upsert_by_key_fails_for_good_and_repairs_with_whole(task_runner: TaskRunner, service: RowService) -> None:
    connect(task_runner, service)
    assert upsert(task_runner, "upserts", CELLS).state == "success"
    failed = upsert(task_runner, "upserts", {**CELLS, "Plan": "gold"})
    assert failed.state == "failed"
    assert "row_updates" in failed.error
    connect(task_runner, service, row_updates="whole")
    repaired = upsert(task_runner, "upserts", {**CELLS, "Plan": "gold"})
    assert repaired.state == "success", repaired.error
    assert listed(service) == [{"c_key": "k1", "c_name": "Ada", "c_plan": "gold"}]
