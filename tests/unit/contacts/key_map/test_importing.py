"""Adopting the rows of a list that exists: a file with keys and row ids, checked whole before the first write."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cpaas_provider.contacts.errors import (
    LeaseTakenError,
    MapFileError,
    MapMismatchError,
    UnfinishedImportError,
)
from cpaas_provider.contacts.key_map.entries import Change, MapEntry, RowState
from cpaas_provider.contacts.key_map.importing import ImportReport, Target, adopt_rows
from cpaas_provider.contacts.key_map.key_map import IMPORTING, KeyMap, Lease
from cpaas_provider.contacts.key_map.maps import all_maps, find_map, open_map
from cpaas_provider.contacts.key_map.overview import CURSOR, KEY_COLUMNS, leases_of
from cpaas_provider.contacts.mapping.keys import key_reader
from cpaas_provider.database.database import Database
from cpaas_provider.sources.base import SourceError
from cpaas_provider.sources.csv_file import CsvSource

URL = "https://cpaas.example.com"


class Adoption:
    """A file on its way into a map."""

    def __init__(self, database: Database, folder: Path) -> None:
        self.database = database
        self.path = folder / "list.csv"

    def __call__(
        self, text: str, *key: str, progress: Callable[[str, int], None] = lambda done, rows: None, **options: Any
    ) -> ImportReport:
        """Adopt the rows of a text of CSV."""
        self.path.write_text(text, encoding="utf-8")
        target = Target(self.database, "cpaas_default", "default", URL, "table")
        return adopt_rows(target, CsvSource(self.path), key or ("id",), progress, **options)

    def refused(self, text: str, *key: str, **options: Any) -> str:
        """Return why they are not adopted."""
        with pytest.raises((MapFileError, MapMismatchError)) as caught:
            self(text, *key, **options)
        assert "Nothing was written." in str(caught.value)
        return str(caught.value)

    @property
    def map(self) -> KeyMap:
        return find_map(self.database, conn_id="cpaas_default")

    def made(self, *entries: tuple[str, str], **changes: Any) -> KeyMap:
        """Return the map, with entries of keys and row ids."""
        key_map = open_map(self.database, conn_id="cpaas_default", base_url=URL, table_id="table")
        lease = key_map.lease("a sync")
        for key, row_id in entries:
            entry = MapEntry(key_map.hashes.of_key([key]), row_id=row_id, raw_hash=b"r" * 16)
            lease.write([Change(MapEntry(entry.key_hash), replace(entry, **changes))], {KEY_COLUMNS: ["id"]})
        lease.release()
        return key_map

    def rows(self) -> dict[bytes, str | None]:
        return {entry.key_hash: entry.row_id for page in self.map.pages() for entry in page}

    def row_of(self, *key: str) -> str | None:
        return self.rows().get(self.map.hashes.of_key(key))


@pytest.fixture(scope="module", autouse=True)
def first_file(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Read a file: the first one that a process opens has Airflow loaded."""
    path = tmp_path_factory.mktemp("first") / "first.csv"
    path.write_text("id\n")
    with CsvSource(path).open() as table:
        assert list(table.rows(["id"])) == []


@pytest.fixture
def adopt(database: Database, tmp_path: Path) -> Adoption:
    return Adoption(database, tmp_path)


class TestAdopted:
    def test_rows_are_in_the_map_without_hashes_so_that_all_cells_are_sent_once(self, adopt: Adoption) -> None:
        assert adopt("id,row_id,Name\n17,row-1,Ada\n 18 ,row-2,Obi\n") == ImportReport(rows=2, added=2)
        entries = [entry for page in adopt.map.pages() for entry in page]
        assert {entry.row_id for entry in entries} == {"row-1", "row-2"}
        assert {(entry.state, entry.raw_hash, entry.cell_hashes) for entry in entries} == {
            (RowState.SYNCED, None, None)
        }
        assert adopt.map.value(KEY_COLUMNS) == ["id"]
        assert adopt.map.value(IMPORTING) is None
        assert leases_of(adopt.map) == []

    @pytest.mark.parametrize("value", [17, 17.0, "17", " 17\u200b ".replace("\u200b", "")])
    def test_key_is_the_one_that_a_sync_computes(self, adopt: Adoption, value: Any) -> None:
        adopt("id,row_id\n17,row-1\n")
        parts = key_reader(["id"], lambda column, reason: ValueError(reason))({"id": value})
        assert parts is not None
        assert adopt.row_of(*parts) == "row-1"

    def test_key_of_several_columns_and_another_row_id_column(self, adopt: Adoption) -> None:
        adopt("Row,no,shop\nrow-1,17,north\nrow-2,17,south\n", "shop", "no", row_id_column="Row")
        assert (adopt.row_of("north", "17"), adopt.row_of("south", "17")) == ("row-1", "row-2")
        assert adopt.map.value(KEY_COLUMNS) == ["shop", "no"]

    def test_second_run_finds_all_rows_there(self, adopt: Adoption) -> None:
        adopt("id,row_id\n17,row-1\n")
        assert adopt("id,row_id\n17,row-1\n18,row-2\n") == ImportReport(rows=2, added=1, present=1)

    def test_dry_run_writes_nothing(self, adopt: Adoption) -> None:
        assert adopt("id,row_id\n17,row-1\n", dry_run=True) == ImportReport(rows=1, added=1)
        assert all_maps(adopt.database) == []
        adopt.made(("17", "row-1"))
        assert adopt("id,row_id\n17,row-1\n18,row-2\n", dry_run=True) == ImportReport(rows=2, added=1, present=1)
        assert len(adopt.rows()) == 1

    @pytest.mark.parametrize("state", [RowState.UNKNOWN, RowState.CREATING, RowState.REJECTED])
    def test_file_gives_its_row_to_a_key_without_one(self, adopt: Adoption, state: RowState) -> None:
        adopt.made(("17", "row-x"), state=state, row_id=None, fencing_token=1)
        assert adopt("id,row_id\n17,row-1\n") == ImportReport(rows=1, replaced=1)
        assert adopt.row_of("17") == "row-1"

    def test_next_sync_with_a_cursor_reads_all_rows(self, adopt: Adoption) -> None:
        key_map = adopt.made(("17", "row-1"))
        lease = key_map.row_lease("a sync")
        lease.write([], {CURSOR: {"column": "v", "value": 9}})
        lease.release()
        adopt("id,row_id\n18,row-2\n")
        assert adopt.map.value(CURSOR) is None


class TestRefused:
    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("id,row_id\n17,row-1\n17,row-2\n", "The same key is on several lines (1 time, on line 2 and 3)"),
            ("id,row_id\n17,row-1\n18,row-1\n", "The same row id is on several lines (1 time, on line 2 and 3)"),
            ("id,row_id\n,row-1\n17,row-2\n", "The key is blank (1 time, on line 2)"),
            ("id,row_id\n17,\n", "The row id is blank (1 time, on line 2)"),
            ("id,row_id\n17,None\n", "the row id is the word None, which means that there is no value"),
            ("id,row_id\n17,Ada Okafor\n", "The row id has blanks (1 time, on line 2)"),
            (f"id,row_id\n{'9' * 513},row-1\n", "is longer than 512 characters, too long for a key"),
            (f"id,row_id\n17,{'r' * 201}\n", "the row id has control characters or more than 200 characters"),
            ("id,row_id\n17,row-1,more\n", "A row has more cells than the header (1 time, on line 2)"),
            ("no,row_id\n17,row-1\n", "has no column id. It has: no, row_id. Nothing was written."),
            ("id,row\n17,row-1\n", "has no column row_id."),
        ],
    )
    def test_file_with_a_fault_is_refused_whole(self, adopt: Adoption, text: str, words: str) -> None:
        assert words in adopt.refused(text)
        assert all_maps(adopt.database) == []

    def test_all_faults_are_named_with_their_first_lines_and_no_key(self, adopt: Adoption) -> None:
        lines = [f",row-{number}" for number in range(15)] + ["secret-key,", "secret-key,row-1"]
        words = adopt.refused("id,row_id\n" + "\n".join(lines) + "\n")
        assert "The key is blank (15 times, first on line 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)." in words
        assert "The row id is blank (1 time, on line 17)." in words
        assert "secret-key" not in words

    def test_empty_file_and_no_file(self, adopt: Adoption) -> None:
        with pytest.raises(SourceError, match="is empty"):
            adopt("")
        target = Target(adopt.database, "cpaas_default", "default", URL, "table")
        with pytest.raises(SourceError, match="FileNotFoundError"):
            adopt_rows(target, CsvSource("/nowhere/list.csv"), ["id"], lambda done, rows: None)

    def test_map_of_another_key(self, adopt: Adoption) -> None:
        adopt.made(("17", "row-1"))
        words = adopt.refused("id,shop,row_id\n17,north,row-1\n", "shop", "id")
        assert "are made of the columns id" in words

    def test_map_of_another_list(self, adopt: Adoption) -> None:
        open_map(adopt.database, conn_id="cpaas_default", base_url=URL, table_id="other")
        with pytest.raises(MapMismatchError, match="made for another contact table"):
            adopt("id,row_id\n17,row-1\n")

    def test_request_of_a_task_for_the_key(self, adopt: Adoption) -> None:
        key_map = adopt.made()
        lease = key_map.row_lease("dag.upsert of run")
        entry = MapEntry(key_map.hashes.of_key(["17"]), RowState.CREATING, fencing_token=lease.fencing_token)
        lease.write([Change(MapEntry(entry.key_hash), entry)])
        assert "A task has a request for the key under way (1 time, on line 2)" in adopt.refused(
            "id,row_id\n17,row-1\n"
        )

    def test_sync_of_the_list(self, adopt: Adoption) -> None:
        adopt.made(("17", "row-1")).lease("dag.sync of run")
        with pytest.raises(LeaseTakenError):
            adopt("id,row_id\n18,row-2\n")
        assert len(adopt.rows()) == 1


class TestReplace:
    def test_other_row_id_of_a_key(self, adopt: Adoption) -> None:
        adopt.made(("17", "row-1"))
        text = "id,row_id\n17,row-9\n"
        assert "another row id or other hashes for the key (1 time, on line 2)" in adopt.refused(text)
        assert adopt(text, replace_row_ids=True) == ImportReport(rows=1, replaced=1)
        assert adopt.row_of("17") == "row-9"

    def test_other_key_of_a_row(self, adopt: Adoption) -> None:
        adopt.made(("17", "row-1"))
        text = "id,row_id\n18,row-1\n"
        assert "The map has another key for the row (1 time, on line 2)" in adopt.refused(text)
        assert adopt(text, replace_row_ids=True) == ImportReport(rows=1, added=1, removed=1)
        assert (adopt.row_of("17"), adopt.row_of("18")) == (None, "row-1")

    def test_two_keys_that_change_their_rows(self, adopt: Adoption) -> None:
        adopt.made(("17", "row-1"), ("18", "row-2"))
        report = adopt("id,row_id\n17,row-2\n18,row-1\n", replace_row_ids=True)
        assert report == ImportReport(rows=2, replaced=2)
        assert (adopt.row_of("17"), adopt.row_of("18")) == ("row-2", "row-1")

    def test_row_with_a_request_under_way_is_not_taken_from_its_key(self, adopt: Adoption) -> None:
        key_map = adopt.made(("17", "row-1"))
        lease = key_map.row_lease("dag.upsert of run")
        (entry,) = key_map.entries([key_map.hashes.of_key(["17"])]).values()
        lease.write([Change(entry, replace(entry, state=RowState.UPDATING, fencing_token=lease.fencing_token))])
        refusal = adopt.refused("id,row_id\n18,row-1\n", replace_row_ids=True)
        assert "A task has a request for the row under way (1 time, on line 2)" in refusal

    @pytest.mark.parametrize("text", ["id,row_id\n18,row-1\n", "id,row_id\n17,row-2\n18,row-1\n"])
    def test_no_sync_gets_a_map_in_which_two_keys_have_a_row(self, adopt: Adoption, text: str) -> None:
        key_map = adopt.made(("17", "row-1"))
        lease = key_map.row_lease("dag.upsert of run")
        key_hash = key_map.hashes.of_key(["17"])
        write = Lease.write

        def write_later(self: Lease, changes: Sequence[Change], *args: Any, **options: Any) -> Any:
            if self is not lease and any(change.before.key_hash == key_hash for change in changes):
                (entry,) = key_map.entries([key_hash]).values()
                if entry.raw_hash is not None:
                    write(lease, [Change(entry, replace(entry, raw_hash=None))])
            return write(self, changes, *args, **options)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(Lease, "write", write_later)
            assert adopt(text, replace_row_ids=True).changed == 1
        assert (adopt.row_of("17"), adopt.row_of("18")) == ("row-1", "row-1")
        with pytest.raises(UnfinishedImportError):
            adopt.map.lease("a sync")
        assert adopt(text, replace_row_ids=True).changed == 0
        assert adopt.row_of("17") != adopt.row_of("18") == "row-1"
        adopt.map.lease("a sync").release()


class TestOtherMaps:
    """Another map of the list has a row of the file: a sync of one map would delete it for the other."""

    TEXT = "id,row_id\n17,row-1\n18,row-2\n"

    @staticmethod
    def other(adopt: Adoption, conn_id: str = "cpaas_default", base_url: str = URL) -> KeyMap:
        """Return another map that has row-2 and row-3."""
        key_map = open_map(adopt.database, conn_id=conn_id, base_url=base_url, table_id="table", name="crm")
        lease = key_map.lease("a sync")
        for row_id in ("row-2", "row-3"):
            entry = MapEntry(key_map.hashes.of_key([row_id]), row_id=row_id)
            lease.write([Change(MapEntry(entry.key_hash), entry)])
        lease.release()
        return key_map

    @staticmethod
    def row_ids(key_map: KeyMap) -> set[str | None]:
        return {entry.row_id for page in key_map.pages() for entry in page}

    @pytest.mark.parametrize("conn_id", ["cpaas_default", "cpaas_other"])
    @pytest.mark.parametrize("dry_run", [False, True])
    def test_row_of_another_map_of_the_list_is_refused(self, adopt: Adoption, conn_id: str, dry_run: bool) -> None:
        other = self.other(adopt, conn_id)
        words = adopt.refused(self.TEXT, dry_run=dry_run)
        assert f"The contact map 'crm' of connection {conn_id!r} has the row already" in words
        assert "(1 time, on line 3)" in words
        assert [key_map.facts for key_map in all_maps(adopt.database)] == [other.facts]

    def test_row_of_another_list_is_not_the_same_row(self, adopt: Adoption) -> None:
        self.other(adopt, base_url="https://other.example.com")
        assert adopt(self.TEXT) == ImportReport(rows=2, added=2)

    def test_replace_takes_rows_from_another_map_of_the_connection(self, adopt: Adoption) -> None:
        other = self.other(adopt)
        assert adopt(self.TEXT, replace_row_ids=True, dry_run=True) == ImportReport(rows=2, added=2, removed=1)
        assert adopt(self.TEXT, replace_row_ids=True) == ImportReport(rows=2, added=2, removed=1)
        assert (self.row_ids(adopt.map), self.row_ids(other)) == ({"row-1", "row-2"}, {"row-3"})
        assert leases_of(other) == []

    def test_replace_takes_no_row_from_a_map_of_another_connection(self, adopt: Adoption) -> None:
        other = self.other(adopt, "cpaas_other")
        assert "of connection 'cpaas_other' has the row" in adopt.refused(self.TEXT, replace_row_ids=True)
        assert self.row_ids(other) == {"row-2", "row-3"}

    def test_replace_takes_no_row_while_a_sync_of_its_map_runs(self, adopt: Adoption) -> None:
        other = self.other(adopt)
        other.lease("dag.sync of run")
        with pytest.raises(LeaseTakenError):
            adopt(self.TEXT, replace_row_ids=True)
        assert self.row_ids(other) == {"row-2", "row-3"}
        assert [key_map.facts for key_map in all_maps(adopt.database)] == [other.facts]

    def test_replace_takes_no_row_whose_request_is_under_way(self, adopt: Adoption) -> None:
        other = self.other(adopt)
        lease = other.row_lease("dag.upsert of run")
        (entry,) = other.entries_of_rows(["row-2"])
        lease.write([Change(entry, replace(entry, state=RowState.UPDATING, fencing_token=lease.fencing_token))])
        refusal = adopt.refused(self.TEXT, replace_row_ids=True)
        assert "A task has a request for the row under way (1 time, on line 3)" in refusal

    @pytest.mark.parametrize("stopped_at", ["checked", "written"])
    def test_stopped_import_that_takes_rows_goes_on(self, adopt: Adoption, stopped_at: str) -> None:
        other = self.other(adopt)

        def stop(done: str, rows: int) -> None:
            if done == stopped_at:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            adopt(self.TEXT, replace_row_ids=True, progress=stop)
        with pytest.raises(UnfinishedImportError):
            adopt.map.lease("a sync")
        assert adopt(self.TEXT, replace_row_ids=True).changed == 0
        assert (self.row_ids(adopt.map), self.row_ids(other)) == ({"row-1", "row-2"}, {"row-3"})


class TestLarge:
    def text(self, rows: int) -> str:
        return "id,row_id\n" + "".join(f"{number},row-{number}\n" for number in range(rows))

    def test_stopped_import_goes_on_and_meanwhile_no_sync_gets_the_map(self, adopt: Adoption) -> None:
        def stop(done: str, rows: int) -> None:
            if done == "written":
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            adopt(self.text(2_500), progress=stop)
        assert len(adopt.rows()) == 2_000
        with pytest.raises(UnfinishedImportError):
            adopt.map.lease("dag.sync of run")
        assert adopt(self.text(2_500)) == ImportReport(rows=2_500, added=500, present=2_000)
        adopt.map.lease("dag.sync of run").release()

    def test_fault_on_the_last_line_is_found_before_the_first_write(self, adopt: Adoption) -> None:
        assert "on line 2502" in adopt.refused(self.text(2_500) + "2500,\n")
        assert all_maps(adopt.database) == []

    @pytest.mark.parametrize("rows", [2_499, 2_500])
    @pytest.mark.parametrize("dry_run", [False, True])
    def test_stopped_import_is_not_resumed_with_another_file(self, adopt: Adoption, rows: int, dry_run: bool) -> None:
        def stop(done: str, rows: int) -> None:
            if done == "written":
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            adopt(self.text(2_500), progress=stop)
        before = adopt.rows()
        other = self.text(rows).replace("row-7\n", "row-x\n")
        refusal = adopt.refused(other, dry_run=dry_run, replace_row_ids=True)
        assert "holds a part of another import, of a file with 2,500 rows." in refusal
        assert "Finish that import with its own file" in refusal
        assert adopt.rows() == before
        header, *lines = self.text(2_500).splitlines()
        in_another_order = "\n".join([header, *reversed(lines)])
        assert adopt(in_another_order) == ImportReport(rows=2_500, added=500, present=2_000)

    def test_upsert_during_the_import_is_left_as_it_is(self, adopt: Adoption) -> None:
        key_map = adopt.made(("other", "row-x"))
        lease = key_map.row_lease("dag.upsert of run")
        entry = MapEntry(key_map.hashes.of_key(["7"]), row_id="by the upsert")

        def upsert(done: str, rows: int) -> None:
            if done == "checked":
                lease.write([Change(MapEntry(entry.key_hash), entry)])

        report = adopt(self.text(10), progress=upsert)
        assert (report.changed, adopt.row_of("7"), adopt.row_of("8")) == (1, "by the upsert", "row-8")

    def test_progress_has_the_rows_of_each_phase(self, adopt: Adoption) -> None:
        seen: list[tuple[str, int]] = []
        adopt(self.text(2_500), progress=lambda done, rows: seen.append((done, rows)))
        assert [one for one in seen if one[0] == "read"] == [("read", 1_000), ("read", 2_000)]
        assert [one for one in seen if one[0] == "written"] == [("written", 2_000), ("written", 2_500)]


def test_memory_does_not_grow_with_the_file(sqlite_url: str, tmp_path: Path) -> None:
    from cpaas_provider.database.database import open_database

    def peak(rows: int) -> int:
        path = tmp_path / f"{rows}.csv"
        with path.open("w") as file:
            file.write("id,row_id\n")
            file.writelines(f"{number},row-{number}\n" for number in range(rows))
        with open_database(sqlite_url) as database:
            target = Target(database, "cpaas_default", str(rows), URL, "table")
            tracemalloc.start()
            try:
                adopt_rows(target, CsvSource(path), ["id"], lambda done, rows: None, dry_run=True)
                return tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()

    peak(100)
    assert peak(4_000) < peak(1_000) + 300_000
