"""Unknown creations resolved by a person, with rows read at the real service."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from cpaas_provider.api.client import CpaasClient
from cpaas_provider.api.models.contacts import ContactRowRecord
from cpaas_provider.contacts.errors import CannotResolveError, UnfinishedImportError
from cpaas_provider.contacts.key_map.entries import Change, MapEntry, RowState
from cpaas_provider.contacts.key_map.key_map import IMPORTING, KeyMap
from cpaas_provider.contacts.key_map.maps import open_map
from cpaas_provider.contacts.key_map.overview import leases_of, unknown_creations
from cpaas_provider.contacts.key_map.resolution import (
    check_created,
    find_by_key,
    find_by_row_number,
    resolve_created,
    resolve_not_created,
)
from cpaas_provider.database.database import Database
from tests.sandbox import Sandbox
from tests.unit.contacts.listed import NAME

NOW = datetime(2026, 11, 1, tzinfo=UTC)


@pytest.fixture
def client(sandbox: Sandbox) -> Iterator[CpaasClient]:
    with CpaasClient(sandbox.url, sandbox.api_key, allow_http=True) as opened:
        yield opened


@pytest.fixture
def key_map(database: Database, client: CpaasClient) -> KeyMap:
    return open_map(
        database, conn_id="cpaas_default", base_url=client.settings.base_url, table_id=client.get_contact_table().id
    )


def write(key_map: KeyMap, *entries: MapEntry) -> None:
    lease = key_map.row_lease("a sync")
    lease.write([Change(MapEntry(entry.key_hash), entry) for entry in entries])
    lease.release()


def unknown(key_map: KeyMap, *key: str, row: int = 7, state: RowState = RowState.UNKNOWN) -> MapEntry:
    entry = MapEntry(key_map.hashes.of_key(key), state, source_row=row, requested=NOW, fencing_token=1)
    write(key_map, entry)
    return entry


def now(key_map: KeyMap, entry: MapEntry) -> MapEntry | None:
    return key_map.entries([entry.key_hash]).get(entry.key_hash)


@pytest.mark.parametrize("state", [RowState.UNKNOWN, RowState.CREATING])
def test_created_row_gets_its_key(key_map: KeyMap, client: CpaasClient, state: RowState) -> None:
    entry = unknown(key_map, "ada", state=state)
    row_id = client.create_contact_row({NAME: "Ada"}).row.id
    resolve_created(key_map, find_by_key(key_map, [" ada "]), row_id, client)
    assert now(key_map, entry) == MapEntry(entry.key_hash, row_id=row_id, version=2)
    assert list(unknown_creations(key_map)) == []


def test_key_of_several_parts_and_row_number_find_the_same(key_map: KeyMap) -> None:
    unknown(key_map, "north", "17", row=9)
    unknown(key_map, "17", "north", row=10)
    found = find_by_key(key_map, ["north", "17"])
    assert (found.source_row, find_by_row_number(key_map, 9)) == (9, found)


def test_not_created_row_has_no_entry(key_map: KeyMap) -> None:
    for number in range(5):
        unknown(key_map, f"key {number}", row=number)
    entries = list(unknown_creations(key_map))
    assert resolve_not_created(key_map, entries) == 0
    assert sum(key_map.counts().values()) == 0
    assert leases_of(key_map) == []


def test_entry_that_a_sync_changed_meanwhile_is_left(key_map: KeyMap, client: CpaasClient) -> None:
    entry = unknown(key_map, "ada")
    stale = find_by_key(key_map, ["ada"])
    row_id = client.create_contact_row({NAME: "Ada"}).row.id
    lease = key_map.row_lease("a sync")
    lease.write([Change(stale, MapEntry(entry.key_hash, row_id="by the sync"))])
    with pytest.raises(CannotResolveError, match=r"Another task changed this entry meanwhile\. Nothing was changed\."):
        resolve_created(key_map, stale, row_id, client)
    assert resolve_not_created(key_map, [stale]) == 1
    assert (now(key_map, entry) or entry).row_id == "by the sync"


def test_row_that_is_not_there_is_refused(key_map: KeyMap, client: CpaasClient) -> None:
    entry = unknown(key_map, "ada")
    for row_id, words in (
        ("no-such-row", "has no row of this id"),
        ("a\tb", "This is no row id"),
        ("r" * 201, "no row id"),
    ):
        with pytest.raises(CannotResolveError, match=words):
            resolve_created(key_map, find_by_key(key_map, ["ada"]), row_id, client)
    assert (now(key_map, entry) or entry).state is RowState.UNKNOWN


def test_row_of_another_key_is_refused(key_map: KeyMap, client: CpaasClient) -> None:
    unknown(key_map, "ada")
    row_id = client.create_contact_row({NAME: "Obi"}).row.id
    write(key_map, MapEntry(key_map.hashes.of_key(["obi"]), row_id=row_id))
    with pytest.raises(CannotResolveError, match="has this row for another key already"):
        resolve_created(key_map, find_by_key(key_map, ["ada"]), row_id, client)


def test_creation_under_way_is_not_unknown(key_map: KeyMap) -> None:
    lease = key_map.lease("dag.sync of run")
    entry = MapEntry(key_map.hashes.of_key(["ada"]), RowState.CREATING, fencing_token=lease.fencing_token, source_row=7)
    lease.write([Change(MapEntry(entry.key_hash), entry)])
    with pytest.raises(CannotResolveError, match="a task has its creation under way now"):
        find_by_key(key_map, ["ada"])
    with pytest.raises(CannotResolveError, match="No unknown creations have the row number 7"):
        find_by_row_number(key_map, 7)
    lease.release()
    assert find_by_key(key_map, ["ada"]) == find_by_row_number(key_map, 7)


@pytest.mark.parametrize(
    ("key", "words"),
    [
        (["nobody"], "has no entry for this key"),
        (["synced"], "its row is known"),
        (["ada", "extra"], "has no entry for this key"),
        ([""], "A part of the key is blank"),
        (["a\0b"], "The key cannot be used: contains NUL characters"),
    ],
)
def test_key_without_an_unknown_creation(key_map: KeyMap, key: list[str], words: str) -> None:
    unknown(key_map, "ada")
    write(key_map, MapEntry(key_map.hashes.of_key(["synced"]), row_id="row-1"))
    with pytest.raises(CannotResolveError, match=words) as caught:
        find_by_key(key_map, key)
    assert "Nothing was changed." in str(caught.value)
    assert "nobody" not in str(caught.value)


def test_row_number_of_several_creations_is_refused(key_map: KeyMap) -> None:
    unknown(key_map, "ada")
    unknown(key_map, "obi")
    with pytest.raises(CannotResolveError, match="Several unknown creations have the row number 7"):
        find_by_row_number(key_map, 7)


def test_map_that_is_partly_imported_is_not_resolved(key_map: KeyMap) -> None:
    unknown(key_map, "ada")
    key_map.lease("an import").write([], {IMPORTING: {"rows": 3}})
    with pytest.raises(UnfinishedImportError):
        resolve_not_created(key_map, list(unknown_creations(key_map)))


def test_row_of_another_key_is_refused_in_whatever_case_its_id_is_written(key_map: KeyMap) -> None:
    row_id = "0b6ff9c4-6f0b-4f4e-9d0a-2d4f5f1c8a11"
    write(key_map, MapEntry(key_map.hashes.of_key(["obi"]), row_id=row_id))
    record = ContactRowRecord.model_validate({"row": {"id": row_id, "columns": {}}})
    with pytest.raises(CannotResolveError, match="has this row for another key"):
        check_created(key_map, row_id.upper(), lambda _: record)


def test_row_of_another_map_of_the_list_is_refused(key_map: KeyMap, client: CpaasClient) -> None:
    unknown(key_map, "ada")
    row_id = client.create_contact_row({NAME: "Obi"}).row.id
    facts = key_map.facts
    other = open_map(
        key_map.database, conn_id=facts.conn_id, base_url=facts.base_url, table_id=facts.table_id, name="crm"
    )
    write(other, MapEntry(other.hashes.of_key(["obi"]), row_id=row_id))
    with pytest.raises(CannotResolveError, match="The contact map 'crm' of connection 'cpaas_default' has this row"):
        resolve_created(key_map, find_by_key(key_map, ["ada"]), row_id, client)
