"""``airflow cpaas contacts`` commands that ask the service, and ``db erase``: on a real list and its key map."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from cpaas_provider.api.client import CpaasClient
from cpaas_provider.cli.contacts import files
from cpaas_provider.cli.contacts.checks import ChecksLeft
from cpaas_provider.contacts.key_map.entries import Change, MapEntry, RowState
from cpaas_provider.contacts.key_map.key_map import KeyMap
from cpaas_provider.contacts.key_map.maps import find_map, open_map
from cpaas_provider.contacts.key_map.overview import KEY_COLUMNS, RECIPIENT_COLUMNS, released
from cpaas_provider.database.database import Database, open_database
from tests.airflow.harness.command_line import CommandLine
from tests.sandbox import Sandbox, connection_json
from tests.unit.contacts.listed import NAME, PHONE

NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)
ADA = "2348035550101"


class Service:
    """The contact list, its connection and the provider's database."""

    def __init__(self, sandbox: Sandbox, database: Database) -> None:
        self.sandbox = sandbox
        self.database = database
        self.client = CpaasClient(sandbox.url, sandbox.api_key, allow_http=True)
        self.table_id = self.client.get_contact_table().id

    def created(self, **cells: Any) -> str:
        """Create a row, and return its id."""
        return self.client.create_contact_row(cells).row.id

    def map(self) -> KeyMap:
        return open_map(
            self.database, conn_id="cpaas_default", base_url=self.sandbox.url, table_id=self.table_id, name="default"
        )

    def write(self, key: str, **facts: Any) -> MapEntry:
        """Have the map hold an entry."""
        key_map = self.map()
        entry = MapEntry(key_map.hashes.of_key([key]), **facts)
        lease = key_map.row_lease("a sync")
        lease.write([Change(MapEntry(entry.key_hash), entry)], {RECIPIENT_COLUMNS: [PHONE]})
        lease.release()
        return entry

    def key_columns(self, *names: str) -> None:
        """Have the map know the source columns of its keys."""
        with released(self.map().row_lease("a sync")) as lease:
            lease.write([], {KEY_COLUMNS: list(names)})

    def entry(self, key: str) -> MapEntry | None:
        key_map = self.map()
        key_hash = key_map.hashes.of_key([key])
        return key_map.entries([key_hash]).get(key_hash)


@pytest.fixture
def service(sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    url = f"sqlite:///{tmp_path}/cpaas.db"
    monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", url)
    monkeypatch.setenv("AIRFLOW_CONN_CPAAS_DEFAULT", connection_json(sandbox.connection))
    with open_database(url) as opened:
        yield Service(sandbox, opened)


@pytest.fixture
def contacts(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    """Run ``airflow cpaas contacts ...``."""
    return CommandLine(monkeypatch, capsys, "cpaas", "contacts")


@pytest.fixture
def erase(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    """Run ``airflow cpaas db erase ...``."""
    return CommandLine(monkeypatch, capsys, "cpaas", "db", "erase")


class TestFiles:
    def test_list_is_adopted_and_its_map_moved(
        self, contacts: CommandLine, service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        row_id = service.created(**{NAME: "Ada"})
        (tmp_path / "list.csv").write_text(f"customer_id,row_id\n17,{row_id}\n")
        arguments = ("import-map", str(tmp_path / "list.csv"), "--key", "customer_id")
        ended = contacts(*arguments, "--dry-run")
        assert (ended.status, "would add 1 entry" in ended.out) == (0, True), ended.err
        ended = contacts(*arguments)
        assert (ended.status, ended.out) == (
            0,
            "Added 1 entry to contact map 'default' of connection 'cpaas_default'.\n",
        ), ended.err
        assert "1 entry in the map already." in contacts(*arguments).out
        ended = contacts("export-map", str(tmp_path / "map.csv"))
        assert (ended.status, "The file holds the map's secret." in ended.out) == (0, True), ended.err
        assert contacts("export-map", str(tmp_path / "map.csv")).status == 1
        monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", f"sqlite:///{tmp_path}/other.db")
        ended = contacts("import-map", str(tmp_path / "map.csv"))
        assert ended.status == 0, ended.err
        with open_database(f"sqlite:///{tmp_path}/other.db") as other:
            assert find_map(other, conn_id="cpaas_default").facts.secret == service.map().facts.secret

    @pytest.mark.parametrize(
        ("text", "options", "words"),
        [
            ("customer_id,row_id\n17,row-1\n", (), "Name the columns of its key with --key."),
            ("customer_id,row_id\n,row-1\n", ("--key", "customer_id"), "The key is blank"),
            ("# cpaas contact map {}\n", (), "is damaged on line 1"),
            ("# cpaas contact map {}\n", ("--key", "customer_id"), "Leave --key and --replace out."),
        ],
    )
    def test_file_that_cannot_be_imported(
        self,
        contacts: CommandLine,
        service: Service,
        tmp_path: Path,
        text: str,
        options: tuple[str, ...],
        words: str,
    ) -> None:
        (tmp_path / "list.csv").write_text(text)
        ended = contacts("import-map", str(tmp_path / "list.csv"), *options)
        assert (ended.status, ended.out) == (1, "")
        assert words in ended.err
        assert "Nothing was written." in ended.err

    def test_ctrl_c_ends_the_command_with_a_message(
        self, contacts: CommandLine, service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def stop(self: object, done: str, rows: int) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(files.ProgressLines, "__call__", stop)
        (tmp_path / "list.csv").write_text("customer_id,row_id\n17,row-1\n")
        ended = contacts("import-map", str(tmp_path / "list.csv"), "--key", "customer_id")
        assert ended.status == 130
        assert "no sync uses the map until the same command has finished it" in ended.err

    def test_connection_that_is_not_there(self, contacts: CommandLine, service: Service, tmp_path: Path) -> None:
        (tmp_path / "list.csv").write_text("customer_id,row_id\n17,row-1\n")
        ended = contacts("import-map", str(tmp_path / "list.csv"), "--key", "customer_id", "--conn-id", "lost")
        assert (ended.status, "Connection 'lost' cannot be read" in ended.err) == (1, True)


class TestVerify:
    def test_drift_is_shown_by_column_and_mended(self, contacts: CommandLine, service: Service) -> None:
        for key in ("equal", "different", "gone"):
            row_id = service.created(**{NAME: "Secret Name"})
            packed = service.map().hashes.of_cells({NAME: "Secret Name"}).to_bytes()
            service.write(key, row_id=row_id, cell_hashes=packed)
        service.client.update_contact_row(service.entry("different").row_id, {NAME: "Changed"})  # type: ignore[union-attr, arg-type]  # it is there
        service.client.delete_contact_row(service.entry("gone").row_id)  # type: ignore[union-attr, arg-type]  # as above
        ended = contacts("verify", "--output", "json")
        assert ended.status == 1
        assert "2 rows of the contact list differ from the key map" in ended.err
        found = {(line["result"], line["column"]): line["rows"] for line in ended.lines}
        assert (found["equal", None], found["different", None], found["gone", None]) == (1, 1, 1)
        assert found["different", "Name"] == 1
        assert "Secret Name" not in ended.out + ended.err
        ended = contacts("verify", "--all", "--mend")
        assert (ended.status, "The next sync mends 2 rows." in ended.out) == (0, True), ended.err
        assert service.entry("gone") is None
        ended = contacts("verify", "--sample", "1", "--output", "plain")
        assert ended.status == 0, ended.err

    def test_map_of_another_list_is_not_compared(self, contacts: CommandLine, service: Service) -> None:
        open_map(service.database, conn_id="cpaas_default", base_url=service.sandbox.url, table_id="other")
        ended = contacts("verify")
        assert (ended.status, "made for another contact table" in ended.err) == (1, True)

    def test_wrong_key_of_the_account(self, contacts: CommandLine, service: Service) -> None:
        service.write("17", row_id=service.created(**{NAME: "Ada"}))
        service.sandbox.control("POST", "faults", {"operation": "get_contact_row", "kind": "unauthorized"})
        ended = contacts("verify")
        assert ended.status == 1
        assert "Traceback" not in ended.err
        assert service.sandbox.api_key not in ended.err

    def test_ctrl_c_shows_what_was_found(
        self, contacts: CommandLine, service: Service, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def stop(self: object, checked: int, total: int) -> None:
            raise KeyboardInterrupt

        service.write("17", row_id=service.created(**{NAME: "Ada"}))
        monkeypatch.setattr(ChecksLeft, "__call__", stop)
        ended = contacts("verify", "--output", "json")
        assert (ended.status, ended.err) == (130, "The check was stopped.\n")
        assert {one["result"]: one["rows"] for one in ended.lines}["unknown"] == 1

    def test_missing_map_is_reported(self, contacts: CommandLine, service: Service) -> None:
        ended = contacts("verify")
        assert (ended.status, "has no contact map 'default'" in ended.err) == (1, True)

    def test_progress_has_the_time_left(self, capsys: pytest.CaptureFixture[str]) -> None:
        now = [0.0]
        progress = ChecksLeft(lambda: now[0])
        for checked, seconds in ((1, 5.0), (100, 10.0), (150, 15.0), (200, 20.0)):
            now[0] = seconds
            progress(checked, 50_000)
        assert capsys.readouterr().err == (
            "Checked 100 of 50,000 rows, about 83 min left.\nChecked 200 of 50,000 rows, about 83 min left.\n"
        )


class TestResolve:
    def test_created_row_is_read_and_gets_its_key(self, contacts: CommandLine, service: Service) -> None:
        service.write("17", state=RowState.UNKNOWN, source_row=3, requested=NOW)
        row_id = service.created(**{NAME: "Ada"})
        ended = contacts("resolve", "--key", "-", "--created", row_id, answer="17\n" + "y\n")
        assert ended.status == 0, ended.err
        assert "row 3 of the source, requested 2026-11-01 12:00:00 UTC" in ended.out
        assert "Resolved: the key has this row now." in ended.out
        assert (service.entry("17") or MapEntry(b"")).row_id == row_id

    def test_not_created_rows_are_created_by_the_next_sync(self, contacts: CommandLine, service: Service) -> None:
        service.write("17", state=RowState.UNKNOWN, source_row=3)
        service.write("18", state=RowState.CREATING, source_row=4, fencing_token=1)
        ended = contacts("resolve", "--row-number", "3", "--not-created", "--yes")
        assert (ended.status, "Resolved as not created: 1 creation." in ended.out) == (0, True), ended.err
        ended = contacts("resolve", "--all", "--not-created", "--yes")
        assert (ended.status, "Resolved as not created: 1 creation." in ended.out) == (0, True), ended.err
        assert contacts("resolve", "--all", "--not-created").out == "The contact map has no unknown creations.\n"

    def test_answer_of_no_changes_nothing(self, contacts: CommandLine, service: Service) -> None:
        service.write("17", state=RowState.UNKNOWN)
        ended = contacts("resolve", "--all", "--not-created", answer="n\n")
        assert (ended.status, ended.err) == (1, "Nothing was changed.")
        assert service.entry("17") is not None

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            ((), "Give one of --key, --row-number, --all and --file."),
            (("--key", "17", "--all", "--not-created"), "Give one of --key, --row-number, --all and --file."),
            (("--key", "17"), "Give either --created ROW_ID or --not-created."),
            (("--key", "17", "--created", "r", "--not-created"), "Give either --created ROW_ID or --not-created."),
            (("--all", "--created", "r"), "--all goes with --not-created alone"),
            (("--key", "17", "--created", "no-such-row", "--yes"), "The contact list has no row of this id."),
            (("--key", "other", "--not-created"), "The contact map has no entry for this key."),
            (("--row-number", "9", "--not-created"), "No unknown creations have the row number 9."),
            (("--file", "a.csv", "--not-created"), "--file has what to record in its column row_id."),
        ],
    )
    def test_unclear_decision_is_refused(
        self, contacts: CommandLine, service: Service, arguments: tuple[str, ...], words: str
    ) -> None:
        service.write("17", state=RowState.UNKNOWN)
        ended = contacts("resolve", *arguments)
        assert (ended.status, words in ended.err, "Nothing was changed." in ended.err) == (1, True, True), ended.err


class TestResolveByFile:
    @pytest.fixture(params=["customer_id", "row"])
    def column(self, request: pytest.FixtureRequest) -> str:
        """What identifies the creations in the file."""
        return str(request.param)

    def test_file_resolves_many_creations_at_once(
        self, contacts: CommandLine, service: Service, tmp_path: Path, column: str
    ) -> None:
        service.key_columns("customer_id")
        for number in (17, 18, 19):
            service.write(str(number), state=RowState.UNKNOWN, source_row=number)
        row_id = service.created(**{NAME: "Ada"})
        path = tmp_path / "found.csv"
        path.write_text(f"{column},row_id\n17,{row_id}\n18,not created\n")
        ended = contacts("resolve", "--file", str(path), answer="y\n")
        assert ended.status == 0, ended.err
        assert "Resolved: 1 creation as created, 1 as not created." in ended.out
        assert (service.entry("17") or MapEntry(b"")).row_id == row_id
        assert service.entry("18") is None
        assert (service.entry("19") or MapEntry(b"")).state is RowState.UNKNOWN

    @pytest.mark.parametrize(
        ("lines", "words"),
        [
            ("17,no-such-row", "The contact list has no row of this id (1 time, on line 3)."),
            ("17,ROW\n17,not created", "The creation is on an earlier line, too (1 time, on line 4)."),
            ("17,ROW\n18,ROW", "The row id is on an earlier line, too (1 time, on line 4)."),
            ("99,not created", "The key has no unknown creation (1 time, on line 3)."),
            ("17,", "The row id is blank; write 'not created'"),
            ("17,TAKEN", "The contact map has this row for another key already (1 time, on line 3)."),
        ],
    )
    def test_fault_on_one_line_changes_nothing(
        self, contacts: CommandLine, service: Service, tmp_path: Path, lines: str, words: str
    ) -> None:
        service.key_columns("customer_id")
        for number in (17, 18, 19):
            service.write(str(number), state=RowState.UNKNOWN, source_row=number)
        row_id, taken = service.created(**{NAME: "Ada"}), service.created(**{NAME: "Obi"})
        service.write("20", row_id=taken)
        path = tmp_path / "found.csv"
        text = lines.replace("ROW", row_id).replace("TAKEN", taken)
        path.write_text(f"customer_id,row_id\n19,not created\n{text}\n")
        ended = contacts("resolve", "--file", str(path), "--yes")
        assert (ended.status, words in ended.err, "Nothing was changed." in ended.err) == (1, True, True), ended.err
        assert all((service.entry(key) or MapEntry(b"")).state is RowState.UNKNOWN for key in ("17", "18", "19"))

    def test_file_without_the_columns_is_refused(self, contacts: CommandLine, service: Service, tmp_path: Path) -> None:
        service.key_columns("customer_id")
        path = tmp_path / "found.csv"
        path.write_text("id,row_id\n17,not created\n")
        ended = contacts("resolve", "--file", str(path), "--yes")
        assert (ended.status, "the columns of the key (customer_id) or row." in ended.err) == (1, True), ended.err

    def test_unknown_creations_are_listed_in_the_order_of_the_source(
        self, contacts: CommandLine, service: Service
    ) -> None:
        for number in (8, 3, 30, 1, 21):
            service.write(f"key {number}", state=RowState.UNKNOWN, source_row=number)
        (line,) = contacts("status", "--output", "json", "--limit", "4").lines
        assert [creation["source_row"] for creation in line["unknown"]] == [1, 3, 8, 21]


class TestErase:
    def test_recipient_is_removed_from_the_map_and_its_row_named(self, erase: CommandLine, service: Service) -> None:
        packed = service.map().hashes.of_cells({PHONE: ADA}).to_bytes()
        service.write("17", row_id="row-1", cell_hashes=packed)
        service.write("18", row_id="row-2")
        ended = erase("0803 555 0101", "--region", "NG", "--yes")
        assert ended.status == 0, ended.err
        assert (
            "Removed 1 entry from 1 contact map. The contact list and the source still hold the recipient." in ended.out
        )
        assert (service.entry("17"), service.entry("18") is None) == (None, False)
        assert ADA not in ended.out + ended.err

    def test_row_that_is_synced_now_is_left_and_the_command_fails(self, erase: CommandLine, service: Service) -> None:
        lease = service.map().lease("dag.sync of run")
        service.write(ADA, state=RowState.CREATING, fencing_token=lease.fencing_token)
        ended = erase(f"+{ADA}", "--yes")
        assert (ended.status, "Not removed from contact maps: 1 entry" in ended.err) == (1, True)
        assert service.entry(ADA) is not None

    def test_unclear_recipient_changes_no_map(self, erase: CommandLine, service: Service) -> None:
        service.write("0803 555 0101", row_id="row-1")
        ended = erase("0803 555 0101", "--yes")
        assert ended.status == 1
        assert service.entry("0803 555 0101") is not None
