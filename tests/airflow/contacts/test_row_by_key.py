"""``UpsertContactRowOperator(key=...)`` as real task instances: it shares the key map with the sync."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.sdk import task

from cpaas_provider.contacts.key_map.erasure import erase_entries
from cpaas_provider.contacts.key_map.key_map import KeyMap
from cpaas_provider.contacts.key_map.maps import open_map
from cpaas_provider.database.database import Database, open_database
from cpaas_provider.operators.contacts import (
    DeleteContactRowOperator,
    GetContactRowOperator,
    UpdateContactRowOperator,
    UpsertContactRowOperator,
)
from tests.airflow.contacts.test_sync import CREATE, UPDATE, names, people, sync
from tests.airflow.harness.campaigns import requests
from tests.airflow.harness.running import run
from tests.airflow.harness.task_runner import TaskRunner, fault
from tests.airflow.harness.tries import Run, new_dag
from tests.unit.contacts.listed import NAME, PLAN, POINTS, listed


def upsert(task_runner: TaskRunner, key: Any, map_name: str, /, **given: Any) -> Run:
    """Return a run of one upsert."""
    with new_dag() as dag:
        UpsertContactRowOperator(
            task_id="upsert",
            key=key,
            map_name=map_name,
            **{"columns": {"Name": "Ada", "Plan": "gold", "Points": 1}, "new_map": True, **given},
        )
    return Run(task_runner, dag)


def test_second_upsert_sends_only_changed_cells(task_runner: TaskRunner) -> None:
    first = upsert(task_runner, "c-1", "row").run_try()
    assert first.result["created"] is True, first.error
    again = upsert(task_runner, "c-1", "row").run_try()
    assert again.result == {**first.result, "created": False}
    assert requests(task_runner, UPDATE) == 0
    changed = upsert(task_runner, "c-1", "row", columns={"Name": "Ada", "Plan": "basic"}).run_try()
    assert changed.result["row_id"] == first.result["row_id"]
    (row,) = listed(task_runner.sandbox).values()
    assert row == {NAME: "Ada", PLAN: "basic", POINTS: 1}
    assert requests(task_runner, CREATE) == 1


def test_upsert_and_sync_agree_on_the_row(task_runner: TaskRunner) -> None:
    sync(task_runner, people(3), "both").run_try()
    updated = upsert(task_runner, "c-1", "both", columns={"Points": 500}).run_try()
    assert updated.result["created"] is False, updated.error
    assert names(task_runner)["Person 1"][POINTS] == 500
    created = upsert(task_runner, "c-3", "both", columns={"Name": "Person 3", "Points": 3}).run_try()
    assert created.result["created"] is True
    nightly = sync(task_runner, people(4), "both").run_try()
    # The source decides: the cell of the upsert is changed back, and the new row is not created again.
    assert (nightly.result["created"], nightly.result["updated"]) == (0, 2)
    assert names(task_runner)["Person 1"][POINTS] == 1
    assert len(listed(task_runner.sandbox)) == 4


@pytest.mark.parametrize("on_unknown", ["fail", "skip"])
def test_unknown_creation_is_not_repeated(task_runner: TaskRunner, on_unknown: str) -> None:
    map_name = f"unknown_{on_unknown}"
    task_runner.sandbox.control(*fault(CREATE, "cut_after", times=1))
    ended = upsert(task_runner, "c-1", map_name, on_unknown=on_unknown).run_try()
    assert ended.state == ("failed" if on_unknown == "fail" else "success")
    later = upsert(task_runner, "c-1", map_name, on_unknown=on_unknown).run_try()
    assert len(listed(task_runner.sandbox)) == 1
    if on_unknown == "fail":
        assert f"contacts resolve --conn-id cpaas_default --map {map_name}" in later.error
        resent = upsert(task_runner, "c-1", map_name, on_unknown="resend").run_try()
        assert resent.result["created"] is True
    else:
        assert later.result == {"row_id": None, "created": False, "unknown_recipients": 1, "unknown_references": []}


def test_killed_try_leaves_the_creation_unknown_for_its_retry(task_runner: TaskRunner) -> None:
    run = upsert(task_runner, "c-1", "killed")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("cpaas_provider.tasks.contacts.row.StoppableRequests.run", _killed)
        assert run.run_try().state == "up_for_retry"
    ended = run.run_try()
    assert ended.state == "failed"
    assert "outcome of this row's creation is unknown" in ended.error


def _killed(*_: Any) -> Any:
    raise RuntimeError("as after a kill: nothing of ours runs any more")


def test_row_that_is_not_there_fails_without_create_if_missing(task_runner: TaskRunner) -> None:
    ended = upsert(task_runner, "c-9", "missing", create_if_missing=False).run_try()
    assert ended.state == "failed"
    assert "create_if_missing is False" in ended.error
    assert listed(task_runner.sandbox) == {}


@pytest.mark.parametrize("key", ["", None, "  ", ["a", ""], True, ["a", "b"]])
def test_key_that_cannot_be_used_is_refused(task_runner: TaskRunner, key: Any) -> None:
    sync(task_runner, people(1), "keys").run_try()
    given = {"key": key} if key is not None else {"key": "{{ none }}"}
    with new_dag(render_template_as_native_obj=True) as dag:
        UpsertContactRowOperator(task_id="upsert", map_name="keys", columns={"Name": "Ada"}, **given)
    ended = Run(task_runner, dag).run_try()
    assert ended.state == "failed"
    assert "Nothing was sent" in ended.error


def test_row_id_and_key_exclude_each_other() -> None:
    with pytest.raises(ValueError, match="row_id and key exclude each other"), new_dag():
        UpsertContactRowOperator(task_id="upsert", row_id="row", key="c-1", columns={"Name": "Ada"})


def test_first_row_of_a_new_map_beside_one_with_rows_needs_new_map(task_runner: TaskRunner) -> None:
    assert upsert(task_runner, "c-1", "crm").run_try().result["created"] is True
    refused = upsert(task_runner, "c-1", "cmr", new_map=False).run_try()
    assert "The contact map 'cmr' of connection 'cpaas_default' has no rows." in str(refused.error)
    assert "new_map=True" in str(refused.error)
    assert requests(task_runner, CREATE) == 1
    assert upsert(task_runner, "c-2", "cmr", new_map=True).run_try().result["created"] is True
    assert upsert(task_runner, "c-3", "cmr", new_map=False).run_try().result["created"] is True


@pytest.mark.usefixtures("own_database")
def test_upsert_that_begins_with_a_first_sync_of_another_map_creates_no_row(
    task_runner: TaskRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    def open_map_beside_a_sync(database: Database, **contact_list: Any) -> KeyMap:
        open_map(database, **{**contact_list, "name": "first sync"}).lease("a first sync")
        return open_map(database, **contact_list)

    monkeypatch.setattr("cpaas_provider.tasks.contacts.row.open_map", open_map_beside_a_sync)
    ended = upsert(task_runner, "c-1", "upserts", new_map=False).run_try()
    assert "a first sync uses the contact map 'first sync'" in str(ended.error)
    assert requests(task_runner, CREATE) == 0


def test_row_of_an_upsert_is_erased_by_its_number(task_runner: TaskRunner) -> None:
    upsert(task_runner, "c-1", "erased", columns={"Name": "Ada", "Phone": "+2348035550999"}).run_try()
    with open_database() as database:
        assert erase_entries(database, "+2348035550999", None, []).removed == 1


@pytest.mark.parametrize(
    ("operator", "given"),
    [
        (UpsertContactRowOperator, {"key": "{{ none }}", "columns": {"Name": "Ada"}}),
        (UpsertContactRowOperator, {"key": ["{{ none }}", "NG"], "columns": {"Name": "Ada"}}),
        (UpdateContactRowOperator, {"row_id": "{{ none }}", "columns": {"Name": "Ada"}}),
        (DeleteContactRowOperator, {"row_id": "{{ none }}"}),
        (GetContactRowOperator, {"row_id": "{{ none }}"}),
    ],
)
def test_template_without_a_value_names_no_row(task_runner: TaskRunner, operator: Any, given: dict[str, Any]) -> None:
    extra = {"map_name": "no value", "new_map": True} if operator is UpsertContactRowOperator else {}
    with new_dag() as dag:
        operator(task_id="row", **given, **extra)
    ended = Run(task_runner, dag).run_try()
    assert ended.state == "failed"
    assert "is the word 'None'" in str(ended.error)
    assert "Nothing was sent" in str(ended.error)
    assert [requests(task_runner, name) for name in (CREATE, UPDATE, "get_contact_row", "delete_contact_row")] == [
        0
    ] * 4


@pytest.mark.parametrize("native", [False, True])
def test_mapped_task_whose_key_is_none_creates_no_row(task_runner: TaskRunner, native: bool) -> None:
    with new_dag(render_template_as_native_obj=native) as dag:

        @task
        def contacts() -> list[dict[str, Any]]:
            return [{"key": None, "columns": {"Points": 1}}, {"key": "c-1", "columns": {"Points": 2}}]

        UpsertContactRowOperator.partial(
            task_id="upsert", map_name=f"mapped keys {native}", new_map=True
        ).expand_kwargs(contacts())
    finished = run(dag)
    assert [finished.state("upsert", index) for index in range(2)] == ["failed", "success"]
    assert [row[POINTS] for row in listed(task_runner.sandbox).values()] == [2]
