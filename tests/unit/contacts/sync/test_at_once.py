"""Single rows that other tasks write while a sync reads its source."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import select

from cpaas_provider.contacts.errors import UnknownCreationsError
from cpaas_provider.contacts.key_map import key_map as key_map_module
from cpaas_provider.contacts.key_map.entries import Change, MapEntry, RowState
from cpaas_provider.contacts.key_map.key_map import KeyMap, Lease
from cpaas_provider.contacts.sync import dispatcher as dispatcher_module
from cpaas_provider.contacts.sync import planning as planning_module
from cpaas_provider.contacts.sync import sync as sync_module
from cpaas_provider.contacts.sync.decisions import SyncRules
from cpaas_provider.contacts.sync.rows.single_row import RowUpsert
from cpaas_provider.database.database import Database
from cpaas_provider.database.schema.contacts import contact_leases
from tests.unit.contacts.sync.model import KEY, Step, World
from tests.unit.contacts.sync.test_attacked import rows

_names = itertools.count()
ELSEWHERE = "not-in-the-source"


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatcher_module, "_BUSY_SECONDS", 0.0)
    # Several groups of rows, so that an upsert begins before its key is compared.
    monkeypatch.setattr(planning_module, "_GROUP_SIZE", 2)
    # The model knows nothing of upserts.
    monkeypatch.setattr(World, "check_run", lambda *_: None)
    monkeypatch.setattr(World, "check_map", lambda *_: None)


@pytest.fixture
def world(database: Database) -> World:
    return World(database, f"at-once-{next(_names)}")


class _WithHook(list[Any]):
    """Rows of a source, and a function that is called when half of them are read."""

    hook: Callable[[], None]

    def __iter__(self) -> Iterator[Any]:
        for number, row in enumerate(super().__iter__()):
            if number == len(self) // 2:
                self.hook()
            yield row


def begin_upsert(key_map: KeyMap, key: str) -> tuple[Lease, MapEntry]:
    """Write the intent of an upsert that creates a row, whose request is in flight from now on."""
    lease = key_map.row_lease(f"an upsert of {key}")
    before = MapEntry(key_map.hashes.of_key([key]))
    intent = replace(before, state=RowState.CREATING, fencing_token=lease.fencing_token, requested=key_map.clock())
    assert not lease.write([Change(before, intent)])
    return lease, replace(intent, version=1)


def end_upsert(lease: Lease, intent: MapEntry) -> None:
    row_id = f"row {intent.key_hash.hex()}"
    lease.write([Change(intent, replace(intent, state=RowState.SYNCED, row_id=row_id, fencing_token=None))])
    lease.release()


def while_source_is_read(world: World, monkeypatch: pytest.MonkeyPatch, hook: Callable[[], None]) -> None:
    original = World.source_rows

    def source_rows(self: World, step: Step) -> list[dict[str, Any]]:
        with_hook = _WithHook(original(self, step))
        with_hook.hook = hook
        return with_hook

    monkeypatch.setattr(World, "source_rows", source_rows)


def key_map_of(world: World) -> KeyMap:
    key_map = world.key_map
    assert key_map is not None
    return key_map


@pytest.mark.parametrize("key", ["k6", ELSEWHERE])
def test_upsert_that_begins_while_source_is_read_makes_no_unknown_creation(
    world: World, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    world.run(Step(rows(1)))
    under_way: list[tuple[Lease, MapEntry]] = []
    while_source_is_read(world, monkeypatch, lambda: under_way.append(begin_upsert(key_map_of(world), key)))
    planned = sync_module.check_changes

    def end_before_sending(*args: Any, **limits: Any) -> None:
        planned(*args, **limits)
        end_upsert(*under_way.pop())

    monkeypatch.setattr(sync_module, "check_changes", end_before_sending)
    (ended,) = world.run(Step(rows(8), on_unknown="fail"))
    assert not isinstance(ended.error, UnknownCreationsError), ended.error
    assert ended.report["unknown"] == 0
    assert ended.report["unknown_rows"] == []


@pytest.mark.parametrize("key", ["k4", ELSEWHERE])
def test_row_that_is_in_flight_to_the_end_is_not_reported_as_unknown(
    world: World, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    world.run(Step(rows(1)))
    under_way: list[tuple[Lease, MapEntry]] = []
    while_source_is_read(world, monkeypatch, lambda: under_way.append(begin_upsert(key_map_of(world), key)))
    (ended,) = world.run(Step(rows(4), on_unknown="fail"))
    assert ended.report["unknown"] == 0
    assert ended.report["not_sent"] == (key == "k4")


@pytest.mark.parametrize("key", ["k4", ELSEWHERE])
def test_upsert_that_is_killed_while_source_is_read_leaves_one_unknown_creation(
    world: World, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    world.run(Step(rows(1)))

    def kill_upsert() -> None:
        begin_upsert(key_map_of(world), key)
        world.let_leases_end_but(lambda owner: not owner.startswith("an upsert"))

    while_source_is_read(world, monkeypatch, kill_upsert)
    (ended,) = world.run(Step(rows(4), on_unknown="fail"))
    assert isinstance(ended.error, UnknownCreationsError)
    assert ended.report["unknown"] == 1


def test_result_that_is_recorded_after_the_entries_are_read_leaves_no_unknown_creation(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The upsert ends normally between the read of an entry and whatever is read next."""
    world.run(Step(rows(1)))
    key_map = key_map_of(world)
    under_way = [begin_upsert(key_map, "k2")]
    original = KeyMap.entries

    def entries(self: KeyMap, key_hashes: Any) -> dict[bytes, MapEntry]:
        found = original(self, key_hashes)
        if under_way:
            end_upsert(*under_way.pop())
        return found

    monkeypatch.setattr(KeyMap, "entries", entries)
    (ended,) = world.run(Step(rows(4), on_unknown="fail"))
    assert not isinstance(ended.error, UnknownCreationsError), ended.error
    assert ended.report["unknown"] == 0


def test_first_sync_is_not_refused_because_upserts_add_rows_meanwhile(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def upsert_others() -> None:
        for number in range(3):
            end_upsert(*begin_upsert(key_map_of(world), f"{ELSEWHERE} {number}"))

    while_source_is_read(world, monkeypatch, upsert_others)
    (ended,) = world.run(Step(rows(8), max_new=0.5))
    assert ended.error is None
    assert ended.report["created"] == 8


def test_lease_of_an_upsert_is_renewed_while_its_request_is_in_flight(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_map_module, "_RENEWAL_SECONDS", 0.001)
    world.run(Step(rows(1)))
    key_map = key_map_of(world)

    def end_of_lease() -> datetime:
        with key_map.database.connect() as connection:
            until: datetime = connection.execute(select(contact_leases.c.until)).scalar_one()
        return until

    renewed, renew = threading.Event(), Lease.renew

    def renew_and_tell(lease: Lease) -> None:
        renew(lease)
        renewed.set()

    monkeypatch.setattr(Lease, "renew", renew_and_tell)

    class Requests:
        async def run(self, call: Any) -> Any:
            before = end_of_lease()
            renewed.clear()
            assert await asyncio.to_thread(renewed.wait, 10)
            assert end_of_lease() > before
            return SimpleNamespace(row=SimpleNamespace(id="row-upsert", columns={}))

        async def pause(self, seconds: float) -> None:
            raise AssertionError("no other task uses the map")

    upsert = RowUpsert(key_map, Requests(), "an upsert", SyncRules(), {})
    assert asyncio.run(upsert.run(key_map.hashes.of_key(["k9"]), {"k": "k9"})).created


def test_query_that_takes_longer_than_the_lease_does_not_lose_it_to_an_upsert(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.run(Step(rows(1)))
    lease = timedelta(seconds=1)
    monkeypatch.setattr(key_map_module, "LEASE", lease)
    monkeypatch.setattr(key_map_module, "_RENEWAL_SECONDS", 0.1)

    def upsert_after_the_lease() -> None:
        time.sleep(1.5 * lease.total_seconds())
        key_map_of(world).row_lease("an upsert").release()

    while_source_is_read(world, monkeypatch, upsert_after_the_lease)
    (ended,) = world.run(Step(rows(4)))
    assert (ended.error, ended.report["created"]) == (None, 3)


@pytest.mark.parametrize("known", [0, 4])
def test_row_that_an_upsert_adds_while_source_is_read_is_deleted_by_the_next_run_only(
    world: World, monkeypatch: pytest.MonkeyPatch, known: int
) -> None:
    class Requests:
        async def run(self, call: Any) -> Any:
            cells = call.fields["columns"]
            return SimpleNamespace(row=SimpleNamespace(id=world.list.create(cells), columns=cells))

        async def pause(self, seconds: float) -> None:
            raise AssertionError("no other task uses the row")

    def upsert() -> None:
        key_map = key_map_of(world)
        rows_of_tasks = RowUpsert(key_map, Requests(), "an upsert", SyncRules(), {})
        asyncio.run(rows_of_tasks.run(key_map.hashes.of_key([ELSEWHERE]), {"k": ELSEWHERE}))

    world.run(Step(rows(known)))
    while_source_is_read(world, monkeypatch, upsert)
    (ended,) = world.run(Step(rows(4), on_missing="delete"))
    assert (ended.error, ended.report["deleted"], ended.report["missing_unchanged"]) == (None, 0, 1)
    assert world.list.of_key(ELSEWHERE)
    # The upsert changes nothing this time.
    (again,) = world.run(Step(rows(4), on_missing="delete"))
    assert (again.error, again.report["deleted"]) == (None, 1)


def test_row_of_an_upsert_in_flight_when_the_sync_begins_is_deleted_by_the_next_run_only(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.run(Step(rows(4)))
    lease, intent = begin_upsert(key_map_of(world), ELSEWHERE)
    row_id = world.list.create({KEY: ELSEWHERE})

    results = [Change(intent, replace(intent, state=RowState.SYNCED, row_id=row_id))]

    def record_result() -> None:
        if results:
            lease.write([results.pop()])
            lease.release()

    while_source_is_read(world, monkeypatch, record_result)
    (ended,) = world.run(Step(rows(4), on_missing="delete"))
    assert (ended.error, ended.report["deleted"], ended.report["missing_unchanged"]) == (None, 0, 1)
    (again,) = world.run(Step(rows(4), on_missing="delete"))
    assert (again.error, again.report["deleted"]) == (None, 1)
