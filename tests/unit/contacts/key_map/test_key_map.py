"""The key map on both databases: leases, versions, and what a stale task can write."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import event

from cpaas_provider.api.settings import ClientSettings
from cpaas_provider.contacts.errors import (
    LeaseLostError,
    LeaseTakenError,
    MapMismatchError,
    MapNameError,
    UnfinishedImportError,
)
from cpaas_provider.contacts.key_map.entries import Change, MapEntry, RowState
from cpaas_provider.contacts.key_map.hashes import BUCKETS, CellHashes, ContactHashes, buckets_of
from cpaas_provider.contacts.key_map.key_map import IMPORTING, LEASE, KeyMap
from cpaas_provider.contacts.key_map.maps import forget_map, open_map
from cpaas_provider.contacts.key_map.overview import leases_of
from cpaas_provider.database.database import Database

URL = "https://cpaas.example.com"


class _Clock:
    def __init__(self) -> None:
        self.now = datetime(2026, 11, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def clock() -> _Clock:
    return _Clock()


@pytest.fixture
def key_map(database: Database, clock: _Clock) -> KeyMap:
    facts = open_map(database, conn_id="cpaas_default", base_url=URL, table_id="table").facts
    return KeyMap(database, facts, clock=clock)


def _synced(key_map: KeyMap, key: str, row_id: str) -> MapEntry:
    cells = key_map.hashes.of_cells({"a": "1", "b": "2"}).to_bytes()
    return MapEntry(key_map.hashes.of_key([key]), row_id=row_id, raw_hash=b"r" * 16, cell_hashes=cells)


def test_hashes_of_a_contact_depend_on_the_secret_of_its_map() -> None:
    """Otherwise a reader of the database could hash all numbers and compare."""
    one, another = ContactHashes("one"), ContactHashes("another")
    assert one.of_key(["2348031000001"]) != another.of_key(["2348031000001"])
    assert one.of_cell("c1", "2348031000001") != another.of_cell("c1", "2348031000001")
    rows = [hashes.of_row(hashes.row_secret("mapping"), ("2348031000001",)) for hashes in (one, another)]
    assert rows[0] != rows[1]


def test_entries_are_read_as_they_were_written(key_map: KeyMap) -> None:
    entries = [_synced(key_map, f"key {number}", f"row-{number}") for number in range(1_200)]
    lease = key_map.lease("a task")
    assert lease.write([Change(MapEntry(one.key_hash), one) for one in entries]) == {}
    found = key_map.entries([one.key_hash for one in entries])
    assert found == {one.key_hash: replace(one, version=1) for one in entries}
    assert key_map.raw_hashes([*found, b"0" * 16]) == {one.key_hash: b"r" * 16 for one in entries}
    assert [one.key_hash for page in key_map.pages(size=500) for one in page] == sorted(found)
    assert key_map.counts()[RowState.SYNCED] == 1_200
    halves = [sum(key_map.counts(buckets_of(part, 2)).values()) for part in range(2)]
    assert sum(halves) == 1_200
    assert all(halves)


def test_change_of_an_entry_that_changed_meanwhile_is_not_written(key_map: KeyMap) -> None:
    lease, single = key_map.lease("a sync"), key_map.row_lease("an upsert")
    entry = _synced(key_map, "key", "row")
    lease.write([Change(MapEntry(entry.key_hash), entry)])
    read = key_map.entries([entry.key_hash])[entry.key_hash]
    assert single.write([Change(read, replace(read, raw_hash=None))]) == {}
    changed = lease.write([Change(read, None)])
    assert changed == {entry.key_hash: replace(read, raw_hash=None, version=2)}
    assert key_map.entries([entry.key_hash])
    assert lease.write([Change(changed[entry.key_hash] or read, None)]) == {}
    assert key_map.entries([entry.key_hash]) == {}


def compare_without_case(database: Database, column: str, operator: str) -> None:
    """Have a database compare texts as MariaDB and MySQL do, if the query has small letters."""

    @event.listens_for(database.engine, "before_cursor_execute", retval=True)
    def change(connection: Any, cursor: Any, statement: str, parameters: Any, *_: Any) -> tuple[str, Any]:
        return statement.replace(f"{column} {operator}", f"lower({column}) {operator}"), parameters


def test_map_name_that_differs_by_case_does_not_lead_to_another_map(database: Database) -> None:
    options = {"conn_id": "cpaas_default", "base_url": URL, "table_id": "table"}
    open_map(database, name="CRM", **options)
    compare_without_case(database, "cpaas_contact_maps.name", "=")
    with pytest.raises(MapNameError, match="finds the contact map 'CRM' by the name 'crm'"):
        open_map(database, name="crm", **options)


def test_row_ids_that_differ_by_case_are_different_rows(key_map: KeyMap, database: Database) -> None:
    compare_without_case(database, "cpaas_contact_rows.row_id", "IN")
    lease = key_map.lease("a sync")
    for key, row in (("1", "AbC"), ("2", "abc")):
        entry = _synced(key_map, key, row)
        assert lease.write([Change(MapEntry(entry.key_hash), entry)]) == {}
    assert [entry.row_id for entry in key_map.entries_of_rows(["abc"])] == ["abc"]


def test_lease_keeps_others_from_its_buckets_until_it_ends(key_map: KeyMap, clock: _Clock) -> None:
    first = key_map.lease("first", buckets_of(0, 2))
    second = key_map.lease("second", buckets_of(1, 2))
    with pytest.raises(LeaseTakenError, match="first syncs this contact list now"):
        key_map.lease("third", buckets_of(1, 4))
    second.release()
    key_map.lease("third", buckets_of(3, 4))
    clock.now += LEASE + timedelta(seconds=1)
    key_map.lease("fourth", (0, BUCKETS))
    entry = _synced(key_map, "key", "row")
    with pytest.raises(LeaseLostError, match="has ended"):
        first.write([Change(MapEntry(entry.key_hash), entry)])
    assert key_map.entries([entry.key_hash]) == {}


def test_retry_of_the_same_task_takes_the_lease_over(key_map: KeyMap) -> None:
    earlier = key_map.lease("dag.task of run")
    later = key_map.lease("dag.task of run")
    assert later.fencing_token > earlier.fencing_token
    with pytest.raises(LeaseLostError):
        earlier.renew()
    later.renew()
    assert [lease.owner for lease in leases_of(key_map)] == ["dag.task of run"]


def test_write_prolongs_the_lease(key_map: KeyMap, clock: _Clock) -> None:
    lease = key_map.lease("a task")
    for _ in range(3):
        clock.now += LEASE - timedelta(seconds=1)
        lease.write([], {"cursor": clock.now.isoformat()})
    assert key_map.value("cursor") == clock.now.isoformat()
    assert key_map.value("none") is None


def test_map_of_another_service_is_refused(database: Database, key_map: KeyMap) -> None:
    open_map(database, conn_id="cpaas_default", base_url=URL, table_id="table")
    for changed in ({"base_url": "https://other.example.com"}, {"table_id": "other"}):
        with pytest.raises(MapMismatchError, match="move-map --conn-id cpaas_default --map default"):
            open_map(database, **{"conn_id": "cpaas_default", "base_url": URL, "table_id": "table", **changed})
    assert open_map(database, conn_id="cpaas_default", base_url=URL, table_id="table", name="crm").facts.secret != (
        key_map.facts.secret
    )


@pytest.mark.parametrize("written", [f"{URL}/", f" {URL}//", "https://CPAAS.Example.com", f"{URL}:443", f"{URL}:443/"])
def test_base_url_in_another_form_is_that_of_the_same_service(
    database: Database, key_map: KeyMap, written: str
) -> None:
    found = open_map(database, conn_id="cpaas_default", base_url=written, table_id="table")
    assert found.facts.map_id == key_map.facts.map_id
    assert ClientSettings(written, "key").base_url == URL


@pytest.mark.parametrize("other", [f"{URL}/v2", f"{URL}:8443", "http://cpaas.example.com"])
def test_other_base_url_is_refused_without_advice_that_costs_rows(
    database: Database, key_map: KeyMap, other: str
) -> None:
    with pytest.raises(MapMismatchError, match="another base URL") as refused:
        open_map(database, conn_id="cpaas_default", base_url=other, table_id="table")
    assert "forget-map" not in str(refused.value)


def test_forget_map_removes_all_of_it_and_nothing_else(database: Database, key_map: KeyMap) -> None:
    other = open_map(database, conn_id="other", base_url=URL, table_id="table")
    for one in (key_map, other):
        lease = one.lease("a task")
        entry = _synced(one, "key", "row")
        lease.write([Change(MapEntry(entry.key_hash), entry)], {"cursor": 1})
        lease.release()
    assert forget_map(key_map) == 1
    assert sum(other.counts().values()) == 1
    assert open_map(database, conn_id="cpaas_default", base_url=URL, table_id="table").value("cursor") is None


def test_resync_has_every_row_count_as_not_known(key_map: KeyMap) -> None:
    entries = [_synced(key_map, f"key {number}", f"row-{number}") for number in range(100)]
    part = key_map.lease("a part", buckets_of(0, 4))
    whole = key_map.lease("a part", (0, BUCKETS))
    whole.write([Change(MapEntry(one.key_hash), one) for one in entries])
    whole.release()
    part = key_map.lease("a part", buckets_of(0, 4))
    count = part.forget_cells({"resync": "run"})
    assert 0 < count < 100
    left = key_map.raw_hashes([one.key_hash for one in entries])
    assert len(left) == 100 - count


def test_map_with_a_part_of_an_import_gives_a_lease_to_the_import_alone(key_map: KeyMap) -> None:
    with_flag = key_map.lease("an import", while_importing=True)
    with_flag.write([], {IMPORTING: {"rows": 3}})
    with_flag.release()
    for take in (key_map.lease, key_map.row_lease):
        with pytest.raises(UnfinishedImportError, match="import-map again to finish it"):
            take("a sync")
    again = key_map.lease("an import", while_importing=True)
    again.write([], {IMPORTING: None})
    again.release()
    key_map.lease("a sync").release()


def test_cell_hashes_are_packed_and_unpacked(key_map: KeyMap) -> None:
    hashes = key_map.hashes.of_cells({"a": "1", "b": None, "c": ["x", "y"]})
    assert CellHashes.from_bytes(hashes.to_bytes()) == hashes
    assert hashes.has("a", key_map.hashes.of_cell("a", "1"))
    assert not hashes.has("a", key_map.hashes.of_cell("a", 1))
    assert not hashes.without(["a"]).has("a", key_map.hashes.of_cell("a", "1"))
    assert len(hashes.to_bytes()) == 36


def test_parts_of_a_key_are_distinguished(key_map: KeyMap) -> None:
    assert key_map.hashes.of_key(["ab", "c"]) != key_map.hashes.of_key(["a", "bc"])
