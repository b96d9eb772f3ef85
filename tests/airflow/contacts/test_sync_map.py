"""The commands on key maps beside real syncs: nothing is created twice, whatever was imported, mended or resolved."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from airflow.models.variable import Variable
from airflow.utils.session import create_session
from sqlalchemy import delete

from cpaas_provider.api.client import CpaasClient
from cpaas_provider.contacts.key_map.key_map import IMPORTING
from cpaas_provider.contacts.key_map.maps import find_map
from cpaas_provider.database.database import open_database
from tests.airflow.contacts.test_sync import CREATE, at_once, names, people, sync
from tests.airflow.harness.command_line import CommandLine
from tests.airflow.harness.task_runner import TaskRunner, fault
from tests.unit.contacts.listed import NAME, PHONE, PLAN, POINTS, listed


@pytest.fixture
def cpaas(
    task_runner: TaskRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> CommandLine:
    """Run ``airflow cpaas ...``, with a database that tasks and commands share."""
    monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", f"sqlite:///{tmp_path}/cpaas.db")
    return CommandLine(monkeypatch, capsys, "cpaas")


@pytest.fixture
def client(task_runner: TaskRunner) -> CpaasClient:
    return CpaasClient(task_runner.sandbox.url, task_runner.sandbox.api_key, allow_http=True)


def test_adopted_rows_get_all_cells_once_and_none_is_created_twice(
    cpaas: CommandLine, client: CpaasClient, task_runner: TaskRunner, tmp_path: Path
) -> None:
    rows = people(6)
    ids = {row["id"]: client.create_contact_row({NAME: row["name"]}).row.id for row in rows[:5]}
    path = tmp_path / "list.csv"
    path.write_text("id,row_id\n" + "".join(f"{key},{row_id}\n" for key, row_id in ids.items()))
    said = cpaas("contacts", "import-map", str(path), "--key", "id")
    assert said.status == 0, said.err
    first = sync(task_runner, rows, "default").run_try()
    assert (first.result["created"], first.result["updated"]) == (1, 5), first.error
    assert names(task_runner)["Person 3"] == {NAME: "Person 3", PHONE: "2348031000003", PLAN: "gold", POINTS: 3}
    assert sync(task_runner, rows, "default").run_try().result["requests"] == 0
    assert cpaas("contacts", "verify", "--all").status == 0


def test_row_of_another_map_is_refused_or_taken_but_never_deleted_by_both(
    cpaas: CommandLine, task_runner: TaskRunner, tmp_path: Path
) -> None:
    rows = people(3)
    assert sync(task_runner, rows, "crm").run_try().result["created"] == 3
    by_name = {cells[NAME]: row_id for row_id, cells in listed(task_runner.sandbox).items()}
    path = tmp_path / "list.csv"
    path.write_text(f"id,row_id\nc-2,{by_name['Person 2']}\n")
    arguments = ("contacts", "import-map", str(path), "--key", "id")
    refused = cpaas(*arguments)
    assert (refused.status, "The contact map 'crm' of connection" in refused.err) == (1, True), refused.err
    taken = cpaas(*arguments, "--replace")
    assert taken.status == 0, taken.err
    assert "1 entry of other keys or maps removed" in taken.out
    # The source of this map no longer has the row, and neither has that of the other one.
    assert sync(task_runner, rows[:2], "crm", on_missing="delete").run_try().result["deleted"] == 0
    assert sync(task_runner, people(1, 9), "default", on_missing="delete").run_try().result["deleted"] == 1
    assert sorted(names(task_runner)) == ["Person 0", "Person 1", "Person 9"]


def test_adopted_row_below_the_cursor_gets_all_cells(
    cpaas: CommandLine, client: CpaasClient, task_runner: TaskRunner, tmp_path: Path
) -> None:
    rows = [{**row, "version": number} for number, row in enumerate(people(3))]
    for count in (3, 0):
        ended = sync(task_runner, rows, "default", cursor_column="version").run_try()
        assert ended.result["created"] == count, ended.error
    by_name = {cells[NAME]: row_id for row_id, cells in listed(task_runner.sandbox).items()}
    client.delete_contact_row(by_name["Person 0"])
    path = tmp_path / "list.csv"
    path.write_text(f"id,row_id\nc-0,{client.create_contact_row({NAME: 'Made by another client'}).row.id}\n")
    said = cpaas("contacts", "import-map", str(path), "--key", "id", "--replace")
    assert said.status == 0, said.err
    adopted = sync(task_runner, rows, "default", cursor_column="version").run_try()
    assert (adopted.result["updated"], adopted.result["complete"]) == (1, True), adopted.error
    assert sorted(names(task_runner)) == ["Person 0", "Person 1", "Person 2"]


def test_map_that_was_moved_sends_nothing_again(
    cpaas: CommandLine, task_runner: TaskRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = people(5)
    assert sync(task_runner, rows, "default").run_try().result["created"] == 5
    assert cpaas("contacts", "export-map", str(tmp_path / "map.csv")).status == 0
    monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", f"sqlite:///{tmp_path}/other.db")
    assert cpaas("contacts", "import-map", str(tmp_path / "map.csv")).status == 0
    # Airflow has recorded which database the map was in, so that a worker with another one is noticed.
    refused = sync(task_runner, rows, "default").run_try()
    assert refused.state == "failed"
    (variable,) = re.findall(r"airflow variables delete (\S+)", refused.error)
    with create_session() as session:
        session.execute(delete(Variable).where(Variable.key == variable))
    rows[0]["points"] = 99
    again = sync(task_runner, rows, "default").run_try()
    assert again.state == "success", again.error
    assert (again.result["requests"], again.result["updated"]) == (1, 1)
    assert len(names(task_runner)) == 5


def test_next_sync_repairs_what_verify_has_mended(
    cpaas: CommandLine, client: CpaasClient, task_runner: TaskRunner
) -> None:
    rows = people(5)
    sync(task_runner, rows, "default").run_try()
    by_name = {cells[NAME]: row_id for row_id, cells in listed(task_runner.sandbox).items()}
    client.update_contact_row(by_name["Person 1"], {POINTS: 77})
    client.delete_contact_row(by_name["Person 2"])
    assert sync(task_runner, rows, "default").run_try().result["requests"] == 0
    said = cpaas("contacts", "verify", "--all", "--mend", "--output", "json")
    assert said.status == 0, said.err
    assert [one["rows"] for one in said.lines if one["column"] == "Points"] == [1]
    mended = sync(task_runner, rows, "default").run_try()
    assert (mended.result["created"], mended.result["updated"]) == (1, 1), mended.error
    assert names(task_runner)["Person 1"][POINTS] == 1
    assert len(names(task_runner)) == 5
    assert cpaas("contacts", "verify", "--all").status == 0


def test_unknown_creation_that_is_resolved_is_not_created_again(cpaas: CommandLine, task_runner: TaskRunner) -> None:
    at_once(task_runner)
    task_runner.sandbox.control(*fault(CREATE, "cut_after", times=1))
    rows = people(3)
    assert sync(task_runner, rows, "default").run_try().state == "failed"
    (line,) = cpaas("contacts", "status", "--output", "json").lines
    assert line["counts"]["unknown_creations"] == 1
    number = line["unknown"][0]["source_row"]
    row_id = next(row_id for row_id, cells in listed(task_runner.sandbox).items() if cells[NAME] == "Person 0")
    said = cpaas("contacts", "resolve", "--row-number", str(number), "--created", row_id, "--yes")
    assert said.status == 0, said.err
    resolved = sync(task_runner, rows, "default").run_try()
    assert (resolved.state, resolved.result["created"]) == ("success", 0), resolved.error
    assert len(names(task_runner)) == 3


def test_map_that_is_partly_imported_keeps_syncs_from_the_list(cpaas: CommandLine, task_runner: TaskRunner) -> None:
    sync(task_runner, people(2), "default").run_try()
    with open_database() as database:
        lease = find_map(database, conn_id="cpaas_default").lease("an import")
        lease.write([], {IMPORTING: {"rows": 3}})
        lease.release()
    refused = sync(task_runner, people(4), "default").run_try()
    assert refused.state == "failed"
    assert "holds a part of an import" in refused.error
    assert len(listed(task_runner.sandbox)) == 2


def test_erased_recipient_has_no_entry(cpaas: CommandLine, task_runner: TaskRunner) -> None:
    sync(task_runner, people(3), "default").run_try()
    said = cpaas("db", "erase", "+2348031000001", "--yes")
    assert said.status == 0, said.err
    assert "Removed 1 entry from 1 contact map." in said.out
    (line,) = cpaas("contacts", "status", "--output", "json").lines
    assert line["counts"]["synced"] == 2
