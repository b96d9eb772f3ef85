"""Operators of one row whose id the list no longer has, in whatever words the service says it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from cpaas_provider.operators.contact_sync import SyncContactsOperator
from cpaas_provider.operators.contacts import DeleteContactRowOperator, UpsertContactRowOperator
from tests.airflow.contacts.test_row_updates import connect, listed, sync
from tests.airflow.harness.task_runner import TaskRunner
from tests.airflow.harness.tries import Run, Try, new_dag
from tests.row_service import Column, RowService, ScriptedFaults
from tests.tiers import few

# A rejection that names the row or a cell is final. Any other may be that of a gateway, and a retry does no harm.
NOT_DONE = ("failed", "up_for_retry")
FORMS = ("200_bare", "200_missing", "400_bare", "400_items", "404_empty", "410_bare")


@pytest.fixture
def service(task_runner: TaskRunner) -> Iterator[RowService]:
    columns = [Column("c_key", "Key"), Column("c_name", "Name"), Column("c_plan", "Plan")]
    with RowService(columns) as running:
        connect(task_runner, running)
        yield running


def upsert(task_runner: TaskRunner, row_id: str, **given: Any) -> Try:
    with new_dag() as dag:
        UpsertContactRowOperator(task_id="upsert", row_id=row_id, **{"columns": {"Name": "Bola"}, **given})
    return Run(task_runner, dag).run_try()


def delete(task_runner: TaskRunner, row_id: str, **given: Any) -> Try:
    with new_dag() as dag:
        DeleteContactRowOperator(task_id="delete", row_id=row_id, **given)
    return Run(task_runner, dag).run_try()


@pytest.mark.parametrize("form", few(FORMS, ("200_bare", "400_items", "404_empty")))
def test_upsert_by_id_creates_a_gone_row_however_the_service_says_it(
    task_runner: TaskRunner, service: RowService, form: str
) -> None:
    sync(task_runner, f"gone {form}", "basic")
    service.switch(patch_gone=form, get_gone=form)
    done = upsert(task_runner, "row-that-is-gone")
    assert done.state == "success", done.error
    assert done.result["created"] is True
    assert len(listed(service)) == 2
    failed = upsert(task_runner, "row-that-is-gone", create_if_missing=False)
    assert failed.state in NOT_DONE
    assert len(listed(service)) == 2


@pytest.mark.parametrize("form", few(FORMS[1:], ("200_missing", "400_bare")))
def test_deletion_of_a_gone_row_is_skipped_however_the_service_says_it(
    task_runner: TaskRunner, service: RowService, form: str
) -> None:
    sync(task_runner, f"skipped {form}", "basic")
    service.switch(delete_gone=form, get_gone=form)
    assert delete(task_runner, "row-that-is-gone", skip_if_missing=True).state == "skipped"
    assert delete(task_runner, "row-that-is-gone").state in NOT_DONE
    assert len(listed(service)) == 1


def test_upsert_by_id_whose_cells_are_rejected_creates_no_second_row(
    task_runner: TaskRunner, service: RowService
) -> None:
    sync(task_runner, "rejected cells", "basic")
    service.refused_values = ["bad"]
    service.switch(invalid_errors="bare")
    (row_id,) = service.table.rows
    failed = upsert(task_runner, row_id, columns={"Name": "bad"})
    assert (failed.state, len(listed(service))) == ("up_for_retry", 1)


def test_update_that_a_gateway_answers_404_creates_no_second_row(task_runner: TaskRunner, service: RowService) -> None:
    sync(task_runner, "gateway update", "basic")
    (row_id,) = service.table.rows
    service.faults = ScriptedFaults([("PATCH", "404_before")])
    failed = upsert(task_runner, row_id)
    assert (failed.state, len(listed(service))) == ("up_for_retry", 1)


@pytest.mark.parametrize("faults", [["404_before"], ["500_before", "404_before"]])
def test_deletion_that_a_gateway_answers_404_is_neither_done_nor_skipped(
    task_runner: TaskRunner, service: RowService, faults: list[str]
) -> None:
    sync(task_runner, f"gateway {len(faults)}", "basic")
    (row_id,) = service.table.rows
    service.faults = ScriptedFaults([("DELETE", fault) for fault in faults])
    failed = delete(task_runner, row_id, skip_if_missing=True)
    assert (failed.state, len(listed(service))) == ("up_for_retry", 1)


def test_retried_deletion_of_a_row_that_the_first_attempt_deleted_is_done(
    task_runner: TaskRunner, service: RowService
) -> None:
    sync(task_runner, "deleted at first", "basic")
    (row_id,) = service.table.rows
    service.faults = ScriptedFaults([("DELETE", "500_after")])
    done = delete(task_runner, row_id)
    assert done.state == "success", done.error
    assert done.result == {"row_id": row_id, "deleted": True}


@pytest.mark.parametrize("form", ["404_items", "400_missing"])
@pytest.mark.parametrize("fault", ["500_before", "cut_within"])
def test_upsert_whose_gone_row_cannot_be_read_is_left_to_its_retry(
    task_runner: TaskRunner, service: RowService, form: str, fault: str
) -> None:
    map_name = f"unread {form} {fault}"
    with new_dag() as dag:
        SyncContactsOperator(
            task_id="sync",
            source=[{"Key": key, "Name": "Ada", "Plan": "basic"} for key in ("k1", "k2", "k3")],
            key="Key",
            columns=["Key", "Name", "Plan"],
            map_name=map_name,
        )
    Run(task_runner, dag).run_try()
    service.switch(patch_gone=form)
    keys = {row.columns["c_key"]: row.id for row in service.table.rows.values()}
    service.table.delete(keys["k1"], by="other")
    service.table.delete(keys["k2"], by="other")
    given = {"map_name": map_name, "columns": {"Key": "k1", "Name": "Bola"}, "retries": 2}
    for named in ({"key": "k1"}, {"row_id": keys["k2"]}):
        with new_dag() as dag:
            UpsertContactRowOperator(task_id="upsert", **given, **named)
        run = Run(task_runner, dag)
        rows = len(service.table.rows)
        service.faults = _UnreadableRows(fault)
        failed = run.run_try()
        assert (failed.state, len(service.table.rows)) == ("up_for_retry", rows)
        service.faults = ScriptedFaults(())
        assert run.run_try().result["created"] is True


class _UnreadableRows:
    """A gateway before a service: each reading of a row fails, and no other request."""

    def __init__(self, fault: str) -> None:
        self._fault = fault

    def draw(self, method: str, path: str, body: bytes) -> str | None:
        return self._fault if method == "GET" and "/row/" in path else None
