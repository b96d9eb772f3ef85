"""``airflow cpaas suppressions``, as a person at a terminal uses it."""

from __future__ import annotations

import csv
import stat
from pathlib import Path

import pytest

from cpaas_provider.hooks.suppressions import add_suppressions, find_suppressions
from tests.airflow.harness.command_line import CommandLine

ADA, BEN = "2348031200000", "2348031200001"


pytestmark = pytest.mark.usefixtures("own_database")


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(monkeypatch, capsys, "cpaas", "suppressions")


def test_added_recipients_are_listed_and_removed(cli: CommandLine) -> None:
    said = cli("add", "0803 120 0000", "ada@example.com", "--region", "NG", "--reason", "complaint", "--source", "desk")
    assert (said.status, said.out) == (0, "Added 2 entries.\n")
    listed = cli("list", "--output", "json")
    assert {(line["reason"], line["source"], line["channel"], line["conn_id"]) for line in listed.lines} == {
        ("complaint", "desk", "all", "all")
    }
    assert ADA not in listed.out
    assert "ada@" not in listed.out
    assert "2 entries: 2 complaint." in listed.err
    assert len(cli("list", "--recipient", f"+{ADA}", "--output", "json").lines) == 1
    assert cli("list", "--recipient", "-", "--output", "json", answer=f"+{BEN}\n").lines == []
    assert cli("remove", f"+{ADA}").out == "Removed 1 entry.\n"
    again = cli("remove", f"+{ADA}")
    assert (again.status, again.err) == (1, "The list has no such entry. Nothing was removed.")


def test_recipients_are_read_from_standard_input(cli: CommandLine) -> None:
    assert cli("add", "-", answer=f"+{ADA}\n\n+{BEN}\n").out == "Added 2 entries.\n"
    assert find_suppressions([f"+{ADA}", f"+{BEN}"], conn_id="any") == ["opt_out", "opt_out"]


def test_recipient_that_cannot_be_read_is_not_shown(cli: CommandLine) -> None:
    said = cli("add", f"+{ADA}", "0803 somebody")
    assert said.status == 1
    assert "recipient 2 contains letters. Nothing was changed." in said.err
    assert "somebody" not in said.err
    assert find_suppressions(f"+{ADA}", conn_id="any") == [None]


def test_file_is_imported(cli: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "opted_out.csv"
    file.write_text(f"phone;since\n+{ADA};2026\n+{BEN};2026\n+{ADA};2025\n")
    said = cli("import", str(file), "--column", "phone", "--conn-id", "shop")
    assert (said.status, said.out) == (0, "Read 3 recipients, added 2 new entries.\n")
    (line, _) = cli("list", "--output", "json").lines
    assert (line["conn_id"], line["source"]) == ("shop", "import of opted_out.csv")
    assert cli("import", str(file)).err.startswith("The file has no column recipient.")


def test_columns_are_found_and_lines_of_delimiters_are_no_rows(cli: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "opted_out.csv"
    file.write_text(f",Recipient,since\n0,+{ADA},2026\n,,\n,,\n")
    assert cli("import", str(file)).out == "Read 1 recipient, added 1 new entry.\n"


def test_rows_that_cannot_be_read_keep_a_file_out_unless_they_are_skipped(cli: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "opted_out.csv"
    file.write_text(f"recipient\n+{ADA}\nnobody knows\n")
    said = cli("import", str(file))
    assert said.status == 1
    assert "1 row cannot be read (row 3 contains letters). Nothing was added." in said.err
    assert "nobody" not in said.err
    skipped = cli("import", str(file), "--skip-invalid")
    assert skipped.out == "Read 1 recipient, added 1 new entry. Skipped 1 row that cannot be read.\n"


def test_export_holds_no_recipient_and_is_imported_again(cli: CommandLine, tmp_path: Path) -> None:
    add_suppressions([f"+{ADA}", "ada@example.com"])
    file = tmp_path / "export.csv"
    assert cli("export", str(file)).out == "Wrote 2 entries.\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    text = file.read_text()
    assert ADA not in text
    assert "ada@" not in text
    assert cli("export", str(file)).status == 1
    assert cli("remove", f"+{ADA}").status == 0
    assert cli("import", str(file)).out == "Added 1 entry of an export.\n"
    assert find_suppressions(f"+{ADA}", conn_id="any") == ["opt_out"]


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("recipient_hash", "12345678"),
        ("recipient_hash", ""),
        ("added_at", "0001-01-01T00:00:00+14:00"),
        ("channel", "fax"),
    ],
)
def test_export_that_was_damaged_is_refused(cli: CommandLine, tmp_path: Path, column: str, value: str) -> None:
    add_suppressions(f"+{ADA}")
    file = tmp_path / "export.csv"
    cli("export", str(file))
    (entry,) = csv.DictReader(file.read_text().splitlines())
    cli("remove", f"+{ADA}")
    entry[column] = value
    file.write_text("\n".join([",".join(entry), ",".join(entry.values())]))
    said = cli("import", str(file))
    assert (said.status, said.err) == (1, "Row 2 is not as an export has it. Earlier rows may be added.")


def test_export_of_another_database_is_refused(
    cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_suppressions(f"+{ADA}")
    file = tmp_path / "export.csv"
    cli("export", str(file))
    monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", f"sqlite:///{tmp_path / 'other.db'}")
    said = cli("import", str(file))
    assert said.status == 1
    assert "hashed with a key that this database does not have" in said.err


def test_erasure_keeps_an_opt_out_and_says_why(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    add_suppressions(f"+{ADA}")
    add_suppressions(f"+{ADA}", reason="invalid_number")
    said = CommandLine(monkeypatch, capsys, "cpaas", "db")("erase", f"+{ADA}", "--yes")
    assert said.status == 0
    assert "Removed 1 entry from the suppression list." in said.out
    assert "Not removed from the suppression list: 1 entry." in said.out
    assert [line["reason"] for line in cli("list", "--output", "json").lines] == ["opt_out"]


def test_entries_are_not_added_to_another_database_than_that_of_tasks(
    cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "more.csv"
    file.write_text(f"phone\n+{BEN}\n")
    assert cli("add", f"+{ADA}").status == 0
    monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", f"sqlite:///{tmp_path / 'another.db'}")
    for command in (("add", f"+{BEN}"), ("import", str(file), "--column", "phone")):
        refused = cli(*command)
        assert (refused.status, "so nothing was added" in refused.err) == (1, True)
    assert find_suppressions([f"+{BEN}"], conn_id="any") == [None]


def test_list_of_another_database_than_that_of_tasks_is_named_and_not_changed(
    cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("AIRFLOW__CPAAS__DATABASE", f"sqlite:///{tmp_path / 'another.db'}")
        add_suppressions(f"+{ADA}")
    assert cli("add", f"+{ADA}").status == 0
    assert "another database" not in cli("list").err
    monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", f"sqlite:///{tmp_path / 'another.db'}")
    listed = cli("list", "--recipient", f"+{BEN}")
    assert (listed.status, "in another database: sqlite:///" in listed.err) == (0, True)
    refused = cli("remove", f"+{ADA}")
    assert (refused.status, "so nothing was removed" in refused.err) == (1, True)
    exported = cli("export", str(tmp_path / "list.csv"))
    assert (exported.status, "so no file was written" in exported.err) == (1, True)
    assert not (tmp_path / "list.csv").exists()
    assert find_suppressions(f"+{ADA}", conn_id="any") == ["opt_out"]


def test_campaign_whose_reports_list_no_recipient_is_shown(cli: CommandLine) -> None:
    from cpaas_provider.database.database import open_database
    from tests.unit.delivery.report_builders import report, save_reports, start_send, token_for

    numbers = [f"23480312{number:05d}" for number in range(25)]
    with open_database() as database:
        start_send(database)
        token = token_for(*numbers)
        save_reports(database, *(report(one, "undelivered", token=token, reason="Unknown number") for one in numbers))
    listed = cli("list", "--output", "json")
    assert (listed.status, listed.lines) == (0, [])
    assert "campaign spring on connection 'shop' add no recipient" in listed.err
    assert "25 of 25 recipients" in listed.err
