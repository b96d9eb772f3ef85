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
from tests.airflow.harness.task_runner import ATTEMPTS, TaskRunner, fault
from tests.unit.contacts.listed import POINTS, listed


def _lose_response(task_runner: TaskRunner, operation: str, then: str, **params: Any) -> None:
    """Have a request be carried out without a response, and its repetitions fail."""
    task_runner.sandbox.control(*fault(operation, "cut_after", times=1))
    task_runner.sandbox.control(*fault(operation, then, times=ATTEMPTS - 1, **params))


@pytest.mark.parametrize(
    ("then", "params"),
    [("reject", {"message": "No"}), ("rate_limit", {"retry_after": 0})],
    ids=["rejected", "not sent"],
)
def test_update_that_was_carried_out_and_failed_when_repeated_is_undone(
    task_runner: TaskRunner, then: str, params: dict[str, Any]
) -> None:
    doubt = f"doubt {then}"
    sync(task_runner, people(1), doubt).run_try()
    _lose_response(task_runner, UPDATE, then, **params)
    failed = sync(task_runner, people(1, points=500), doubt).run_try()
    assert failed.state != "success"
    assert names(task_runner)["Person 0"][POINTS] == 500
    task_runner.sandbox.control("DELETE", "faults", None)
    back = sync(task_runner, people(1), doubt).run_try()
    assert back.result["updated"] == 1, back.error
    assert names(task_runner)["Person 0"][POINTS] == 0


def test_single_update_that_was_carried_out_and_failed_when_repeated_is_undone(task_runner: TaskRunner) -> None:
    sync(task_runner, people(1), "single").run_try()
    _lose_response(task_runner, UPDATE, "reject", message="No")
    assert upsert(task_runner, "c-0", "single", columns={"Points": 500}).run_try().state == "up_for_retry"
    task_runner.sandbox.control("DELETE", "faults", None)
    assert names(task_runner)["Person 0"][POINTS] == 500
    sync(task_runner, people(1), "single").run_try()
    assert names(task_runner)["Person 0"][POINTS] == 0


def test_row_whose_deletion_failed_when_repeated_is_created_again(task_runner: TaskRunner) -> None:
    sync(task_runner, people(2), "deletion").run_try()
    _lose_response(task_runner, DELETE, "rate_limit", retry_after=0)
    sync(task_runner, people(1), "deletion", on_missing="delete").run_try()
    task_runner.sandbox.control("DELETE", "faults", None)
    assert len(listed(task_runner.sandbox)) == 1
    sync(task_runner, people(2), "deletion").run_try()
    assert set(names(task_runner)) == {"Person 0", "Person 1"}


def test_long_retry_after_defers_and_the_sync_goes_on_where_it_was(task_runner: TaskRunner) -> None:
    at_once(task_runner)
    run = sync(task_runner, people(30), "pause")
    task_runner.sandbox.control(*fault(CREATE, "rate_limit", retry_after=3600, after=10, times=1))
    assert run.run_try().state == "deferred"
    created = len(listed(task_runner.sandbox))
    assert 0 < created < 30
    run.fire_trigger(early=True)
    ended = run.run_try()
    assert ended.result["created"] == 30 - created, ended.error
    assert len(names(task_runner)) == 30


def test_refused_key_amid_a_sync_marks_no_row_as_rejected(task_runner: TaskRunner) -> None:
    task_runner.sandbox.control(*fault(CREATE, "unauthorized", after=5, times=8))
    failed = sync(task_runner, people(30), "key").run_try()
    assert failed.state == "failed"
    assert failed.report["rejected"] == 0
    task_runner.sandbox.control("DELETE", "faults", None)
    again = sync(task_runner, people(30), "key").run_try()
    assert again.result["rejected_before"] == again.result["unknown"] == 0
    assert len(names(task_runner)) == 30


def test_max_duration_ends_the_task_in_success(task_runner: TaskRunner) -> None:
    at_once(task_runner)
    task_runner.sandbox.control(*fault(CREATE, "latency", ms=20))
    first = sync(task_runner, people(200), "short", max_duration=0.4).run_try()
    assert first.state == "success", first.error
    assert first.result["complete"] is False
    assert first.result["not_sent"] == 0
    task_runner.sandbox.control("DELETE", "faults", None)
    second = sync(task_runner, people(200), "short").run_try()
    assert second.result["created"] == first.result["remaining"]


def test_empty_source_deletes_nothing_although_max_deletes_is_none(task_runner: TaskRunner) -> None:
    sync(task_runner, people(3), "empty").run_try()
    ended = sync(task_runner, [], "empty", on_missing="delete", max_deletes=None).run_try()
    assert ended.state == "failed"
    assert "The source has no rows" in ended.error
    assert len(listed(task_runner.sandbox)) == 3


def test_cursor_waits_for_a_creation_of_unknown_outcome(task_runner: TaskRunner) -> None:
    rows = [{**row, "v": number} for number, row in enumerate(people(4))]
    task_runner.sandbox.control(*fault(CREATE, "cut_before", times=1))
    failed = sync(task_runner, rows, "cursor", cursor_column="v").run_try()
    assert failed.report["unknown"] == 1
    with open_database() as database:
        key_map = find_map(database, conn_id="cpaas_default", name="cursor")
        assert key_map.value("cursor") is None
        assert key_map.counts()[RowState.UNKNOWN] == 1
    again = sync(task_runner, rows, "cursor", cursor_column="v", on_unknown="create").run_try()
    assert again.result["created"] == 1, again.error
    assert len(names(task_runner)) == 4


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
    task_runner: TaskRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str, second: str
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_CRM", json.dumps({"conn_type": "sqlite", "host": str(tmp_path / "crm.db")}))
    source = SqlSource("crm", "SELECT id, name, at FROM people WHERE at >= :cursor OR :cursor IS NULL")
    options: dict[str, Any] = {"columns": {"Name": "name"}, "cursor_column": "at"}
    with sqlite3.connect(tmp_path / "crm.db") as crm:
        crm.execute("CREATE TABLE people (id TEXT, name TEXT, at TEXT)")
        crm.execute("INSERT INTO people VALUES ('a', 'Ada', ?)", [first])
        crm.execute("INSERT INTO people VALUES ('o', 'Old', ?)", ["2020" + first[4:]])
    begun = sync(task_runner, source, f"text {first}", **options).run_try()
    assert begun.result["created"] == 2, begun.error
    with sqlite3.connect(tmp_path / "crm.db") as crm:
        crm.execute("INSERT INTO people VALUES ('b', 'Bo', ?)", [second])
    later = sync(task_runner, source, f"text {first}", **options).run_try()
    # The query still leaves out what is older by days.
    assert (later.result["created"], later.result["rows"]) == (1, 2), later.error


def test_rows_below_the_cursor_get_a_column_that_source_and_list_share_later(
    task_runner: TaskRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_CRM", json.dumps({"conn_type": "sqlite", "host": str(tmp_path / "crm.db")}))
    source = SqlSource("crm", "SELECT * FROM people WHERE version >= :cursor OR :cursor IS NULL")
    options: dict[str, Any] = {"columns": None, "cursor_column": "version"}
    with sqlite3.connect(tmp_path / "crm.db") as crm:
        crm.execute("CREATE TABLE people (id TEXT, name TEXT, version INTEGER)")
        crm.execute("INSERT INTO people VALUES ('a', 'Ada', 1), ('b', 'Bo', 2)")
    assert sync(task_runner, source, "grown", **options).run_try().result["created"] == 2
    with sqlite3.connect(tmp_path / "crm.db") as crm:
        crm.execute("ALTER TABLE people ADD COLUMN points INTEGER DEFAULT 7")
    run = sync(task_runner, source, "grown", **options)
    begun = run.run_try()
    assert "The sync fills 'Points' now" in begun.error
    assert begun.report["requests"] == 0
    later = run.run_try()
    assert (later.result["updated"], later.result["complete"]) == (2, True), later.error
    assert [row[POINTS] for row in names(task_runner).values()] == [7, 7]


def test_row_without_a_cursor_that_the_query_leaves_out_later_stays_counted(
    task_runner: TaskRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_CRM", json.dumps({"conn_type": "sqlite", "host": str(tmp_path / "crm.db")}))
    source = SqlSource("crm", "SELECT * FROM people WHERE version >= :cursor OR :cursor IS NULL")
    options: dict[str, Any] = {"columns": {"Name": "name"}, "max_failure_ratio": 1.0}
    with sqlite3.connect(tmp_path / "crm.db") as crm:
        crm.execute("CREATE TABLE people (id TEXT, name TEXT, version INTEGER)")
        crm.execute("INSERT INTO people VALUES ('a', 'Ada', 1), ('b', 'Bo', 2), ('c', 'Cy', NULL)")

    def causes(source: Any, **options: Any) -> Any:
        return sync(task_runner, source, "no cursor", **options).run_try().result["incomplete_because"]

    assert causes(source, **options, cursor_column="version") == {"invalid_rows": 1}
    for _ in range(2):
        assert causes(source, **options, cursor_column="version") == {"failed_before_cursor": 1}
    # A query that has such rows each time names them itself.
    always = SqlSource("crm", f"{source.sql} OR version IS NULL")
    assert causes(always, **options, cursor_column="version") == {"invalid_rows": 1}
    # A run without a cursor sends the row.
    everything = SqlSource("crm", "SELECT * FROM people")
    assert causes(everything, **options) == {}
    assert causes(source, **options, cursor_column="version") == {}


def test_two_first_syncs_at_the_same_time_do_not_double_the_list(
    task_runner: TaskRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = Planner.read
    other: list[Any] = []

    def read_beside_another(planner: Planner, *given: Any, **options: Any) -> Any:
        if not other:
            other.append(None)
            other[0] = sync(task_runner, people(3), "second", new_map=False).run_try()
        return read(planner, *given, **options)

    monkeypatch.setattr(Planner, "read", read_beside_another)
    first = sync(task_runner, people(3), "first", new_map=False).run_try()
    assert first.result["created"] == 3, first.error
    assert other[0].state == "deferred"
    assert len(names(task_runner)) == 3
    after = sync(task_runner, people(3), "second", new_map=False).run_try()
    assert "The contact map 'second' of connection 'cpaas_default' has no rows." in after.error


def test_first_upsert_beside_the_first_sync_of_another_map_is_refused(
    task_runner: TaskRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = Planner.read
    other: list[Any] = []

    def read_beside_an_upsert(planner: Planner, *given: Any, **options: Any) -> Any:
        other.append(upsert(task_runner, "c-0", "upserted", new_map=False).run_try())
        return read(planner, *given, **options)

    monkeypatch.setattr(Planner, "read", read_beside_an_upsert)
    assert sync(task_runner, people(3), "filled", new_map=False).run_try().result["created"] == 3
    assert "set new_map=True" in other[0].error
    assert len(names(task_runner)) == 3
