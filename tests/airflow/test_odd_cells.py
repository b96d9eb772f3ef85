"""Every interface reads the same odd cells as the same recipients and refuses the others with the same reasons."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from cpaas_provider.database.bulk import batched
from cpaas_provider.hooks.suppressions import add_suppressions, find_suppressions
from cpaas_provider.notifications import EmailNotifier, SmsNotifier
from cpaas_provider.operators.email import SendEmailOperator
from cpaas_provider.operators.lookup import BulkPhoneLookupOperator
from cpaas_provider.operators.sms import SendSmsOperator
from tests.airflow.contacts.test_sync import sync
from tests.airflow.harness.campaigns import all_requests, count_messages, email, read_results, sms
from tests.airflow.harness.command_line import CommandLine
from tests.airflow.harness.task_runner import TaskRunner
from tests.airflow.harness.tries import Run, new_dag
from tests.airflow.notifications.callers import context
from tests.odd_cells import ADDRESSES, NUMBERS, Cell, cells_of
from tests.unit.contacts.listed import EMAIL, NAME, PHONE, listed

pytestmark = pytest.mark.usefixtures("own_database")

NAMED = 10
"""The most recipients that an error of a list names."""
NAMED_ROWS = 5
"""The most rows that an error of a suppression list names."""

CAMPAIGNS: dict[str, Callable[..., Run]] = {"sms": sms, "email": email}
SENDS = {"sms": SendSmsOperator, "email": SendEmailOperator}
NOTIFIERS = {"sms": SmsNotifier, "email": EmailNotifier}
CELLS = {"sms": NUMBERS, "email": ADDRESSES}
UNUSED = {"sms": "2348039999999", "email": "nobody@example.com"}

BOXES = pytest.mark.parametrize("box", ["sms", "email"])


def readable(cells: Sequence[Cell]) -> list[Cell]:
    return [cell for cell in cells if cell.recipient is not None]


def refused(cells: Sequence[Cell]) -> list[Cell]:
    return [cell for cell in cells if cell.recipient is None]


def as_rows(cells: Sequence[Cell]) -> list[dict[str, Any]]:
    """Return rows with a cell in the columns of numbers and of addresses."""
    return [{"phone": cell.value, "email": cell.value, "id": number} for number, cell in enumerate(cells, 1)]


def differences(cells: Sequence[Cell], readings: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Return the cells that a face reads unlike the table: what the table has, and what the face has."""
    return {
        ascii(cell.value): (cell.reading, reading)
        for cell, reading in zip(cells, readings, strict=True)
        if not (reading == cell.recipient if cell.recipient is not None else reading.startswith(cell.reason))
    }


def reasons_in(text: str, place: str, first: int = 1) -> list[str]:
    """Return the reasons of an error, which follow a place such as ``recipient 1``, in the order of the places."""
    found = re.findall(rf"{place} (\d+):? (.*?)(?=; {place} \d|\. Nothing was|\)|\.$)", text, re.MULTILINE)
    assert [int(number) for number, _ in found] == list(range(first, first + len(found))), text
    return [reason for _, reason in found]


def sent(task_runner: TaskRunner, box: str) -> list[str]:
    """Return the recipients of all messages, oldest first."""
    return [item["recipient"] for item in reversed(task_runner.sandbox.inbox(box, limit=1000)["items"])]


def readings_of_file(path: Path, column: str) -> list[str]:
    """Return the recipient or the reason of each row of a results file."""
    by_row = {line["row"]: line for line in read_results(path)}
    return [
        (line[column] or line["reason"] or "").removeprefix("+").removeprefix("phone ").removeprefix("email ")
        for _, line in sorted(by_row.items())
    ]


@BOXES
def test_campaign(task_runner: TaskRunner, tmp_path: Path, box: str) -> None:
    cells = cells_of("campaign", CELLS[box])
    path = tmp_path / "results.jsonl"
    done = CAMPAIGNS[box](
        task_runner, as_rows(cells), content="{id}", results_path=str(path), max_failure_ratio=1, **subject(box)
    ).run_try()
    assert done.state == "success", done.error
    assert differences(cells, readings_of_file(path, "recipient")) == {}
    texts = {item["text"]: item["recipient"] for item in task_runner.sandbox.inbox(box, limit=1000)["items"]}
    arrived = [texts.get(str(number), cell.reason) for number, cell in enumerate(cells, 1)]
    assert differences(cells, arrived) == {}
    assert len(sent(task_runner, box)) == len(readable(cells))


@BOXES
def test_single_send(task_runner: TaskRunner, box: str) -> None:
    cells = cells_of("send", CELLS[box])
    assert send(task_runner, box, readable(cells)).run_try().state == "success"
    assert differences(readable(cells), sent(task_runner, box)) == {}
    before = all_requests(task_runner)
    for some in batched(refused(cells), NAMED):
        failed = send(task_runner, box, some).run_try()
        assert failed.state == "failed"
        assert differences(some, reasons_in(failed.error, "recipient")) == {}
    assert all_requests(task_runner) == before


@BOXES
def test_suppression_list_of_a_campaign(task_runner: TaskRunner, tmp_path: Path, box: str) -> None:
    cells = cells_of("suppression_list", CELLS[box])
    recipients = [*(str(cell.recipient) for cell in readable(cells)), UNUSED[box]]
    source = [{"phone": f"+{recipient}", "email": recipient} for recipient in recipients]
    path = tmp_path / "results.jsonl"

    def run(suppressed: Sequence[Cell], **more: Any) -> Run:
        campaign = CAMPAIGNS[box]
        return campaign(task_runner, source, content="Hi", suppression_list=as_rows(suppressed), **subject(box), **more)

    for some in batched(refused(cells), NAMED_ROWS):
        failed = run(some).run_try()
        assert failed.state == "failed"
        readings = [reason.split(" ", 1)[1] for reason in reasons_in(failed.error, "row")]
        assert differences(some, readings) == {}
    assert all_requests(task_runner) == 0
    done = run(readable(cells), results_path=str(path)).run_try()
    assert done.state == "success", done.error
    outcomes = {line["recipient"].removeprefix("+"): line["outcome"] for line in read_results(path)}
    assert outcomes == dict.fromkeys(recipients, "suppressed") | {UNUSED[box]: "sent"}
    assert set(count_messages(task_runner, box)) == {UNUSED[box]}


@BOXES
def test_stored_suppression_list(box: str) -> None:
    cells = cells_of("stored_list", CELLS[box])
    add_suppressions([cell.value for cell in readable(cells)], region="NG")
    assert differences(readable(cells), stored(readable(cells), box)) == {}
    for some in batched(refused(cells), NAMED):
        with pytest.raises(ValueError, match="Nothing was changed") as error:
            add_suppressions([cell.value for cell in some], region="NG")
        assert differences(some, reasons_in(str(error.value), "recipient")) == {}


@BOXES
def test_imported_suppression_list(
    box: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cells = cells_of("import", CELLS[box], text_only=True)
    command = CommandLine(monkeypatch, capsys, "cpaas", "suppressions")
    file = tmp_path / "opted_out.csv"

    def import_file(some: Sequence[Cell]) -> Any:
        with file.open("w", newline="", encoding="utf-8") as opened:
            csv.writer(opened).writerows([("recipient", "id"), *((cell.value, "x") for cell in some)])
        return command("import", str(file), "--region", "NG")

    assert import_file(readable(cells)).status == 0
    assert differences(readable(cells), stored(readable(cells), box)) == {}
    for some in batched(refused(cells), NAMED_ROWS):
        failed = import_file(some)
        assert failed.status == 1
        # The header is row 1 of the file.
        assert differences(some, reasons_in(failed.err, "row", first=2)) == {}


def test_bulk_lookup(task_runner: TaskRunner, tmp_path: Path) -> None:
    cells = cells_of("lookup", NUMBERS)
    path = tmp_path / "results.jsonl"
    with new_dag() as dag:
        BulkPhoneLookupOperator(
            task_id="look_up", source=as_rows(cells), results_path=str(path), max_failure_ratio=1, phone_column="phone"
        )
    done = Run(task_runner, dag).run_try()
    assert done.state == "success", done.error
    assert differences(cells, readings_of_file(path, "phone")) == {}
    assert done.result["invalid_rows"] == len(refused(cells))


@BOXES
def test_contact_sync(task_runner: TaskRunner, tmp_path: Path, box: str) -> None:
    column, header = {"sms": (PHONE, "Phone"), "email": (EMAIL, "Email")}[box]
    cells = cells_of("sync", CELLS[box])
    path = tmp_path / "results.jsonl"
    rows = [{**row, "name": f"cell {row['id']}"} for row in as_rows(cells)]
    columns = {"Name": "name", header: header.lower()}
    run = sync(task_runner, rows, f"odd {box}", columns=columns, results_path=str(path), max_failure_ratio=1)
    done = run.run_try()
    assert done.state == "success", done.error
    stored_cells = {row[NAME]: row.get(column) or "" for row in listed(task_runner.sandbox).values()}
    reasons = {f"cell {line['row']}": (line["reason"] or "").removeprefix(f"{header}: ") for line in read_results(path)}
    readings = [stored_cells.get(row["name"], reasons.get(row["name"], "")) for row in rows]
    assert differences(cells, readings) == {}


@BOXES
def test_notifier(task_runner: TaskRunner, box: str) -> None:
    cells = cells_of("notifier", CELLS[box])
    recipients = [cell.value for cell in readable(cells)]
    NOTIFIERS[box](recipients=recipients, content="late", window=0)(context(1))
    assert differences(readable(cells), sent(task_runner, box)) == {}
    for some in batched(refused(cells), NAMED):
        begin = len(task_runner.all_logs)
        with task_runner.record_logs():
            NOTIFIERS[box](recipients=[cell.value for cell in some], content="late", window=0)(context(1))
        log = "\n".join(task_runner.all_logs[begin:])
        [line] = [line for line in log.splitlines() if "left out as invalid" in line]
        assert differences(some, reasons_in(line, "recipient")) == {}
    assert len(sent(task_runner, box)) == len(readable(cells))


@BOXES
def test_command(
    task_runner: TaskRunner,
    box: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    cells = cells_of("command", CELLS[box], text_only=True)
    command = CommandLine(monkeypatch, capsys, "cpaas", f"send-{box}")
    file = tmp_path / "recipients.txt"

    def run(some: Sequence[Cell]) -> Any:
        file.write_text("\n".join(cell.value for cell in some), encoding="utf-8")
        options = ["--subject", "Hi"] if box == "email" else []
        return command("--recipients-file", str(file), "--content", "Hi", *options)

    assert run(readable(cells)).status == 0
    assert differences(readable(cells), sent(task_runner, box)) == {}
    for some in batched(refused(cells), NAMED):
        failed = run(some)
        assert failed.status == 1
        assert differences(some, reasons_in(failed.err, "recipient")) == {}
    assert len(sent(task_runner, box)) == len(readable(cells))


def subject(box: str) -> dict[str, str]:
    return {"subject": "Hi"} if box == "email" else {}


def send(task_runner: TaskRunner, box: str, cells: Sequence[Cell]) -> Run:
    with new_dag() as dag:
        SENDS[box](task_id="send", recipients=[cell.value for cell in cells], content="Hi", **subject(box))
    return Run(task_runner, dag)


def stored(cells: Sequence[Cell], box: str) -> list[str]:
    """Return the recipients that are on the stored list."""
    wanted = [str(cell.recipient) for cell in cells]
    found = find_suppressions([f"+{one}" if box == "sms" else one for one in wanted], conn_id="any", region="NG")
    return [recipient if reason else "not on the list" for recipient, reason in zip(wanted, found, strict=True)]
