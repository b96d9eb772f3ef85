"""Erasing a recipient from key maps: entries by key and by cell, and nothing of other recipients."""

from __future__ import annotations

import pytest

from cpaas_provider.contacts.key_map.entries import Change, MapEntry, RowState
from cpaas_provider.contacts.key_map.erasure import ErasedEntries, erase_entries
from cpaas_provider.contacts.key_map.hashes import CellHashes
from cpaas_provider.contacts.key_map.key_map import IMPORTING, KeyMap
from cpaas_provider.contacts.key_map.maps import open_map
from cpaas_provider.contacts.key_map.overview import RECIPIENT_COLUMNS
from cpaas_provider.database.database import Database
from cpaas_provider.delivery.tracking.mentions import find
from tests.unit.contacts.sync.model import B, Step, World

ADA, OBI = "2348035550101", "2348035550102"


def made(database: Database, name: str = "default") -> KeyMap:
    return open_map(database, conn_id="cpaas_default", base_url="https://x.example.com", table_id="t", name=name)


def write(key_map: KeyMap, *entries: MapEntry, columns: list[str] | None = None) -> None:
    lease = key_map.lease("a sync")
    lease.write([Change(MapEntry(one.key_hash), one) for one in entries], {RECIPIENT_COLUMNS: columns or ["phone"]})
    lease.release()


def with_cells(key_map: KeyMap, key: str, cells: dict[str, object]) -> MapEntry:
    packed = key_map.hashes.of_cells(cells).to_bytes()
    return MapEntry(key_map.hashes.of_key([key]), row_id=f"row of {key} in {key_map.facts.name}", cell_hashes=packed)


def erased(database: Database, recipient: str, region: str | None = None) -> ErasedEntries:
    return erase_entries(database, recipient, region, find(recipient, region).keys)


@pytest.mark.parametrize(
    ("recipient", "region", "key"),
    [
        (f"+{ADA}", None, ADA),
        ("0803 555 0101", "NG", ADA),
        (f"+{ADA}", None, f"+{ADA}"),
        (f"+{ADA}", None, "08035550101"),
        ("0803 555 0101", "NG", "0803 555 0101"),
        ("Ada@Example.com", None, "Ada@example.com"),
        ("Ada@Example.com", None, "ada@example.com"),
    ],
)
def test_entry_whose_key_is_the_recipient_is_removed(
    database: Database, recipient: str, region: str | None, key: str
) -> None:
    key_map = made(database)
    write(key_map, MapEntry(key_map.hashes.of_key([key])), MapEntry(key_map.hashes.of_key(["other"])))
    assert erased(database, recipient, region) == ErasedEntries(removed=1, maps=1)
    assert key_map.counts()[RowState.SYNCED] == 1
    assert erased(database, recipient, region) == ErasedEntries()


@pytest.mark.parametrize(
    ("recipient", "column", "cell"),
    [(f"+{ADA}", "phone", ADA), ("Ada@Example.com", "email", "Ada@example.com")],
)
def test_entry_whose_cell_holds_the_recipient_is_removed_from_all_maps(
    database: Database, recipient: str, column: str, cell: str
) -> None:
    for name in ("default", "crm"):
        key_map = made(database, name)
        write(
            key_map,
            with_cells(key_map, "1", {"name": "Ada", column: cell}),
            with_cells(key_map, "2", {"name": cell, column: OBI}),
            with_cells(key_map, "3", {}),
            *(with_cells(key_map, f"more {number}", {column: str(number)}) for number in range(50)),
            columns=["phone", "email"],
        )
    assert erased(database, recipient) == ErasedEntries(removed=2, maps=2)
    assert key_map.counts()[RowState.SYNCED] == 52


@pytest.mark.parametrize("types", [["Email"], ["EMAIL", "TEXT"]])
def test_row_of_a_sync_is_found_by_its_cell_however_its_column_is_typed(database: Database, types: list[str]) -> None:
    world = World(database, "default")
    for written_type in types:
        world.list.types[B] = written_type
        world.run(Step((("k1", "1", "ada@example.com"),)))
    assert erased(database, "ada@example.com").removed == 1


def test_hash_that_crosses_two_cells_is_no_cell(database: Database) -> None:
    key_map = made(database)
    needle = key_map.hashes.of_cells({"phone": ADA}).to_bytes()
    crossing = b"\1" * 6 + needle + b"\2" * 6
    entry = MapEntry(key_map.hashes.of_key(["1"]), row_id="row", cell_hashes=crossing)
    also = MapEntry(key_map.hashes.of_key(["2"]), row_id="other row", cell_hashes=crossing + needle)
    write(key_map, entry, also)
    assert len(CellHashes.from_bytes(crossing)) == 2
    assert erased(database, f"+{ADA}").removed == 1
    assert key_map.entries([entry.key_hash])


def test_request_under_way_is_left_to_its_task(database: Database) -> None:
    key_map = made(database)
    write(key_map, with_cells(key_map, "1", {"phone": ADA}))
    lease = key_map.lease("dag.sync of run")
    entry = MapEntry(key_map.hashes.of_key([ADA]), RowState.CREATING, fencing_token=lease.fencing_token)
    lease.write([Change(MapEntry(entry.key_hash), entry)])
    assert erased(database, f"+{ADA}") == ErasedEntries(removed=1, maps=1, busy=1)
    lease.release()
    assert erased(database, f"+{ADA}") == ErasedEntries(removed=1, maps=1)


def test_recipient_is_erased_from_a_map_that_is_partly_imported(database: Database) -> None:
    key_map = made(database)
    write(key_map, MapEntry(key_map.hashes.of_key([ADA])))
    key_map.lease("an import").write([], {IMPORTING: {"rows": 3}})
    assert erased(database, f"+{ADA}").removed == 1


def test_database_without_maps(database: Database) -> None:
    assert erased(database, f"+{ADA}") == ErasedEntries()
