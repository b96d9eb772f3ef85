"""A contact list checked against its key map, with rows changed behind the map's back at the real service."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from cpaas_provider.api.client import AsyncCpaasClient, CpaasClient
from cpaas_provider.api.errors import CpaasAuthenticationError
from cpaas_provider.api.models.contacts import ContactTable
from cpaas_provider.api.recipients.msisdn import INTERNATIONAL
from cpaas_provider.contacts.key_map.entries import Change, MapEntry, RowState
from cpaas_provider.contacts.key_map.hashes import CellHashes, ContactHashes
from cpaas_provider.contacts.key_map.key_map import KeyMap
from cpaas_provider.contacts.key_map.maps import open_map
from cpaas_provider.contacts.key_map.overview import leases_of
from cpaas_provider.contacts.sync.verify import RowComparer, TooManyGoneError, Verification, VerifyReport
from cpaas_provider.database.database import Database
from tests.row_service import RowService
from tests.sandbox import Sandbox
from tests.unit.contacts.listed import NAME, POINTS, TAGS
from tests.unit.contacts.sync.real_syncs import COLUMNS, Contacts, rows

ROWS = 12


class List:
    """A contact list that a sync filled, and its map."""

    def __init__(self, sandbox: Sandbox, database: Database) -> None:
        self.sandbox = sandbox
        self.client = CpaasClient(sandbox.url, sandbox.api_key, allow_http=True, requests_per_second=1000)
        self.table = self.client.get_contact_table()
        self.map: KeyMap = open_map(
            database, conn_id="cpaas_default", base_url=sandbox.url, table_id=self.table.id, name="default"
        )
        for number in range(ROWS):
            self.add(f"key {number}", {NAME: f"Person {number}", POINTS: number})

    def add(self, key: str, cells: Mapping[str, Any], *, known: bool = True) -> MapEntry:
        """Create a row, and its entry."""
        row_id = self.client.create_contact_row(cells).row.id
        packed = self.map.hashes.of_cells(cells).to_bytes() if known else None
        return self.write(MapEntry(self.hash(key), row_id=row_id, raw_hash=b"r" * 16, cell_hashes=packed))

    def hash(self, key: str) -> bytes:
        return self.map.hashes.of_key([key])

    def entry(self, key: str) -> MapEntry:
        return self.map.entries([self.hash(key)])[self.hash(key)]

    def row_id(self, key: str) -> str:
        return self.entry(key).row_id or ""

    def write(self, entry: MapEntry) -> MapEntry:
        before = self.map.entries([entry.key_hash]).get(entry.key_hash, MapEntry(entry.key_hash))
        lease = self.map.row_lease("a sync")
        lease.write([Change(before, entry)])
        lease.release()
        return entry

    def verify(self, sample: int | None = None, **options: Any) -> VerifyReport:
        """Check the list."""
        return verified(self, VerifyReport(), sample, **options)


def verified(checked: List, report: VerifyReport, sample: int | None = None, **options: Any) -> VerifyReport:
    """Check a list, whatever ends the check."""
    seen: list[tuple[int, int]] = []

    async def run() -> None:
        client = AsyncCpaasClient(
            checked.sandbox.url, checked.sandbox.api_key, allow_http=True, requests_per_second=1000, max_concurrency=4
        )
        async with client:
            check = Verification(checked.map, client, checked.table, report, numbers=INTERNATIONAL, **options)
            await check.run(sample, lambda done, total: seen.append((done, total)))

    asyncio.run(run())
    assert [done for done, _ in seen] == list(range(1, len(seen) + 1))
    return report


@pytest.fixture
def contacts(sandbox: Sandbox, database: Database) -> List:
    return List(sandbox, database)


def test_list_that_is_in_step_has_equal_rows(contacts: List) -> None:
    assert contacts.verify() == VerifyReport(total=ROWS, checked=ROWS, equal=ROWS)


def test_drift_is_counted_by_column_and_mended_by_the_next_sync(contacts: List) -> None:
    contacts.client.update_contact_row(contacts.row_id("key 1"), {NAME: "Changed"})
    contacts.client.update_contact_row(contacts.row_id("key 2"), {NAME: "Changed", POINTS: None})
    contacts.client.delete_contact_row(contacts.row_id("key 3"))
    contacts.add("known by id alone", {NAME: "Ada"}, known=False)
    contacts.write(MapEntry(contacts.hash("open"), RowState.UNKNOWN, source_row=3))
    found = VerifyReport(
        total=ROWS + 1,
        checked=ROWS + 1,
        equal=ROWS - 3,
        different=2,
        gone=1,
        unknown=1,
        not_checked=1,
    )
    found.columns.update({"Name": 2, "Points": 1})
    before = contacts.entry("key 2")
    assert contacts.verify() == found
    assert contacts.entry("key 2") == before
    assert contacts.verify(mend=True) == replace(found, mended=3)
    mended = contacts.entry("key 2")
    assert (mended.raw_hash, CellHashes.from_bytes(mended.cell_hashes)) == (None, CellHashes())
    assert len(CellHashes.from_bytes(contacts.entry("key 1").cell_hashes)) == 1
    assert contacts.map.entries([contacts.hash("key 3")]) == {}
    assert leases_of(contacts.map) == []


@pytest.mark.parametrize("sample", [1, 5, ROWS + 5])
def test_sample_reads_so_many_rows(contacts: List, sample: int) -> None:
    before = contacts.sandbox.counters()["accepted"].get("get_contact_row", 0)
    report = contacts.verify(sample)
    assert report.checked == report.equal == report.total == min(sample, ROWS)
    assert contacts.sandbox.counters()["accepted"]["get_contact_row"] - before == min(sample, ROWS)


def test_row_that_a_sync_changes_meanwhile_is_left_to_it(contacts: List, monkeypatch: pytest.MonkeyPatch) -> None:
    stale = RowComparer.differing

    def sync_in_between(self: RowComparer, known: bytes | None, cells: Mapping[str, Any]) -> list[str]:
        if cells[NAME] == "Changed":
            contacts.write(replace(contacts.entry("key 1"), raw_hash=b"n" * 16))
        return stale(self, known, cells)

    contacts.client.update_contact_row(contacts.row_id("key 1"), {NAME: "Changed"})
    monkeypatch.setattr(RowComparer, "differing", sync_in_between)
    report = contacts.verify(mend=True)
    assert (report.different, report.changed, report.mended) == (0, 1, 0)
    assert contacts.entry("key 1").raw_hash == b"n" * 16


def test_many_rows_gone_stop_the_mending_of_all(contacts: List) -> None:
    for number in range(5):
        contacts.client.delete_contact_row(contacts.row_id(f"key {number}"))
    report = VerifyReport()
    with pytest.raises(TooManyGoneError, match="More than 3 rows are gone from the contact list"):
        verified(contacts, report, mend=True, max_gone=3)
    assert (report.mended, report.gone >= 4) == (0, True)
    assert sum(contacts.map.counts().values()) == ROWS
    assert contacts.verify(mend=True, max_gone=5).mended == 5


def test_service_that_refuses_the_key_ends_the_check(contacts: List) -> None:
    contacts.sandbox.control("POST", "faults", {"operation": "get_contact_row", "kind": "unauthorized"})
    report = VerifyReport()
    with pytest.raises(CpaasAuthenticationError):
        verified(contacts, report)
    assert report.equal == 0


def test_rows_that_cannot_be_read_are_counted(contacts: List) -> None:
    contacts.sandbox.control("POST", "faults", {"operation": "get_contact_row", "kind": "reject"})
    report = contacts.verify()
    assert (report.unreadable, report.equal) == (ROWS, 0)


TYPES = {
    "NUMBER": (1, [1, 1.0, "1", " 1 "], [2, "2", None, ""]),
    "TEXT": ("5", ["5", 5], ["6", None]),
    "DATE": ("2026-01-31", ["2026-01-31", "2026-01-31T00:00:00Z"], ["2026-02-01", None]),
    "PHONE NUMBER": ("2348035550101", ["2348035550101", "+234 803 555 0101"], ["2348035550102", None]),
    "EMAIL": ("ada@example.com", ["ada@example.com", "ada@EXAMPLE.com"], ["obi@example.com", ""]),
    "SELECT": ("Gold", ["Gold", " Gold "], ["Silver", None]),
    "MULTI SELECT": (["a", "b"], [["a", "b"], ["b", "a"], "a,b"], [["a"], [], None]),
    "URL": ("https://example.com/a", ["https://example.com/a", "HTTPS://example.com/a"], ["https://example.com/b"]),
}


@pytest.mark.parametrize("kind", TYPES)
def test_form_in_which_the_service_returns_a_cell_does_not_count(kind: str) -> None:
    sent, same, others = TYPES[kind]
    hashes = ContactHashes("secret")
    table = ContactTable.model_validate({"id": "t", "columns": [{"id": "c", "name": "C", "type": kind}]})
    comparer = RowComparer(table, hashes, INTERNATIONAL)
    known = hashes.of_cells({"c": sent, "gone": "x"}).to_bytes()
    assert [cell for cell in same if comparer.differing(known, {"c": cell})] == []
    assert [cell for cell in others if not comparer.differing(known, {"c": cell})] == []


@pytest.mark.parametrize("sent", [None, ""])
def test_cleared_cell_is_null_empty_or_absent(sent: str | None) -> None:
    hashes = ContactHashes("secret")
    table = ContactTable.model_validate({"id": "t", "columns": [{"id": "c", "name": "C", "type": "MULTI SELECT"}]})
    comparer = RowComparer(table, hashes, INTERNATIONAL)
    known = hashes.of_cells({"c": sent}).to_bytes()
    assert [cells for cells in ({"c": None}, {"c": ""}, {"c": []}, {}) if comparer.differing(known, cells)] == []
    assert comparer.differing(known, {"c": ["a"]}) == ["c"]


def test_options_in_another_order_are_equal(contacts: List) -> None:
    entry = contacts.add("tags", {TAGS: ["c", "a", "b"]})
    contacts.client.update_contact_row(entry.row_id or "", {TAGS: ["a", "b", "c"]})
    report = contacts.verify()
    assert report.different == 0


def test_sync_with_a_cursor_sends_what_was_mended(database: Database) -> None:
    with RowService(COLUMNS) as service:
        contacts = Contacts(service, database)
        source = [{**row, "version": number} for number, row in enumerate(rows(3))]
        contacts.sync(source, cursor_column="version")
        contacts.change_elsewhere("k1", {"c_plan": "changed"})
        assert contacts.verify(mend=True).mended == 1
        assert contacts.sync(source, cursor_column="version").report["updated"] == 1
