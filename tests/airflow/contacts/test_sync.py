"""``SyncContactsOperator`` as real task instances: what it sends, and what the sandbox has in its list afterwards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cpaas_provider.contacts.key_map.maps import find_map
from cpaas_provider.database.database import open_database
from cpaas_provider.hooks.cpaas import CpaasHook
from cpaas_provider.operators.base_campaign import partitions
from cpaas_provider.operators.contact_sync import SyncContactsOperator
from tests.airflow.harness.campaigns import all_requests, requests
from tests.airflow.harness.task_runner import TaskRunner, fault
from tests.airflow.harness.tries import Run, new_dag
from tests.unit.contacts.listed import NAME, PHONE, PLAN, POINTS, listed

COLUMNS = {"Name": "name", "Phone": "phone", "Plan": "plan", "Points": "points"}
CREATE, UPDATE, DELETE = "create_contact_row", "update_contact_row", "delete_contact_row"


def people(count: int, first: int = 0, **cells: Any) -> list[dict[str, Any]]:
    """Return as many rows, each with a key, a name and a number of its own."""
    return [
        {
            "id": f"c-{number}",
            "name": f"Person {number}",
            "phone": f"+2348031{number:06d}",
            "plan": "gold" if number % 2 else "basic",
            "points": number,
            **cells,
        }
        for number in range(first, first + count)
    ]


def sync(task_runner: TaskRunner, source: Any, map_name: str, /, **given: Any) -> Run:
    """Return a run of one sync."""
    with new_dag() as dag:
        SyncContactsOperator(
            task_id="sync",
            source=source,
            map_name=map_name,
            **{"key": "id", "columns": COLUMNS, "max_deletes": None, "max_new": None, "new_map": True, **given},
        )
    return Run(task_runner, dag)


def at_once(task_runner: TaskRunner, **extras: Any) -> None:
    """Have the connection make one request after the other, each once."""
    task_runner.connect("cpaas_default", **{"max_concurrency": 1, "max_retries": 0, **extras})


def names(task_runner: TaskRunner) -> dict[str, Any]:
    """Return the list's rows by name, each once."""
    rows = list(listed(task_runner.sandbox).values())
    assert len({row[NAME] for row in rows}) == len(rows)
    return {row[NAME]: row for row in rows}


def test_second_sync_sends_only_changed_cells(task_runner: TaskRunner) -> None:
    rows = people(30)
    first = sync(task_runner, rows, "second").run_try()
    assert first.state == "success", first.error
    assert first.result["created"] == 30
    assert names(task_runner)["Person 7"] == {NAME: "Person 7", PHONE: "2348031000007", PLAN: "gold", POINTS: 7}
    before = all_requests(task_runner)
    again = sync(task_runner, rows, "second").run_try()
    assert again.result["unchanged"] == 30
    assert again.result["requests"] == 0
    # The table is read once.
    assert all_requests(task_runner) - before == 1
    rows[3] = {**rows[3], "points": 99}
    rows[4] = {**rows[4], "plan": None}
    changed = sync(task_runner, [*rows[::-1], *people(2, 100)], "second").run_try()
    assert (changed.result["created"], changed.result["updated"]) == (2, 2)
    assert requests(task_runner, UPDATE) == 2
    assert names(task_runner)["Person 3"][POINTS] == 99
    assert names(task_runner)["Person 4"].get(PLAN) is None


def test_rows_gone_from_the_source_are_left_deleted_cleared_or_set(task_runner: TaskRunner) -> None:
    sync(task_runner, people(20), "gone").run_try()
    kept = sync(task_runner, people(19), "gone").run_try()
    assert len(listed(task_runner.sandbox)) == 20
    assert kept.result["missing"] == 0
    cleared = sync(task_runner, people(18), "gone", on_missing="clear", clear_columns=["Phone"]).run_try()
    assert cleared.result["updated"] == 2, cleared.error
    assert names(task_runner)["Person 19"].get(PHONE) is None
    assert (
        sync(task_runner, people(18), "gone", on_missing="clear", clear_columns=["Phone"]).run_try().result["requests"]
        == 0
    )
    sync(task_runner, people(18), "gone", on_missing={"Plan": "gone", "Phone": None}).run_try()
    assert names(task_runner)["Person 18"][PLAN] == "gone"
    back = sync(task_runner, people(19), "gone").run_try()
    assert back.result["updated"] == 1
    assert names(task_runner)["Person 18"][PLAN] == "basic"
    deleted = sync(task_runner, people(10), "gone", on_missing="delete").run_try()
    assert deleted.result["deleted"] == 10
    assert len(listed(task_runner.sandbox)) == 10
    assert sync(task_runner, people(20), "gone").run_try().result["created"] == 10


def test_too_many_deletes_stop_before_the_first_request(task_runner: TaskRunner) -> None:
    sync(task_runner, people(20), "limit").run_try()
    before = all_requests(task_runner)
    stopped = sync(task_runner, people(10), "limit", on_missing="delete", max_deletes=0.1).run_try()
    assert stopped.state == "failed"
    assert "would delete or clear 10 rows, and max_deletes allows 2 (10% of 20)" in stopped.error
    empty = sync(task_runner, [], "limit", on_missing="delete", max_deletes=0.5).run_try()
    assert empty.state == "failed"
    too_many = sync(task_runner, people(60), "limit", max_changes=20).run_try()
    assert "would change 40 rows" in too_many.error
    assert all_requests(task_runner) - before == 3
    assert len(listed(task_runner.sandbox)) == 20


def test_share_of_changes_does_not_limit_the_first_sync(task_runner: TaskRunner) -> None:
    first = sync(task_runner, people(20), "share", max_changes=0.1).run_try()
    assert first.result["created"] == 20, first.error
    second = sync(task_runner, people(23), "share", max_changes=0.1).run_try()
    assert "would change 3 rows, and max_changes allows 2 (10% of 20)" in second.error


def test_dry_run_sends_nothing_and_previews_masked_rows(task_runner: TaskRunner) -> None:
    before = all_requests(task_runner)
    ended = sync(task_runner, people(20), "dry", dry_run=True, preview_count=2).run_try()
    assert ended.result["planned_requests"] == 20
    assert "which takes at least" in ended.log
    assert all_requests(task_runner) - before == 1
    assert "2348031" not in ended.log
    assert listed(task_runner.sandbox) == {}


def test_dry_run_names_each_row_and_what_would_change_in_it(task_runner: TaskRunner, tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    rows = people(20)
    sync(task_runner, rows, "planned").run_try()
    ids = {row[NAME]: row_id for row_id, row in listed(task_runner.sandbox).items()}
    rows[3] = {**rows[3], "points": 4711}
    rows[4] = {**rows[4], "phone": "no number"}
    changed = [*rows[:19], *people(1, 50)]
    before = all_requests(task_runner)
    planned = {"on_missing": "delete", "max_deletes": 0, "results_path": str(path), "preview_count": 5}
    ended = sync(task_runner, changed, "planned", dry_run=True, **planned)
    dry = ended.run_try()
    assert dry.state == "success", dry.error
    assert [dry.result[name] for name in ("creates", "updates", "deletes")] == [1, 1, 1]
    assert all_requests(task_runner) - before == 1
    assert "Without dry_run, this sync would stop before its first request: This sync would delete" in dry.log
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(line["row"], line["key"], line["outcome"], line["columns"]) for line in lines] == [
        (4, "c-3", "to_update", "Points"),
        (5, "c-4", "invalid_row", None),
        (20, "c-50", "to_create", "Name, Phone, Plan, Points"),
        (None, None, "to_delete", None),
    ]
    preview = {row["action"]: row for row in ended.xcom("preview")}
    assert (preview["update"]["row"], preview["create"]["key"]) == (4, "c•••")
    assert preview["update"]["cells"] == {"Points": "•••"}
    assert preview["create"]["cells"]["Name"] == "P•••"
    assert (preview["delete"]["key"], preview["delete"]["row_id"]) == (None, ids["Person 19"])
    assert preview["delete"]["key_hash"] in lines[-1]["reason"]
    assert lines[-1]["row_id"] == ids["Person 19"]


def test_unknown_creation_is_named_and_never_created_twice(task_runner: TaskRunner, tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    run = sync(task_runner, people(6), "unknown", results_path=str(path))
    task_runner.sandbox.control(*fault(CREATE, "cut_after", times=1))
    ended = run.run_try()
    assert ended.state == "failed"
    assert "The outcome of 1 creation is unknown" in ended.error
    assert len(listed(task_runner.sandbox)) == 6
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert sorted(line["outcome"] for line in lines) == ["created"] * 5 + ["unknown"]
    (unknown,) = [line for line in lines if line["outcome"] == "unknown"]
    assert unknown["key"].startswith("c-")
    again = sync(task_runner, people(6), "unknown").run_try()
    assert again.state == "failed"
    assert again.report["unknown_rows"][0]["row"] == unknown["row"]
    assert sync(task_runner, people(6), "unknown", on_unknown="skip").run_try().result["unknown"] == 1
    assert len(listed(task_runner.sandbox)) == 6


def test_rejected_row_comes_again_only_when_it_changed(task_runner: TaskRunner) -> None:
    rows = people(5)
    task_runner.sandbox.control(*fault(CREATE, "reject", times=1, message="Plan is unknown"))
    first = sync(task_runner, rows, "rejected").run_try()
    assert first.state == "failed"
    assert first.report["rejected"] == 1
    before = requests(task_runner, CREATE)
    second = sync(task_runner, rows, "rejected", max_failure_ratio=0.5).run_try()
    assert second.result["rejected_before"] == 1
    assert requests(task_runner, CREATE) == before
    third = sync(task_runner, rows, "rejected", retry_rejected=True).run_try()
    assert third.result["created"] == 1, third.error


def test_partitions_sync_their_rows_and_another_count_is_right_too(task_runner: TaskRunner) -> None:
    with new_dag() as dag:
        SyncContactsOperator.partial(
            task_id="sync", source=people(40), map_name="parts", new_map=True, key="id", columns=COLUMNS
        ).expand(partition=partitions(4))
    run = Run(task_runner, dag)
    results = [run.run_try(map_index=part).result for part in range(4)]
    assert sum(result["created"] for result in results) == 40
    whole = sync(task_runner, people(40), "parts").run_try()
    assert whole.result["unchanged"] == 40


def test_row_deleted_behind_the_map_is_created_again_or_reported(task_runner: TaskRunner) -> None:
    sync(task_runner, people(4), "deleted").run_try()
    row_id = next(row_id for row_id, row in listed(task_runner.sandbox).items() if row[NAME] == "Person 2")
    with CpaasHook("cpaas_default").get_conn() as client:
        client.delete_contact_row(row_id)
    rows = people(4, points=1000)
    reported = sync(task_runner, rows, "deleted", on_deleted_row="report").run_try()
    assert reported.state == "failed"
    assert reported.report["rejected"] == 1
    again = sync(task_runner, rows, "deleted", retry_rejected=True).run_try()
    assert again.result["created"] == 1, again.error
    assert names(task_runner)["Person 2"][POINTS] == 1000


def test_invalid_rows_and_duplicate_keys_are_named_without_their_values(
    task_runner: TaskRunner, tmp_path: Path
) -> None:
    path = tmp_path / "results.jsonl"
    rows = people(4)
    rows[1]["phone"] = "not-a-number-4711"
    rows[2]["id"] = " "
    rows.append({**rows[0], "points": 77})
    ended = sync(task_runner, rows, "invalid", results_path=str(path), max_failure_ratio=0.9).run_try()
    assert ended.state == "success", ended.error
    lines = {line["row"]: line for line in map(json.loads, path.read_text().splitlines())}
    assert lines[2]["outcome"] == lines[3]["outcome"] == lines[5]["outcome"] == "invalid_row"
    assert lines[2]["reason"].startswith("Phone: ")
    assert "4711" not in path.read_text()
    assert "row 1" in lines[5]["reason"]
    assert ended.result["duplicates"] == 1
    assert len(listed(task_runner.sandbox)) == 2


def test_row_that_cannot_be_read_keeps_the_run_from_deleting_and_clearing(
    task_runner: TaskRunner, tmp_path: Path
) -> None:
    sync(task_runner, people(4), "unreadable").run_try()
    lines = [",".join(str(cell) for cell in row.values()) for row in people(2)]
    path = tmp_path / "export.csv"
    path.write_text("\n".join(["id,name,phone,plan,points", *lines, "c-3,Person 3,+2348031000003,gold,3,one,more"]))
    for on_missing in ({"on_missing": "delete"}, {"on_missing": "clear", "clear_columns": ["Phone"]}):
        done = sync(task_runner, str(path), "unreadable", max_failure_ratio=0.9, **on_missing).run_try()
        assert done.state == "success", done.error
        assert done.result["incomplete_because"] == {"invalid_rows": 1, "missing_skipped": 2}
        assert done.result["requests"] == 0
    assert [names(task_runner)[f"Person {number}"].get(PHONE) for number in range(4)] == [
        f"234803100000{number}" for number in range(4)
    ]


def test_max_duration_ends_the_task_in_success_and_the_next_run_continues(task_runner: TaskRunner) -> None:
    at_once(task_runner)
    task_runner.sandbox.control(*fault(CREATE, "latency", ms=50))
    first = sync(task_runner, people(20), "short", max_duration=0.2).run_try()
    assert first.state == "success", first.error
    # On a slow machine the time is over before the first row.
    assert first.result["remaining"] > 0
    assert first.result["created"] == 20 - first.result["remaining"]
    task_runner.sandbox.control("DELETE", "faults", None)
    second = sync(task_runner, people(20), "short").run_try()
    assert (second.state, second.result["created"]) == ("success", first.result["remaining"])
    assert len(names(task_runner)) == 20


def test_second_sync_of_one_list_waits_for_the_first(task_runner: TaskRunner) -> None:
    sync(task_runner, people(2), "leased").run_try()
    with open_database() as database:
        lease = find_map(database, conn_id="cpaas_default", name="leased").lease("another task")
        failed = sync(task_runner, people(3), "leased", on_concurrent_sync="fail").run_try()
        assert "another task syncs this contact list now" in failed.error
        run = sync(task_runner, people(3), "leased")
        waiting = run.run_try()
        assert waiting.state == "deferred"
        lease.release()
    run.fire_trigger(early=True)
    assert run.run_try().result["created"] == 1


def test_change_is_published_as_an_asset_event(task_runner: TaskRunner) -> None:
    from airflow.models.asset import AssetEvent, AssetModel
    from airflow.utils.session import create_session
    from sqlalchemy import func, select

    from cpaas_provider.assets import contacts_changed

    def events() -> int:
        query = select(func.count(AssetEvent.id)).join(AssetModel, AssetModel.id == AssetEvent.asset_id)
        with create_session() as session:
            return session.scalar(query.where(AssetModel.uri == contacts_changed("cpaas_default").uri)) or 0

    before = events()
    sync(task_runner, people(2), "event").run_try()
    assert events() == before + 1
    sync(task_runner, people(2), "event").run_try()
    assert events() == before + 1


def test_column_that_no_row_has_is_refused_before_the_first_request(task_runner: TaskRunner) -> None:
    rows = [{name: cell for name, cell in row.items() if name != "plan"} for row in people(5)]
    before = all_requests(task_runner)
    ended = sync(task_runner, rows, "absent").run_try()
    assert ended.state == "failed"
    assert "No row of the source has 'plan', which the mapping reads. Nothing was sent" in ended.error
    assert all_requests(task_runner) - before == 1
    with_none = [*rows, {**rows[0], "id": "c-9", "name": "Person 9", "plan": None}]
    assert sync(task_runner, with_none, "absent").run_try().result["created"] == 6


def test_lines_of_delimiters_do_not_switch_deletions_off(task_runner: TaskRunner, tmp_path: Path) -> None:
    sync(task_runner, people(20), "export").run_try()
    lines = [",".join(str(cell) for cell in row.values()) for row in people(19)]
    path = tmp_path / "a.csv"
    path.write_text("\r\n".join([" ID,Name,PHONE,plan,points", *lines, *[",,,,"] * 16]) + "\r\n")
    done = sync(task_runner, str(path), "export", on_missing="delete").run_try()
    assert (done.state, done.result["deleted"], done.result["invalid_rows"]) == ("success", 1, 0)
    assert done.result["complete"]
    assert len(listed(task_runner.sandbox)) == 19


def test_source_whose_rows_are_all_without_content_deletes_nothing(task_runner: TaskRunner) -> None:
    sync(task_runner, people(3), "broken").run_try()
    blank = [dict.fromkeys(row) for row in people(3)]
    done = sync(task_runner, blank, "broken", on_missing="delete").run_try()
    assert (done.state, len(listed(task_runner.sandbox))) == ("failed", 3)
    assert "The source has no rows" in done.error


def test_columns_of_the_source_are_found_without_a_mapping(task_runner: TaskRunner, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(",id,NAME, phone ,note,note\n0,c-1,Ada,+2348031234567,x,y\n")
    done = sync(task_runner, str(path), "named", columns=None).run_try()
    assert done.result["created"] == 1, done.error
    assert names(task_runner)["Ada"][PHONE] == "2348031234567"
