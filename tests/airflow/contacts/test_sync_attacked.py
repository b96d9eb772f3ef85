"""Contact syncs under attack, as real task instances with the real client against the sandbox."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from cpaas_provider.contacts.key_map.entries import RowState
from cpaas_provider.contacts.key_map.maps import find_map
from cpaas_provider.contacts.sync.planning import Planner
from cpaas_provider.database.database import open_database
from cpaas_provider.sources import SqlSource
from tests.airflow.contacts.test_row_by_key import upsert
from tests.airflow.contacts.test_sync import CREATE, DELETE, UPDATE, at_once, names, people, sync
from tests.airflow.harness.stage import ATTEMPTS, Stage, fault
from tests.unit.contacts.listed import POINTS, listed


def _in_doubt(stage: Stage, operation: str, then: str, **params: Any) -> None:
    """Have a request be carried out without a response, and its repetitions fail."""
    stage.sandbox.control(*fault(operation, "cut_after", times=1))
    stage.sandbox.control(*fault(operation, then, times=ATTEMPTS - 1, **params))


@pytest.mark.parametrize(
    ("then", "params"),
    [("reject", {"message": "No"}), ("rate_limit", {"retry_after": 0})],
    ids=["rejected", "not sent"],
)
def test_update_that_was_carried_out_and_failed_when_repeated_is_undone(
    stage: Stage, then: str, params: dict[str, Any]
) -> None:
    doubt = f"doubt {then}"
    sync(stage, people(1), doubt).once()
    _in_doubt(stage, UPDATE, then, **params)
    failed = sync(stage, people(1, points=500), doubt).once()
    assert failed.state != "success"
    assert names(stage)["Person 0"][POINTS] == 500
    stage.sandbox.control("DELETE", "faults", None)
    back = sync(stage, people(1), doubt).once()
    assert back.result["updated"] == 1, back.error
    assert names(stage)["Person 0"][POINTS] == 0


def test_single_update_that_was_carried_out_and_failed_when_repeated_is_undone(stage: Stage) -> None:
    sync(stage, people(1), "single").once()
    _in_doubt(stage, UPDATE, "reject", message="No")
    assert upsert(stage, "c-0", "single", columns={"Points": 500}).once().state == "up_for_retry"
    stage.sandbox.control("DELETE", "faults", None)
    assert names(stage)["Person 0"][POINTS] == 500
    sync(stage, people(1), "single").once()
    assert names(stage)["Person 0"][POINTS] == 0


def test_row_whose_deletion_failed_when_repeated_is_created_again(stage: Stage) -> None:
    sync(stage, people(2), "deletion").once()
    _in_doubt(stage, DELETE, "rate_limit", retry_after=0)
    sync(stage, people(1), "deletion", on_missing="delete").once()
    stage.sandbox.control("DELETE", "faults", None)
    assert len(listed(stage.sandbox)) == 1
    sync(stage, people(2), "deletion").once()
    assert set(names(stage)) == {"Person 0", "Person 1"}


def test_long_retry_after_defers_and_the_sync_goes_on_where_it_was(stage: Stage) -> None:
    at_once(stage)
    run = sync(stage, people(30), "pause")
    stage.sandbox.control(*fault(CREATE, "rate_limit", retry_after=3600, after=10, times=1))
    assert run.once().state == "deferred"
    created = len(listed(stage.sandbox))
    assert 0 < created < 30
    run.fires(early=True)
    ended = run.once()
    assert ended.result["created"] == 30 - created, ended.error
    assert len(names(stage)) == 30


def test_refused_key_amid_a_sync_marks_no_row_as_rejected(stage: Stage) -> None:
    stage.sandbox.control(*fault(CREATE, "unauthorized", after=5, times=8))
    failed = sync(stage, people(30), "key").once()
    assert failed.state == "failed"
    assert failed.report["rejected"] == 0
    stage.sandbox.control("DELETE", "faults", None)
    again = sync(stage, people(30), "key").once()
    assert again.result["rejected_before"] == again.result["unknown"] == 0
    assert len(names(stage)) == 30


def test_max_duration_ends_the_task_in_success(stage: Stage) -> None:
    at_once(stage)
    stage.sandbox.control(*fault(CREATE, "latency", ms=20))
    first = sync(stage, people(200), "short", max_duration=0.4).once()
    assert first.state == "success", first.error
    assert first.result["complete"] is False
    assert first.result["not_sent"] == 0
    stage.sandbox.control("DELETE", "faults", None)
    second = sync(stage, people(200), "short").once()
    assert second.result["created"] == first.result["remaining"]


def test_empty_source_deletes_nothing_although_max_deletes_is_none(stage: Stage) -> None:
    sync(stage, people(3), "empty").once()
    ended = sync(stage, [], "empty", on_missing="delete", max_deletes=None).once()
    assert ended.state == "failed"
    assert "The source has no rows" in ended.error
    assert len(listed(stage.sandbox)) == 3


def test_cursor_waits_for_a_creation_of_unknown_outcome(stage: Stage) -> None:
    rows = [{**row, "v": number} for number, row in enumerate(people(4))]
    stage.sandbox.control(*fault(CREATE, "cut_before", times=1))
    failed = sync(stage, rows, "cursor", cursor_column="v").once()
    assert failed.report["unknown"] == 1
    with open_database() as database:
        key_map = find_map(database, conn_id="cpaas_default", name="cursor")
        assert key_map.value("cursor") is None
        assert key_map.counts()[RowState.UNKNOWN] == 1
    again = sync(stage, rows, "cursor", cursor_column="v", on_unknown="create").once()
    assert again.result["created"] == 1, again.error
    assert len(names(stage)) == 4


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("2026-01-31T10:00:00Z", "2026-01-31T10:00:00.5Z"),
        ("2026-01-31T10:00:00", "2026-01-31 11:00:00"),
        # London, when summer time ends.
        ("2025-10-26T01:30:00+01:00", "2025-10-26T01:10:00+00:00"),
        ("2026-01-31T10:00:00+14:00", "2026-01-30T11:00:00-12:00"),
    ],
)
def test_query_with_a_cursor_of_text_passes_over_no_later_time(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str, second: str
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_CRM", json.dumps({"conn_type": "sqlite", "host": str(tmp_path / "crm.db")}))
    source = SqlSource("crm", "SELECT id, name, at FROM people WHERE at >= :cursor OR :cursor IS NULL")
    options: dict[str, Any] = {"columns": {"Name": "name"}, "cursor_column": "at"}
    with sqlite3.connect(tmp_path / "crm.db") as crm:
        crm.execute("CREATE TABLE people (id TEXT, name TEXT, at TEXT)")
        crm.execute("INSERT INTO people VALUES ('a', 'Ada', ?)", [first])
        crm.execute("INSERT INTO people VALUES ('o', 'Old', ?)", ["2020" + first[4:]])
    begun = sync(stage, source, f"text {first}", **options).once()
    assert begun.result["created"] == 2, begun.error
    with sqlite3.connect(tmp_path / "crm.db") as crm:
        crm.execute("INSERT INTO people VALUES ('b', 'Bo', ?)", [second])
    later = sync(stage, source, f"text {first}", **options).once()
    # The query still leaves out what is older by days.
    assert (later.result["created"], later.result["rows"]) == (1, 2), later.error


def test_two_first_syncs_at_the_same_time_do_not_double_the_list(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    read = Planner.read
    other: list[Any] = []

    def read_beside_another(planner: Planner, *given: Any, **options: Any) -> Any:
        if not other:
            other.append(None)
            other[0] = sync(stage, people(3), "second", new_map=False).once()
        return read(planner, *given, **options)

    monkeypatch.setattr(Planner, "read", read_beside_another)
    first = sync(stage, people(3), "first", new_map=False).once()
    assert first.result["created"] == 3, first.error
    assert other[0].state == "deferred"
    assert len(names(stage)) == 3
    after = sync(stage, people(3), "second", new_map=False).once()
    assert "The contact map 'second' of connection 'cpaas_default' has no rows." in after.error


def test_first_upsert_beside_the_first_sync_of_another_map_is_refused(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = Planner.read
    other: list[Any] = []

    def read_beside_an_upsert(planner: Planner, *given: Any, **options: Any) -> Any:
        other.append(upsert(stage, "c-0", "upserted", new_map=False).once())
        return read(planner, *given, **options)

    monkeypatch.setattr(Planner, "read", read_beside_an_upsert)
    assert sync(stage, people(3), "filled", new_map=False).once().result["created"] == 3
    assert "set new_map=True" in other[0].error
    assert len(names(stage)) == 3
