"""What a report says is not equal between list and source, and that its figures add up."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator
from dataclasses import replace

import pytest

from cpaas_provider.contacts.key_map.entries import Change, MapEntry, RowState
from cpaas_provider.contacts.key_map.resolution import retry_rejected
from cpaas_provider.contacts.sync import dispatcher as dispatcher_module
from cpaas_provider.contacts.sync import sync as sync_module
from cpaas_provider.database.database import Database, open_database
from tests.unit.contacts.sync import model
from tests.unit.contacts.sync.model import Ended, Fault, Step, World, sum_of
from tests.unit.contacts.sync.test_attacked import rows

_names = itertools.count()
BLANK = ((None, "1", "1"),)


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatcher_module, "_BUSY_SECONDS", 0.0)


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    with open_database(f"sqlite:///{tmp_path_factory.mktemp('complete') / 'store.db'}") as opened:
        yield opened


@pytest.fixture
def world(here: Database) -> World:
    return World(here, f"complete-{next(_names)}")


def causes(ended: Ended) -> dict[str, int]:
    assert ended.report["complete"] == (not ended.report["incomplete_because"])
    return dict(ended.report["incomplete_because"])


def test_list_in_step_is_complete(world: World) -> None:
    (first,) = world.run(Step(rows(3)))
    assert causes(first) == {}
    (second,) = world.run(Step(rows(2), on_missing="delete"))
    assert causes(second) == {}


def test_blank_key_names_the_number_of_deletions_that_were_not_done(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.run(Step(rows(9)))
    with caplog.at_level(logging.WARNING):
        (ended,) = world.run(Step(rows(4) + BLANK, on_missing="delete"))
    assert causes(ended) == {"invalid_rows": 1, "missing_skipped": 5}
    assert (ended.report["missing"], ended.report["deleted"]) == (5, 0)
    assert "5 rows were not deleted or cleared" in caplog.text
    assert "The list does not equal the source: 1 invalid row, 5 missing rows skipped." in caplog.text


def test_rejected_row_is_incomplete_now_and_in_the_next_run(world: World) -> None:
    (first,) = world.run(Step(rows(3), faults=(Fault.REJECTED,)))
    assert causes(first) == {"rejected": 1}
    (second,) = world.run(Step(rows(3)))
    assert causes(second) == {"rejected_before": 1}


def test_unknown_creation_is_incomplete(world: World) -> None:
    (ended,) = world.run(Step(rows(3), faults=(Fault.LOST_AFTER,)))
    assert causes(ended) == {"unknown": 1}


def test_rows_that_mode_leaves_alone_are_incomplete_only_if_they_differ(world: World) -> None:
    world.run(Step(rows(2)))
    (ended,) = world.run(Step((("k1", "1", "1"), ("k2", "2", "1")), mode="insert"))
    assert causes(ended) == {"not_in_mode": 1}
    (ended,) = world.run(Step((("k1", "1", "1"), ("k9", "2", "1")), mode="update"))
    assert causes(ended) == {"not_in_mode": 1}
    # The map lost the hash of the whole row, and the list has its cells.
    assert world.key_map is not None
    lease = world.key_map.lease("an upsert")
    lease.write([Change(entry, replace(entry, raw_hash=None)) for page in world.key_map.pages() for entry in page])
    lease.release()
    (ended,) = world.run(Step(rows(2), mode="insert"))
    assert causes(ended) == {}


def test_row_that_another_task_sends_to_the_end_is_incomplete_as_not_sent(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.run(Step(rows(1)))
    assert world.key_map is not None
    lease = world.key_map.row_lease("an upsert")
    before = MapEntry(world.key_map.hashes.of_key(["k2"]))
    lease.write([Change(before, replace(before, state=RowState.CREATING, fencing_token=lease.fencing_token))])
    (ended,) = world.run(Step(rows(2)))
    assert causes(ended) == {"not_sent": 1}


def test_sync_that_is_stopped_by_a_limit_is_incomplete(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.run(Step(rows(3)))
    (ended,) = world.run(Step((), on_missing="delete"))
    assert causes(ended) == {"ended_early": 1, "remaining": 3}


def test_source_that_breaks_is_incomplete_as_ended_early(world: World) -> None:
    world.run(Step(rows(3)))
    (ended,) = world.run(Step(rows(3), breaks_at=2))
    assert causes(ended) == {"ended_early": 1}


def test_dry_run_is_complete_only_if_nothing_would_be_sent(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.run(Step(rows(3)))
    original = sync_module.SyncSpec
    monkeypatch.setattr("tests.unit.contacts.sync.model.SyncSpec", lambda **given: original(**given, dry_run=True))
    monkeypatch.setattr(World, "check_run", lambda *_: None)
    (ended,) = world.run(Step(rows(3)))
    assert causes(ended) == {}
    (ended,) = world.run(Step(rows(4, "2"), on_missing="delete"))
    assert causes(ended) == {"dry_run": 4}
    assert sum_of(ended.report) == ended.report["rows"] == 4


def with_versions(monkeypatch: pytest.MonkeyPatch, *source: tuple[str | None, str, int]) -> None:
    given = [{"key": key, "a": a, "b": "1", "v": version} for key, a, version in source]
    monkeypatch.setattr(World, "source_rows", lambda *_: given)
    monkeypatch.setattr(World, "check_run", lambda *_: None)
    monkeypatch.setattr(World, "check_map", lambda *_: None)


def test_rows_below_the_cursor_are_a_figure(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    with_versions(monkeypatch, ("k1", "1", 1), ("k2", "1", 2))
    world.run(Step((), cursor=True))
    (ended,) = world.run(Step((), cursor=True))
    assert (ended.report["before_cursor"], ended.report["unchanged"]) == (1, 1)
    assert sum_of(ended.report) == 2
    assert causes(ended) == {}


def test_invalid_row_does_not_hold_the_cursor_and_stays_named(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    with_versions(monkeypatch, (None, "1", 1), ("k1", "1", 2))
    (first,) = world.run(Step((), cursor=True))
    assert causes(first) == {"invalid_rows": 1}
    for _ in range(2):
        (again,) = world.run(Step((), cursor=True))
        assert causes(again) == {"failed_before_cursor": 1}
        assert again.report["before_cursor"] == 1
    # A run without a cursor reads every row, and names it itself.
    (full,) = world.run(Step(()))
    assert causes(full) == {"invalid_rows": 1}
    (again,) = world.run(Step((), cursor=True))
    assert causes(again) == {"failed_before_cursor": 1}
    # Only a run that reads every row finds that it was corrected.
    with_versions(monkeypatch, ("k1", "1", 2))
    for cursor in (False, True):
        (again,) = world.run(Step((), cursor=cursor))
        assert causes(again) == {}


def test_invalid_row_at_the_cursor_is_counted_once_however_often_it_is_read(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_versions(monkeypatch, ("k1", "1", 1), (None, "1", 1))
    for _ in range(3):
        (ended,) = world.run(Step((), cursor=True))
        assert causes(ended) == {"invalid_rows": 1}


def test_rejected_row_below_the_cursor_stays_named_until_it_is_sent(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_versions(monkeypatch, ("k1", "1", 1), ("k2", "1", 2))
    world.run(Step((), cursor=True, faults=(Fault.REJECTED,)))
    (again,) = world.run(Step((), cursor=True))
    assert causes(again) == {"failed_before_cursor": 1}
    with_versions(monkeypatch, ("k1", "2", 3), ("k2", "1", 2))
    (corrected,) = world.run(Step((), cursor=True))
    assert causes(corrected) == {}


def test_row_that_mode_leaves_alone_stays_named_below_the_cursor_and_is_sent_in_another_mode(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_versions(monkeypatch, ("k1", "1", 1), ("k2", "1", 2))
    world.run(Step((), cursor=True, mode="update"))
    (again,) = world.run(Step((), cursor=True, mode="update"))
    assert causes(again) == {"not_in_mode": 1, "failed_before_cursor": 1}
    (upserted,) = world.run(Step((), cursor=True))
    assert (upserted.report["created"], causes(upserted)) == (2, {})


def test_resync_sends_rows_below_the_cursor(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    with_versions(monkeypatch, ("k1", "1", 1), ("k2", "1", 2))
    world.run(Step((), cursor=True))
    (ended,) = world.run(Step((), cursor=True, resync=True))
    assert (ended.report["updated"], ended.report["before_cursor"]) == (2, 0)
    (again,) = world.run(Step((), cursor=True))
    assert (again.report["requests"], again.report["before_cursor"]) == (0, 1)


def test_retry_rejected_sends_rows_below_the_cursor(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    with_versions(monkeypatch, ("k1", "1", 1), ("k2", "1", 2))
    world.run(Step((), cursor=True, faults=(Fault.REJECTED,)))
    (ended,) = world.run(Step((), cursor=True, retry_rejected=True))
    assert (ended.report["created"], causes(ended)) == (1, {})
    (again,) = world.run(Step((), cursor=True, retry_rejected=True))
    assert (again.report["requests"], again.report["before_cursor"]) == (0, 1)


def test_row_below_the_cursor_is_sent_after_retry_row(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    with_versions(monkeypatch, ("k1", "1", 1), ("k2", "1", 2))
    world.run(Step((), cursor=True, faults=(Fault.REJECTED,)))
    key_map = world.key_map
    assert key_map is not None
    assert retry_rejected(key_map, None) == (1, 0)
    (ended,) = world.run(Step((), cursor=True))
    assert (ended.report["created"], causes(ended)) == (1, {})


def test_sync_of_other_columns_does_not_recount_the_rows_below_the_cursor(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_versions(monkeypatch, (None, "1", 1), ("k1", "1", 2))
    world.run(Step((), cursor=True))
    with monkeypatch.context() as other:
        with_versions(other, ("k1", "2", 3))
        other.setattr(model, "RULES", {name: model.RULES[name] for name in ("Key", "A")})
        world.run(Step((), mode="update"))
    (again,) = world.run(Step((), cursor=True))
    assert causes(again)["failed_before_cursor"] == 1
