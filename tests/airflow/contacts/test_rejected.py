"""Rejected rows last: columns, reason and times are stored, shown, retried on request, and removed with their row."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from cpaas_provider.contacts.key_map.entries import RowState
from cpaas_provider.contacts.sync.rows.requests import RowRequests
from cpaas_provider.database.database import open_database
from cpaas_provider.database.schema.contacts import contact_rows
from cpaas_provider.hooks.cpaas import CpaasHook
from tests.airflow.contacts.test_sync import CREATE, UPDATE, at_once, names, people, sync
from tests.airflow.contacts.test_sync_map import cpaas as cpaas
from tests.airflow.harness.campaigns import requests
from tests.airflow.harness.command_line import CommandLine
from tests.airflow.harness.task_runner import TaskRunner, fault
from tests.system.leaks import Scan, Secrets
from tests.unit.contacts.listed import NAME, POINTS, listed

REASON = f"columns.{POINTS}: is not allowed for +2348031000001"


def rejected(cpaas: CommandLine) -> list[dict[str, Any]]:
    """Return the rejected rows that ``status`` shows."""
    (line,) = cpaas("contacts", "status", "--output", "json").lines
    assert line["rejected_rows"] == len(line["rejected"])
    return list(line["rejected"])


def reject_second(task_runner: TaskRunner, rows: Any, operation: str = CREATE, **given: Any) -> Any:
    """Run a sync in which the service rejects the second row."""
    at_once(task_runner)
    task_runner.sandbox.control(*fault(operation, "reject", after=1, times=1, message=REASON))
    return sync(task_runner, rows, "default", max_failure_ratio=0.5, **given).run_try()


@pytest.mark.parametrize("operation", [CREATE, UPDATE])
def test_rejected_row_is_stored_with_column_and_reason_and_shown(
    cpaas: CommandLine, task_runner: TaskRunner, tmp_path: Path, operation: str
) -> None:
    path = tmp_path / "results.jsonl"
    rows = people(4)
    if operation == UPDATE:
        sync(task_runner, rows, "default").run_try()
        rows = people(4, points=500, plan="silver")
    first = reject_second(task_runner, rows, operation)
    assert first.result["rejected"] == 1, first.error
    (row,) = rejected(cpaas)
    assert (row["source_row"], row["columns"], row["times"], row["retry"]) == (2, "Points", 1, False)
    assert "is not allowed" in row["reason"]
    assert "2348031" not in row["reason"]
    assert row["first"] == row["last"]
    again = sync(task_runner, rows, "default", max_failure_ratio=0.5, results_path=str(path)).run_try()
    assert again.result["rejected_before"] == 1
    (line,) = [json.loads(line) for line in path.read_text().splitlines()]
    assert (line["row"], line["outcome"], line["columns"]) == (2, "rejected", "Points")
    assert line["reason"].startswith("not changed since it was rejected (1 time, first 20")
    assert "is not allowed" in line["reason"]


def test_row_that_is_rejected_again_counts_and_keeps_its_first_time(
    cpaas: CommandLine, task_runner: TaskRunner
) -> None:
    reject_second(task_runner, people(3))
    (before,) = rejected(cpaas)
    task_runner.sandbox.control(*fault(CREATE, "reject", times=1, message="Still no"))
    sync(task_runner, people(3), "default", retry_rejected=True, max_failure_ratio=0.5).run_try()
    (row,) = rejected(cpaas)
    assert (row["times"], row["first"]) == (2, before["first"])
    assert "Still no" in row["reason"]
    # The error names no column, so those that were sent are shown.
    assert row["columns"] == "Name, Phone, Plan, Points"


@pytest.mark.parametrize("arguments", [("--key", "c-1"), ("--row-number", "2"), ("--all",)])
def test_single_row_is_sent_again_on_request_and_no_longer_listed(
    cpaas: CommandLine, task_runner: TaskRunner, arguments: tuple[str, ...]
) -> None:
    reject_second(task_runner, people(3))
    before = requests(task_runner, CREATE)
    said = cpaas("contacts", "retry-row", *arguments)
    assert (said.status, said.out) == (0, "The next sync sends 1 rejected row again.\n"), said.err
    assert requests(task_runner, CREATE) == before
    assert [row["retry"] for row in rejected(cpaas)] == [True]
    assert sync(task_runner, people(3), "default").run_try().result["created"] == 1
    assert rejected(cpaas) == []
    assert sync(task_runner, people(3), "default").run_try().result["requests"] == 0


def test_retried_row_that_is_rejected_counts_once_more_and_is_not_sent_again(
    cpaas: CommandLine, task_runner: TaskRunner
) -> None:
    reject_second(task_runner, people(3))
    cpaas("contacts", "retry-row", "--key", "c-1")
    task_runner.sandbox.control(*fault(CREATE, "reject", times=1, message="No"))
    sync(task_runner, people(3), "default", max_failure_ratio=0.5).run_try()
    assert [(row["times"], row["retry"]) for row in rejected(cpaas)] == [(2, False)]
    assert sync(task_runner, people(3), "default", max_failure_ratio=0.5).run_try().result["requests"] == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "Give one of --key, --row-number and --all."),
        (("--key", "c-0"), "The service did not reject the row of this key."),
        (("--key", "other"), "The contact map has no entry for this key."),
        (("--row-number", "9"), "No rejected rows have the row number 9."),
    ],
)
def test_retry_of_a_row_that_is_not_rejected_is_refused(
    cpaas: CommandLine, task_runner: TaskRunner, arguments: tuple[str, ...], words: str
) -> None:
    reject_second(task_runner, people(3))
    said = cpaas("contacts", "retry-row", *arguments)
    assert (said.status, words in said.err, "Nothing was changed." in said.err) == (1, True, True), said.err


def test_changed_row_that_is_accepted_is_no_longer_listed(cpaas: CommandLine, task_runner: TaskRunner) -> None:
    sync(task_runner, people(3), "default").run_try()
    reject_second(task_runner, people(3, points=500), UPDATE)
    assert len(rejected(cpaas)) == 1
    sync(task_runner, people(3, points=501), "default").run_try()
    assert rejected(cpaas) == []
    assert names(task_runner)["Person 1"][POINTS] == 501


def test_deleted_row_that_is_reported_is_listed(cpaas: CommandLine, task_runner: TaskRunner) -> None:
    sync(task_runner, people(2), "default").run_try()
    row_id = next(row_id for row_id, row in listed(task_runner.sandbox).items() if row[NAME] == "Person 1")
    with CpaasHook("cpaas_default").get_conn() as client:
        client.delete_contact_row(row_id)
    sync(task_runner, people(2, points=9), "default", on_deleted_row="report").run_try()
    (row,) = rejected(cpaas)
    assert (row["source_row"], row["reason"]) == (2, "the list no longer has this row")


def _erase(cpaas: CommandLine) -> None:
    assert "Removed 1 entry from 1 contact map." in cpaas("db", "erase", "+2348031000001", "--yes").out


def _forget(cpaas: CommandLine) -> None:
    assert cpaas("contacts", "forget-map", "--yes").status == 0


@pytest.mark.parametrize("remove", [_erase, _forget])
def test_rejection_is_removed_with_its_row_or_map(
    cpaas: CommandLine, task_runner: TaskRunner, remove: Callable[[CommandLine], None]
) -> None:
    reject_second(task_runner, people(3))
    assert len(rejected(cpaas)) == 1
    remove(cpaas)
    with open_database() as database, database.connect() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM cpaas_contact_rejections").scalar_one() == 0


def test_status_names_what_to_do_about_rejected_rows(cpaas: CommandLine, task_runner: TaskRunner) -> None:
    reject_second(task_runner, people(3))
    said = cpaas("contacts", "status")
    assert "Rejected rows of contact map 'default' of connection 'cpaas_default':" in said.out
    assert "airflow cpaas contacts retry-row" in said.out


def test_rejections_are_exported_and_imported_with_the_map(
    cpaas: CommandLine, task_runner: TaskRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reject_second(task_runner, people(3))
    before = rejected(cpaas)
    assert cpaas("contacts", "export-map", str(tmp_path / "map.csv")).status == 0
    monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", f"sqlite:///{tmp_path}/other.db")
    said = cpaas("contacts", "import-map", str(tmp_path / "map.csv"))
    assert said.status == 0, said.err
    assert rejected(cpaas) == before


@pytest.mark.parametrize("operation", [CREATE, UPDATE])
def test_key_and_cells_that_the_service_quotes_are_not_stored(
    cpaas: CommandLine, task_runner: TaskRunner, operation: str
) -> None:
    at_once(task_runner)
    rows = [{**row, "id": f"crm-{row['name'][-1]}-lovelace", "name": f"Ada {row['name']}"} for row in people(3)]
    if operation == UPDATE:
        sync(task_runner, rows, "default").run_try()
        # The update sends the points alone, and the service knows the name.
        rows = [{**row, "points": 500} for row in rows]
    task_runner.sandbox.control(
        *fault(operation, "reject", after=1, times=1, message="No such points: Ada Person 1, CRM-1-Lovelace")
    )
    done = sync(task_runner, rows, "default", max_failure_ratio=0.5).run_try()
    assert done.result["rejected"] == 1, done.error
    (row,) = rejected(cpaas)
    assert "No such points: ***, ***" in row["reason"]
    assert "lovelace" not in (row["reason"] + done.log).lower()


def test_no_column_of_the_database_holds_a_key_or_a_cell(own_database: None, task_runner: TaskRunner) -> None:
    at_once(task_runner)
    keys = ["+2348036600001", "ngozi.okonkwo@private.example.org", "Okonkwo-Eze, Ngozi", "2348036600004"]
    rows = [
        {"id": key, "name": f"Ngozi Okonkwo {number}", "phone": f"+23480355{number:05d}", "points": 7_310_000 + number}
        for number, key in enumerate(keys)
    ]
    quoted = " ".join(map(str, rows[1].values()))
    task_runner.sandbox.control(*fault(CREATE, "reject", after=1, times=1, message=f"columns.{POINTS}: not {quoted}"))
    task_runner.sandbox.control(*fault(CREATE, "cut_after", after=1, times=1))
    columns = {"Name": "name", "Phone": "phone", "Points": "points"}
    done = sync(task_runner, rows, "private", columns=columns, max_failure_ratio=0.5).run_try()
    private = Secrets(
        numbers={"2348036600001", "2348036600004", *(row["phone"][1:] for row in rows)},
        addresses={"ngozi.okonkwo@private.example.org"},
        codes={str(row["points"]) for row in rows},
        texts={"Okonkwo"},
    )
    scan = Scan(private)
    with open_database() as database, database.connect() as connection:
        states = connection.execute(select(contact_rows.c.state)).scalars().all()
        leaks = list(scan.provider_database(connection))
    expected = [RowState.SYNCED, RowState.SYNCED, RowState.UNKNOWN, RowState.REJECTED]
    assert sorted(states) == sorted(expected), done.error
    assert leaks == []
    assert list(scan.text("here", quoted)) != []


@pytest.mark.parametrize("key", ["+2348036600001", "+2348036600009"], ids=["rejected", "without an entry"])
@pytest.mark.parametrize("command", [("retry-row",), ("resolve", "--not-created")], ids=lambda command: command[0])
def test_key_that_is_an_argument_is_in_no_output(
    cpaas: CommandLine, task_runner: TaskRunner, command: tuple[str, ...], key: str
) -> None:
    reject_second(task_runner, [{**row, "id": f"+234803660000{number}"} for number, row in enumerate(people(3))])
    result = cpaas("contacts", command[0], "--key", key, *command[1:], "--verbose")
    assert (result.status == 2, "Traceback" in result.err) == (False, False)
    scan = Scan(Secrets(numbers={key[1:]}))
    assert [leak for text in (result.out, result.err) for leak in scan.text("here", text)] == []


@pytest.mark.parametrize("number", ["-1", "0", "9" * 30, "1.0"])
def test_number_that_no_row_has_is_refused(cpaas: CommandLine, task_runner: TaskRunner, number: str) -> None:
    reject_second(task_runner, people(3))
    for said in (
        cpaas("contacts", "retry-row", "--row-number", number),
        cpaas("contacts", "resolve", "--row-number", number, "--not-created"),
    ):
        assert said.status == 2
        assert "must be a whole number from 1 to 1,000,000,000" in said.err


@pytest.mark.parametrize("arguments", [("--key", "c-1"), ("--all",)])
def test_retry_of_a_row_whose_request_is_in_flight_changes_nothing(
    cpaas: CommandLine, task_runner: TaskRunner, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    reject_second(task_runner, people(3))
    send = RowRequests.send
    said: list[Any] = []

    async def send_beside_the_command(requests: RowRequests, pending: Any) -> Any:
        said.append(cpaas("contacts", "retry-row", *arguments))
        return await send(requests, pending)

    monkeypatch.setattr(RowRequests, "send", send_beside_the_command)
    done = sync(task_runner, people(3), "default", retry_rejected=True).run_try()
    assert (done.result["created"], done.result["complete"]) == (1, True), done.error
    assert said[0].status == 1
    assert "A task works on 1 other row now." in said[0].err
    again = sync(task_runner, people(3), "default").run_try()
    assert (again.state, again.result["unchanged"]) == ("success", 3), again.error
    assert len(names(task_runner)) == 3
