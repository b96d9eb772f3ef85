"""Key maps as files: what one database exports, another one imports, and everything else is refused whole."""

from __future__ import annotations

import csv
import os
import stat
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from cpaas_provider.contacts.errors import (
    LeaseTakenError,
    MapFileError,
    MapMismatchError,
    NoMapError,
    UnfinishedImportError,
)
from cpaas_provider.contacts.key_map.entries import Change, MapEntry, RowState
from cpaas_provider.contacts.key_map.files.map_files import export_map, is_export
from cpaas_provider.contacts.key_map.importing import ImportReport, Target, restore_map
from cpaas_provider.contacts.key_map.key_map import IMPORTING, KeyMap
from cpaas_provider.contacts.key_map.maps import all_maps, find_map, open_map
from cpaas_provider.contacts.key_map.overview import leases_of, values_of
from cpaas_provider.database.database import Database, open_database
from cpaas_provider.sources.csv_file import CsvSource

URL = "https://cpaas.example.com"
NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)
VALUES = {"cursor": "2026-10-31", "key_columns": ["customer_id"], "recipient_columns": ["c2"]}


def silent(done: str, rows: int) -> None:
    """Show no progress."""


def filled(database: Database, keys: int = 2_100) -> KeyMap:
    """Return a map with entries of all states."""
    found = open_map(database, conn_id="cpaas_default", base_url=URL, table_id="table")
    hashes = found.hashes
    entries = [
        MapEntry(
            hashes.of_key([f"key {number}"]),
            row_id=f"row-{number}",
            raw_hash=hashes.of_row(b"s", (number,)),
            cell_hashes=hashes.of_cells({"c1": number, "c2": None}).to_bytes(),
            missing_hash=b"m" * 16 if number % 100 == 0 else None,
            rejected_hash=b"x" * 16 if number % 50 == 0 else None,
        )
        for number in range(keys)
    ]
    entries += [
        MapEntry(hashes.of_key(["unknown"]), RowState.UNKNOWN, source_row=7, requested=NOW),
        MapEntry(hashes.of_key(["creating"]), RowState.CREATING, source_row=8, requested=NOW),
        MapEntry(hashes.of_key(["rejected"]), RowState.REJECTED, rejected_hash=b"r" * 16),
        MapEntry(hashes.of_key(["updating"]), RowState.UPDATING, row_id="row, with a comma", cell_hashes=b""),
        MapEntry(hashes.of_key(["deleting"]), RowState.DELETING, row_id="row-d"),
        MapEntry(hashes.of_key(["formula"]), row_id="=HYPERLINK(1)"),
        MapEntry(hashes.of_key(["quote"]), row_id="'=1"),
    ]
    with_values = found.lease("a sync")
    with_values.write([Change(MapEntry(one.key_hash), one) for one in entries], VALUES)
    with_values.release()
    return found


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeyMap]:
    """A map of more than one page that is only read."""
    with open_database(f"sqlite:///{tmp_path_factory.mktemp('origin')}/cpaas.db") as opened:
        yield filled(opened)


@pytest.fixture(scope="module")
def exported(origin: KeyMap, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What it is as a file."""
    path = tmp_path_factory.mktemp("exported") / "map.csv"
    assert export_map(origin, path, silent) == 2_107
    # The first file that a process opens has Airflow loaded.
    assert is_export(CsvSource(path))
    return path


@pytest.fixture
def key_map(sqlite_url: str) -> Iterator[KeyMap]:
    """A small map."""
    with open_database(sqlite_url) as opened:
        yield filled(opened, 20)


@pytest.fixture
def elsewhere(sqlite_url: str) -> Iterator[Database]:
    """Another database."""
    with open_database(sqlite_url) as opened:
        yield opened


def target(database: Database, **changes: Any) -> Target:
    facts = {"conn_id": "cpaas_default", "name": "default", "base_url": URL, "table_id": "table", **changes}
    return Target(database, **facts)


def restored(database: Database, path: Path, **options: Any) -> ImportReport:
    return restore_map(target(database), CsvSource(path), silent, **options)


def entries_of(key_map: KeyMap) -> list[MapEntry]:
    """Return all entries without what a database gives them."""
    found = [entry for page in key_map.pages() for entry in page]
    return [replace(one, version=0, fencing_token=None, cell_hashes=one.cell_hashes or None) for one in found]


class TestRoundTrip:
    def test_another_database_has_the_same_map_and_hashes(
        self, origin: KeyMap, exported: Path, database: Database, tmp_path: Path
    ) -> None:
        report = restored(database, exported)
        assert report == ImportReport(rows=2_107, added=2_107)
        found = find_map(database, conn_id="cpaas_default")
        assert found.facts.secret == origin.facts.secret
        assert entries_of(found) == entries_of(origin)
        assert values_of(found) == VALUES
        key = found.hashes.of_key(["key 17"])
        assert found.raw_hashes([key]) == {key: origin.hashes.of_row(b"s", (17,))}
        export_map(found, tmp_path / "again.csv", silent)
        assert (tmp_path / "again.csv").read_text() == exported.read_text()
        assert restored(database, exported) == ImportReport(rows=2_107, present=2_107)

    def test_empty_map_of_the_target_gives_way(self, origin: KeyMap, exported: Path, database: Database) -> None:
        empty = open_map(database, conn_id="cpaas_default", base_url=URL, table_id="table")
        empty.lease("a sync").release()
        restored(database, exported)
        found = find_map(database, conn_id="cpaas_default")
        assert (found.facts.secret, found.facts.map_id != empty.facts.map_id) == (origin.facts.secret, True)
        with pytest.raises(NoMapError):
            empty.lease("a sync that has read the old secret")

    def test_dry_run_writes_nothing(self, exported: Path, elsewhere: Database) -> None:
        assert restored(elsewhere, exported, dry_run=True) == ImportReport(rows=2_107, added=2_107)
        assert all_maps(elsewhere) == []

    def test_empty_map_is_exported_and_imported(self, elsewhere: Database, database: Database, tmp_path: Path) -> None:
        empty = open_map(database, conn_id="other", base_url=URL, table_id="table")
        assert export_map(empty, tmp_path / "empty.csv", silent) == 0
        assert restored(elsewhere, tmp_path / "empty.csv") == ImportReport()
        assert find_map(elsewhere, conn_id="cpaas_default").facts.secret == empty.facts.secret


class TestExportedFile:
    def test_exported_file_is_readable_by_its_owner_only(self, exported: Path) -> None:
        assert stat.S_IMODE(exported.stat().st_mode) == 0o600

    def test_exported_file_has_no_key_and_no_formula(self, exported: Path) -> None:
        with exported.open(newline="") as file:
            rows = list(csv.reader(file))
        assert rows[1][:3] == ["key_hash", "row_id", "state"]
        cells = [cell for row in rows[2:-1] for cell in row]
        assert not any(cell.startswith(("=", "+", "-", "@")) for cell in cells)
        assert "key 17" not in exported.read_text()

    def test_existing_file_is_not_overwritten(self, key_map: KeyMap, tmp_path: Path) -> None:
        path = tmp_path / "mine.csv"
        path.write_text("mine")
        with pytest.raises(MapFileError, match=r"exists\. Nothing was exported\."):
            export_map(key_map, path, silent)
        assert path.read_text() == "mine"

    def test_link_is_not_followed(self, key_map: KeyMap, tmp_path: Path) -> None:
        (tmp_path / "link.csv").symlink_to(tmp_path / "target.csv")
        with pytest.raises(MapFileError, match="exists"):
            export_map(key_map, tmp_path / "link.csv", silent)
        assert not (tmp_path / "target.csv").exists()

    def test_folder_that_does_not_exist(self, key_map: KeyMap, tmp_path: Path) -> None:
        with pytest.raises(MapFileError, match=r"cannot be written \(No such file or directory\)"):
            export_map(key_map, tmp_path / "none" / "map.csv", silent)

    @pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
    def test_disk_that_is_full(self, key_map: KeyMap, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path, opened = tmp_path / "map.csv", os.open

        def on_full_disk(file: Any, *options: Any, **more: Any) -> int:
            return opened("/dev/full", os.O_WRONLY) if file in (path, tmp_path) else opened(file, *options, **more)

        monkeypatch.setattr(os, "open", on_full_disk)
        # The device keeps its mode.
        monkeypatch.setattr(os, "chmod", lambda *_: None)
        with pytest.raises(MapFileError, match=r"cannot be written \(No space left on device\)"):
            export_map(key_map, path, silent)

    def test_export_without_its_secret_is_not_imported(
        self, key_map: KeyMap, elsewhere: Database, tmp_path: Path
    ) -> None:
        path = tmp_path / "bare.csv"
        export_map(key_map, path, silent, with_secret=False)
        assert key_map.facts.secret not in path.read_text()
        with pytest.raises(MapFileError, match=r"was exported without its secret\. Nothing was written\."):
            restored(elsewhere, path)


class TestConcurrentExport:
    def test_running_sync_is_waited_for(self, key_map: KeyMap, tmp_path: Path) -> None:
        key_map.lease("dag.sync of run")
        with pytest.raises(LeaseTakenError, match=r"dag\.sync of run syncs this contact list now"):
            export_map(key_map, tmp_path / "map.csv", silent)
        assert not (tmp_path / "map.csv").exists()

    def test_running_upsert_is_waited_for(self, key_map: KeyMap, tmp_path: Path) -> None:
        lease = key_map.row_lease("dag.upsert of run")
        with pytest.raises(MapFileError, match=r"dag\.upsert of run writes to this contact map now"):
            export_map(key_map, tmp_path / "map.csv", silent)
        lease.release()
        assert export_map(key_map, tmp_path / "map.csv", silent) == 27

    def test_upsert_during_the_export_ends_it(self, key_map: KeyMap, tmp_path: Path) -> None:
        def upsert(done: str, rows: int) -> None:
            key_map.row_lease("dag.upsert of run").release()

        with pytest.raises(MapFileError, match="Another task wrote to the contact map during the export"):
            export_map(key_map, tmp_path / "map.csv", upsert)
        assert not (tmp_path / "map.csv").exists()

    def test_stopped_export_leaves_no_file_and_no_lease(self, key_map: KeyMap, tmp_path: Path) -> None:
        def stop(done: str, rows: int) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            export_map(key_map, tmp_path / "map.csv", stop)
        assert not (tmp_path / "map.csv").exists()
        assert leases_of(key_map) == []

    def test_lease_lasts_as_long_as_the_export(self, key_map: KeyMap, tmp_path: Path) -> None:
        now = [datetime.now(UTC)]
        slow = KeyMap(key_map.database, key_map.facts, clock=lambda: now[0])

        def wait(done: str, rows: int) -> None:
            now[0] += timedelta(minutes=4)
            with pytest.raises(LeaseTakenError):
                KeyMap(key_map.database, key_map.facts, clock=lambda: now[0]).lease("dag.sync of run")

        assert export_map(slow, tmp_path / "map.csv", wait) == 27


def _change(text: str, place: int, cell: str) -> str:
    lines = text.splitlines(keepends=True)
    index = next(number for number, line in enumerate(lines) if ",synced," in line)
    cells = lines[index].split(",")
    cells[place] = cell
    lines[2], lines[index] = ",".join(cells), lines[2] if index != 2 else ",".join(cells)
    return "".join(lines)


def _twice(text: str) -> str:
    lines = text.splitlines(keepends=True)
    return "".join([*lines[:3], lines[2], *lines[4:]])


DAMAGES = {
    "cut off": (lambda text: text[: len(text) // 2], "is damaged on line|is incomplete"),
    "cut off between lines": (lambda text: "\n".join(text.splitlines()[:100]) + "\n", "is incomplete"),
    "a line is gone": (lambda text: "\n".join(text.splitlines()[:50] + text.splitlines()[51:]), "is incomplete"),
    "more behind the end": (lambda text: text + "more\n", "is incomplete"),
    "another version": (lambda text: text.replace('"version": 2', '"version": 3'), "another version of"),
    "no secret to read": (lambda text: text.replace('"secret": "', '"secret": "x'), "damaged on line 1"),
    "head that is no JSON": (lambda text: text.replace("{", "", 1), "damaged on line 1"),
    "other columns": (lambda text: text.replace("row_id", "id", 1), "damaged on line 2"),
    "state nobody knows": (
        lambda text: text.replace(",synced,", ",lost,", 1),
        "damaged on line 3: its state is unknown",
    ),
    "no row id": (lambda text: _change(text, 1, ""), "damaged on line 3: it has no row id"),
    "row id with a tab": (lambda text: _change(text, 1, "a\tb"), "damaged on line 3: the row id has control"),
    "row id of 201 characters": (lambda text: _change(text, 1, "r" * 201), "damaged on line 3: the row id has"),
    "hash as a spreadsheet saves it": (lambda text: _change(text, 0, "1.23457E+31"), "damaged on line 3: a hash is"),
    "no key": (lambda text: _change(text, 0, ""), "damaged on line 3: it has no key"),
    "half a hash of cells": (lambda text: _change(text, 6, "ab" * 13), "damaged on line 3: a hash is damaged"),
    "too few cells": (lambda text: text.replace(",\n", "\n", 1), "damaged on line 3: it has too few"),
    "no moment": (lambda text: text.replace(NOW.isoformat(), "yesterday"), r"damaged on line \d+: "),
    "key twice": (_twice, r"The same key is there twice \(1 time, on line 3 and 4\)"),
    "not UTF-8": (lambda text: text.replace("row-1", "row-\udcff", 1), "is not UTF-8|damaged"),
}


@pytest.mark.parametrize(("damage", "words"), DAMAGES.values(), ids=DAMAGES)
def test_damaged_file_is_refused_and_nothing_is_written(
    exported: Path, elsewhere: Database, tmp_path: Path, damage: Any, words: str
) -> None:
    damaged = tmp_path / "damaged.csv"
    damaged.write_text(damage(exported.read_text()), errors="surrogateescape")
    with pytest.raises(MapFileError, match=words) as caught:
        restored(elsewhere, damaged)
    assert "Nothing was written." in str(caught.value)
    assert all_maps(elsewhere) == []


class TestRefused:
    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            ({"base_url": "https://other.example.com"}, "exported from a map of another base URL"),
            ({"table_id": "other"}, "exported from a map of another contact table"),
        ],
    )
    def test_file_of_another_list(
        self, exported: Path, elsewhere: Database, changes: dict[str, str], words: str
    ) -> None:
        with pytest.raises(MapMismatchError, match=words):
            restore_map(target(elsewhere, **changes), CsvSource(exported), silent)

    def test_map_that_has_entries_of_its_own(self, exported: Path, elsewhere: Database) -> None:
        other = open_map(elsewhere, conn_id="cpaas_default", base_url=URL, table_id="table")
        entry = MapEntry(other.hashes.of_key(["key 1"]), row_id="row-1")
        lease = other.lease("a sync")
        lease.write([Change(MapEntry(entry.key_hash), entry)])
        lease.release()
        with pytest.raises(MapFileError, match=r"has entries of its own\. Nothing was written\."):
            restored(elsewhere, exported)
        assert len(entries_of(other)) == 1

    def test_map_that_went_on_since_the_import(self, exported: Path, elsewhere: Database) -> None:
        restored(elsewhere, exported)
        key_map = find_map(elsewhere, conn_id="cpaas_default")
        key = key_map.hashes.of_key(["key 17"])
        before = key_map.entries([key])[key]
        lease = key_map.lease("a sync")
        lease.write([Change(before, replace(before, raw_hash=b"n" * 16))])
        lease.release()
        with pytest.raises(MapFileError, match=r"another row id or other hashes for the key \(1 time, on line \d+\)"):
            restored(elsewhere, exported)

    def test_rows_that_another_map_of_the_list_has(self, key_map: KeyMap, tmp_path: Path) -> None:
        export_map(key_map, tmp_path / "map.csv", silent)
        copy = target(key_map.database, name="copy")
        with pytest.raises(MapFileError, match="The contact map 'default' of connection 'cpaas_default' has the row"):
            restore_map(copy, CsvSource(tmp_path / "map.csv"), silent)
        assert [found.facts for found in all_maps(key_map.database)] == [key_map.facts]

    def test_sync_of_the_target(self, exported: Path, elsewhere: Database) -> None:
        empty = open_map(elsewhere, conn_id="cpaas_default", base_url=URL, table_id="table")
        empty.lease("dag.sync of run")
        with pytest.raises(LeaseTakenError):
            restored(elsewhere, exported)
        assert find_map(elsewhere, conn_id="cpaas_default").facts == empty.facts


def test_stopped_import_goes_on_and_meanwhile_no_sync_gets_the_map(
    origin: KeyMap, exported: Path, database: Database
) -> None:
    def stop(done: str, rows: int) -> None:
        if done == "written":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        restore_map(target(database), CsvSource(exported), stop)
    found = find_map(database, conn_id="cpaas_default")
    assert found.value(IMPORTING)["rows"] == 2_107
    assert len(entries_of(found)) == 2_000
    assert leases_of(found) == []
    for take in (found.lease, found.row_lease):
        with pytest.raises(UnfinishedImportError, match="import-map again to finish it"):
            take("dag.sync of run")
    report = restored(database, exported)
    assert (report.present, report.added) == (2_000, 107)
    assert entries_of(found) == entries_of(origin)
    found.lease("dag.sync of run").release()
