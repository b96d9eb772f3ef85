"""``UpsertContactRowOperator(key=...)`` as real task instances: it shares the key map with the sync."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.sdk import task

from cpaas_provider.operators.contacts import (
    DeleteContactRowOperator,
    GetContactRowOperator,
    UpdateContactRowOperator,
    UpsertContactRowOperator,
)
from tests.airflow.contacts.test_sync import CREATE, UPDATE, names, people, sync
from tests.airflow.harness.campaigns import requests
from tests.airflow.harness.running import run
from tests.airflow.harness.stage import Stage, fault
from tests.airflow.harness.tries import Run, new_dag
from tests.unit.contacts.listed import NAME, PLAN, POINTS, listed


def upsert(stage: Stage, key: Any, map_name: str, /, **given: Any) -> Run:
    """Return a run of one upsert."""
    with new_dag() as dag:
        UpsertContactRowOperator(
            task_id="upsert",
            key=key,
            map_name=map_name,
            **{"columns": {"Name": "Ada", "Plan": "gold", "Points": 1}, "new_map": True, **given},
        )
    return Run(stage, dag)


def test_second_upsert_sends_only_changed_cells(stage: Stage) -> None:
    first = upsert(stage, "c-1", "row").once()
    assert first.result["created"] is True, first.error
    again = upsert(stage, "c-1", "row").once()
    assert again.result == {**first.result, "created": False}
    assert requests(stage, UPDATE) == 0
    changed = upsert(stage, "c-1", "row", columns={"Name": "Ada", "Plan": "basic"}).once()
    assert changed.result["row_id"] == first.result["row_id"]
    (row,) = listed(stage.sandbox).values()
    assert row == {NAME: "Ada", PLAN: "basic", POINTS: 1}
    assert requests(stage, CREATE) == 1


def test_upsert_and_sync_agree_on_the_row(stage: Stage) -> None:
    sync(stage, people(3), "both").once()
    updated = upsert(stage, "c-1", "both", columns={"Points": 500}).once()
    assert updated.result["created"] is False, updated.error
    assert names(stage)["Person 1"][POINTS] == 500
    created = upsert(stage, "c-3", "both", columns={"Name": "Person 3", "Points": 3}).once()
    assert created.result["created"] is True
    nightly = sync(stage, people(4), "both").once()
    # The source decides: the cell of the upsert is changed back, and the new row is not created again.
    assert (nightly.result["created"], nightly.result["updated"]) == (0, 2)
    assert names(stage)["Person 1"][POINTS] == 1
    assert len(listed(stage.sandbox)) == 4


@pytest.mark.parametrize("on_unknown", ["fail", "skip"])
def test_unknown_creation_is_not_repeated(stage: Stage, on_unknown: str) -> None:
    map_name = f"unknown_{on_unknown}"
    stage.sandbox.control(*fault(CREATE, "cut_after", times=1))
    ended = upsert(stage, "c-1", map_name, on_unknown=on_unknown).once()
    assert ended.state == ("failed" if on_unknown == "fail" else "success")
    later = upsert(stage, "c-1", map_name, on_unknown=on_unknown).once()
    assert len(listed(stage.sandbox)) == 1
    if on_unknown == "fail":
        assert f"contacts resolve --conn-id cpaas_default --map {map_name}" in later.error
        resent = upsert(stage, "c-1", map_name, on_unknown="resend").once()
        assert resent.result["created"] is True
    else:
        assert later.result == {"row_id": None, "created": False, "unknown_recipients": 1, "unknown_references": []}


def test_killed_try_leaves_the_creation_unknown_for_its_retry(stage: Stage) -> None:
    run = upsert(stage, "c-1", "killed")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("cpaas_provider.operators._runtime.contacts.row.StoppableRequests.run", _killed)
        assert run.once().state == "up_for_retry"
    ended = run.once()
    assert ended.state == "failed"
    assert "outcome of this row's creation is unknown" in ended.error


def _killed(*_: Any) -> Any:
    raise RuntimeError("as after a kill: nothing of ours runs any more")


def test_row_that_is_not_there_fails_without_create_if_missing(stage: Stage) -> None:
    ended = upsert(stage, "c-9", "missing", create_if_missing=False).once()
    assert ended.state == "failed"
    assert "create_if_missing is False" in ended.error
    assert listed(stage.sandbox) == {}


@pytest.mark.parametrize("key", ["", None, "  ", ["a", ""], True, ["a", "b"]])
def test_key_that_cannot_be_used_is_refused(stage: Stage, key: Any) -> None:
    sync(stage, people(1), "keys").once()
    given = {"key": key} if key is not None else {"key": "{{ none }}"}
    with new_dag(render_template_as_native_obj=True) as dag:
        UpsertContactRowOperator(task_id="upsert", map_name="keys", columns={"Name": "Ada"}, **given)
    ended = Run(stage, dag).once()
    assert ended.state == "failed"
    assert "Nothing was sent" in ended.error


def test_row_id_and_key_exclude_each_other() -> None:
    with pytest.raises(ValueError, match="row_id and key exclude each other"), new_dag():
        UpsertContactRowOperator(task_id="upsert", row_id="row", key="c-1", columns={"Name": "Ada"})


def test_first_row_of_a_new_map_beside_one_with_rows_needs_new_map(stage: Stage) -> None:
    assert upsert(stage, "c-1", "crm").once().result["created"] is True
    refused = upsert(stage, "c-1", "cmr", new_map=False).once()
    assert "The contact map 'cmr' of connection 'cpaas_default' has no rows." in str(refused.error)
    assert "new_map=True" in str(refused.error)
    assert requests(stage, CREATE) == 1
    assert upsert(stage, "c-2", "cmr", new_map=True).once().result["created"] is True
    assert upsert(stage, "c-3", "cmr", new_map=False).once().result["created"] is True


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
def test_template_without_a_value_names_no_row(stage: Stage, operator: Any, given: dict[str, Any]) -> None:
    extra = {"map_name": "no value", "new_map": True} if operator is UpsertContactRowOperator else {}
    with new_dag() as dag:
        operator(task_id="row", **given, **extra)
    ended = Run(stage, dag).once()
    assert ended.state == "failed"
    assert "is the word 'None'" in str(ended.error)
    assert "Nothing was sent" in str(ended.error)
    assert [requests(stage, name) for name in (CREATE, UPDATE, "get_contact_row", "delete_contact_row")] == [0] * 4


@pytest.mark.parametrize("native", [False, True])
def test_mapped_task_whose_key_is_none_creates_no_row(stage: Stage, native: bool) -> None:
    with new_dag(render_template_as_native_obj=native) as dag:

        @task
        def contacts() -> list[dict[str, Any]]:
            return [{"key": None, "columns": {"Points": 1}}, {"key": "c-1", "columns": {"Points": 2}}]

        UpsertContactRowOperator.partial(
            task_id="upsert", map_name=f"mapped keys {native}", new_map=True
        ).expand_kwargs(contacts())
    finished = run(dag)
    assert [finished.state("upsert", index) for index in range(2)] == ["failed", "success"]
    assert [row[POINTS] for row in listed(stage.sandbox).values()] == [2]
