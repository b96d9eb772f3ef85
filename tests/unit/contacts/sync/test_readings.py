"""Readings of the contract, and other tasks, that once made a sync end with success over a wrong list."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator

import pytest

from cpaas_provider.contacts.sync import dispatcher as dispatcher_module
from cpaas_provider.database.database import Database, open_database
from tests.row_service import READINGS, RowService, Switches
from tests.unit.contacts.sync.row_world import BROKEN, REFUSED, RowWorld, Version

_names = itertools.count()


def row(number: int, name: str | None = "Ann", points: str | None = "1") -> tuple[str | None, ...]:
    return (f"k{number}", name, points, None, None, None)


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(dispatcher_module, "_BUSY_SECONDS", 0.01)
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture(scope="module")
def service() -> Iterator[RowService]:
    with RowService() as running:
        yield running


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    with open_database(f"sqlite:///{tmp_path_factory.mktemp('readings') / 'readings.db'}") as opened:
        yield opened


@pytest.fixture
def world(service: RowService, database: Database) -> RowWorld:
    return RowWorld(service, database, f"readings-{next(_names)}", Switches())


@pytest.mark.parametrize("name", [REFUSED, BROKEN])
@pytest.mark.parametrize("concurrency", [1, 4])
def test_rows_that_fail_together_keep_no_other_row_from_being_sent(
    world: RowWorld, name: str, concurrency: int
) -> None:
    world.max_concurrency = concurrency
    rows = tuple(row(number, name if 20 <= number < 45 else "Ann") for number in range(80))

    for _ in range(2):
        ended = world.run(Version(rows))

    assert len(world.list_by_key()) == 55
    assert not ended[0].is_complete
    world.check_calm(Version(rows), ended)


def test_updates_that_fail_together_keep_no_other_row_from_being_sent(world: RowWorld) -> None:
    world.run(Version(tuple(row(number) for number in range(40))))
    rows = tuple(row(number, REFUSED if 8 <= number < 30 else "Bob") for number in range(40))

    for _ in range(2):
        ended = world.run(Version(rows))

    assert sum(in_list[0]["Name"] == "Bob" for in_list in world.list_by_key().values()) == 18
    world.check_calm(Version(rows), ended)


@pytest.mark.parametrize("answer", READINGS["patch_answer"])
@pytest.mark.parametrize("empty", READINGS["empty_form"])
def test_patch_that_clears_omitted_cells_is_noticed_at_the_first_row(world: RowWorld, answer: str, empty: str) -> None:
    world.run(Version(tuple(row(number) for number in range(8))))
    world.service.switch(patch_omitted="clear", patch_answer=answer, empty_form=empty)

    (ended,) = world.run(Version(tuple(row(number, "Bob") for number in range(8))))

    assert len({change.row_id for change in world.service.table.log if change.method == "PATCH"}) == 1
    assert not ended.is_complete
    assert "row_updates" in str(ended.error)


@pytest.mark.parametrize("answer", READINGS["patch_answer"])
@pytest.mark.parametrize("empty", READINGS["empty_form"])
def test_patch_that_keeps_omitted_cells_is_never_taken_for_one_that_clears(
    world: RowWorld, answer: str, empty: str
) -> None:
    world.service.switch(patch_answer=answer, empty_form=empty)
    world.run(Version(tuple(row(number) for number in range(4))))

    (ended,) = world.run(Version(tuple(row(number, None if number < 2 else "Bob") for number in range(4))))

    assert ended.error is None
    assert ended.is_complete


def test_whole_rows_are_sent_to_a_service_that_clears_omitted_cells(world: RowWorld) -> None:
    world.row_updates = "whole"
    world.service.switch(patch_omitted="clear")
    world.run(Version(tuple(row(number) for number in range(4))))

    (ended,) = world.run(Version(tuple(row(number, "Bob") for number in range(4))))

    assert ended.is_complete
    assert all(in_list == [{"Key": key, "Name": "Bob", "Points": 1.0}] for key, in_list in world.list_by_key().items())


@pytest.mark.parametrize("get_gone", ["404_items", "400_bare", "400_empty", "410_empty", "200_bare", "200_null"])
@pytest.mark.parametrize("patch_gone", ["404_items", "400_bare", "400_empty", "410_empty", "200_missing", "200_bare"])
def test_gone_row_is_created_again_however_the_service_says_it(world: RowWorld, patch_gone: str, get_gone: str) -> None:
    world.service.switch(patch_gone=patch_gone, get_gone=get_gone)
    world.run(Version((row(1), row(2))))

    (ended,) = world.run(Version((row(1, "Bob"), row(2, "Bob")), vanishes=0))

    assert ended.error is None
    assert ended.is_complete
    assert {key: in_list[0]["Name"] for key, in_list in world.list_by_key().items()} == {"k1": "Bob", "k2": "Bob"}


@pytest.mark.parametrize("delete_gone", READINGS["delete_gone"])
@pytest.mark.parametrize("get_gone", ["404_items", "400_bare", "200_null"])
def test_deletion_of_a_gone_row_is_done(world: RowWorld, delete_gone: str, get_gone: str) -> None:
    world.service.switch(delete_gone=delete_gone, get_gone=get_gone)
    world.run(Version((row(1), row(2), row(3))))

    (ended,) = world.run(Version((row(1),), on_missing="delete", vanishes=2))

    assert ended.error is None
    assert ended.is_complete
    assert list(world.list_by_key()) == ["k1"]


@pytest.mark.parametrize("delete_answer", READINGS["delete_answer"])
def test_deletion_is_done_with_each_answer(world: RowWorld, delete_answer: str) -> None:
    world.service.switch(delete_answer=delete_answer)
    world.run(Version((row(1), row(2))))

    (ended,) = world.run(Version((row(1),), on_missing="delete"))

    assert ended.is_complete
    assert list(world.list_by_key()) == ["k1"]


@pytest.mark.parametrize("invalid_status", READINGS["invalid_status"])
@pytest.mark.parametrize("invalid_errors", ["items", "untyped"])
def test_refused_deletion_is_named_and_not_complete(world: RowWorld, invalid_status: int, invalid_errors: str) -> None:
    world.service.switch(invalid_status=invalid_status, invalid_errors=invalid_errors)
    world.run(Version((row(1), row(2))))
    world.service.kept_rows = {
        row_id for row_id, kept in world.service.table.rows.items() if "k2" in kept.columns.values()
    }

    (ended,) = world.run(Version((row(1),), on_missing="delete"))

    assert not ended.is_complete
    world.check_named(Version((row(1),), on_missing="delete"), [ended])
    assert set(world.list_by_key()) == {"k1", "k2"}


@pytest.mark.parametrize("number", [1, 2])
def test_upsert_that_begins_while_the_source_is_read_is_no_unknown_creation(world: RowWorld, number: int) -> None:
    version = Version(tuple(row(key, points=None) for key in range(3)), on_unknown="fail", upsert=number)
    world.run(Version((row(0, points=None),)))

    (ended,) = world.run(version)

    assert world.upsert_errors == []
    assert ended.error is None
    assert not world.differences(version)[0]


@pytest.mark.parametrize("bad", [row(2, REFUSED), row(2, points="x"), (None, "Ann", None, None, None, None)])
def test_run_that_leaves_a_row_out_is_not_complete(world: RowWorld, bad: tuple[str | None, ...]) -> None:
    world.run(Version((row(1), row(3))))

    (ended,) = world.run(Version((row(1), bad), on_missing="delete"))

    assert not ended.is_complete
