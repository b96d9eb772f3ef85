"""Syncs that would create a list a second time: into a map without rows, or with keys that changed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cpaas_provider.contacts.errors import LeaseTakenError, SecondMapError, TooManyChangesError
from cpaas_provider.contacts.key_map.maps import all_maps, check_new_map, is_list_of, open_map
from cpaas_provider.contacts.sync import dispatcher as dispatcher_module
from cpaas_provider.contacts.sync import sync as sync_module
from cpaas_provider.database.database import Database, open_database
from tests.unit.contacts.sync.model import URL, Ended, Fault, Step, World
from tests.unit.contacts.sync.test_attacked import rows


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Database]:
    with open_database(f"sqlite:///{tmp_path / 'store.db'}") as opened:
        yield opened


def sync(world: World, source: Any, **given: Any) -> Ended:
    """Run a sync with the defaults of the operator."""
    (ended,) = world.run(Step(source, **{"new_map": False, "max_new": 0.5, **given}))
    return ended


def test_first_sync_into_a_map_beside_one_with_rows_is_refused(own: Database) -> None:
    first, misspelt = World(own, "crm"), World(own, "cmr")
    assert sync(first, rows(3)).report["created"] == 3
    refused = sync(misspelt, rows(3))
    assert isinstance(refused.error, SecondMapError)
    assert "The map 'crm' of connection 'c' has 3 rows of the same contact list" in str(refused.error)
    assert "move-map --conn-id c --map crm --to-conn-id c --to-map cmr" in str(refused.error)
    assert refused.requests == []
    assert [key_map.facts.name for key_map in all_maps(own)] == ["crm"]
    allowed = sync(misspelt, (("k9", "1", "1"),), new_map=True)
    assert allowed.report["created"] == 1
    # The map has rows now.
    assert sync(misspelt, (("k9", "2", "1"),)).report["updated"] == 1


@pytest.mark.parametrize("base_url", [URL, f"{URL}/", "HTTPS://CPAAS.example.com:443"])
def test_other_connection_to_the_same_list_is_refused(own: Database, base_url: str) -> None:
    sync(World(own, "default"), rows(3))
    new: dict[str, Any] = {"conn_id": "renamed", "name": "default"}
    with pytest.raises(SecondMapError, match="move-map --conn-id c --map default --to-conn-id renamed"):
        check_new_map(own, base_url=base_url, table_id="t", **new)
    check_new_map(own, base_url="https://other.example.com", table_id="t", **new)
    check_new_map(own, base_url=base_url, table_id="other", **new)


def test_map_with_rejected_rows_only_does_not_count_as_filled(own: Database) -> None:
    sync(World(own, "first"), rows(1), faults=(Fault.REJECTED,))
    assert sync(World(own, "second"), rows(1)).report["created"] == 1
    assert isinstance(sync(World(own, "first"), rows(2)).error, SecondMapError)


def test_first_sync_is_refused_while_an_upsert_uses_another_map(own: Database) -> None:
    upserts = open_map(own, conn_id="c", base_url=URL, table_id="t", name="upserts")
    lease = upserts.row_lease("an upsert")
    refused = sync(World(own, "first"), rows(2))
    assert isinstance(refused.error, LeaseTakenError)
    assert "an upsert uses the contact map 'upserts' of connection 'c'" in str(refused.error)
    assert refused.requests == []
    lease.release()
    assert sync(World(own, "first"), rows(2)).report["created"] == 2


def test_sync_that_creates_no_row_may_use_an_empty_map(own: Database) -> None:
    sync(World(own, "first"), rows(3))
    assert sync(World(own, "second"), rows(3), mode="update").report["not_in_mode"] == 3


def test_keys_in_another_form_create_nothing(own: Database) -> None:
    world = World(own, "default")
    sync(world, tuple((str(number), "1", "1") for number in range(10)))
    refused = sync(world, tuple((f"{number}.0", "1", "1") for number in range(10)))
    assert isinstance(refused.error, TooManyChangesError)
    assert refused.requests == []
    for words in (
        "would create 10 rows, and max_new allows 5 (50% of 10)",
        "The map has 10 rows, and the source has 0 of these",
        "such as 1.0 for 1",
        "new_map=True",
        "start a run with max_new='unlimited', or set on_limit='ask'",
    ):
        assert words in str(refused.error)
    assert "9.0" not in str(refused.error)
    allowed = sync(world, tuple((f"{number}.0", "1", "1") for number in range(10)), max_new=None)
    assert allowed.report["created"] == 10


def test_list_that_grows_is_not_limited_by_a_share(own: Database) -> None:
    world = World(own, "default")
    sync(world, rows(3))
    assert sync(world, rows(40)).report["created"] == 37
    counted = sync(world, rows(60), max_new=19)
    assert "max_new allows 19." in str(counted.error)
    assert sync(world, rows(60), max_new=20).report["created"] == 20


def test_few_new_rows_of_a_delta_are_created(own: Database) -> None:
    world = World(own, "default")
    sync(world, rows(20))
    delta = tuple((f"n{number}", "1", "1") for number in range(10))
    assert sync(world, delta).report["created"] == 10


def test_first_sync_that_ran_out_of_time_goes_on(own: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(own, "default")

    class Clock:
        @staticmethod
        def monotonic() -> float:
            return world.clock

    monkeypatch.setattr(dispatcher_module, "time", Clock)
    monkeypatch.setattr(sync_module, "time", Clock)
    first = sync(world, rows(40), max_duration=1.0)
    assert 0 < first.report["created"] < 10
    assert sync(world, rows(40)).report["created"] == 40 - first.report["created"]


@pytest.mark.parametrize("base_url", ["https://BÜCHER.example/v1/", "https://xn--bcher-kva.example:443/v1"])
def test_host_in_punycode_is_the_same_list(own: Database, base_url: str) -> None:
    key_map = open_map(own, conn_id="c", base_url="https://bücher.example/v1", table_id="t")
    assert is_list_of(key_map.facts, base_url, "t")
    assert not is_list_of(key_map.facts, base_url.replace("v1", "v2"), "t")
