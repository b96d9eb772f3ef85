"""Syncs under attack: each test is a way in which a list and its source came apart, or a task ended badly."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy

from cpaas_provider.contacts.errors import SpoolError, StoppedError, TooManyChangesError, TooManyFailuresError
from cpaas_provider.contacts.key_map.entries import Change, MapEntry, RowState
from cpaas_provider.contacts.key_map.hashes import buckets_of
from cpaas_provider.contacts.key_map.maps import open_map
from cpaas_provider.contacts.sync import dispatcher as dispatcher_module
from cpaas_provider.contacts.sync import sync as sync_module
from cpaas_provider.contacts.sync.decisions import Plan
from cpaas_provider.contacts.sync.limits import check_changes
from cpaas_provider.contacts.sync.spool import OutcomeLine, RowOutcome, Spool, WorkItem
from cpaas_provider.database.database import Database, open_database
from cpaas_provider.database.errors import DatabaseError
from cpaas_provider.sources.base import SourceError
from tests.sqlite_memory import SqliteMemory
from tests.unit.contacts.sync import model
from tests.unit.contacts.sync.model import KEY, A, AtWrite, Died, Fault, Step, World

_names = itertools.count()
FINE = Fault.FINE


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, "cpaas_provider.contacts")
    monkeypatch.setattr(dispatcher_module, "_BUSY_SECONDS", 0.0)
    monkeypatch.setattr(dispatcher_module, "_WRITE_PAUSES", (0.0,) * len(dispatcher_module._WRITE_PAUSES))


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    with open_database(f"sqlite:///{tmp_path_factory.mktemp('attacked') / 'store.db'}") as opened:
        yield opened


@pytest.fixture
def world(here: Database) -> World:
    return World(here, f"attacked-{next(_names)}")


def rows(count: int, a: str | None = "1", b: str | None = "1") -> tuple[tuple[str, str | None, str | None], ...]:
    return tuple((f"k{number}", a, b) for number in range(1, count + 1))


def cells(world: World, key: str = "k1") -> dict[str, Any] | None:
    found = [world.list.rows[row_id] for row_id in world.list.of_key(key)]
    return {column: found[0].get(column) for column in (A, "b")} if found else None


@pytest.mark.parametrize("fault", [Fault.TRIED_NOT_SENT, Fault.TRIED_REJECTED, Fault.LOST_AFTER, Fault.DIES_AFTER])
def test_source_that_goes_back_after_an_unknown_update_ends_in_the_list(world: World, fault: Fault) -> None:
    world.run(Step(rows(1, "1")))
    world.run(Step(rows(1, "2"), faults=(fault,)))
    assert cells(world) == {A: "2", "b": "1"}
    world.run(Step(rows(1, "1")))
    assert cells(world) == {A: "1", "b": "1"}


@pytest.mark.parametrize("fault", [Fault.LOST_BEFORE, Fault.LOST_AFTER])
def test_update_and_deletion_of_unknown_outcome_are_sent_again(world: World, fault: Fault) -> None:
    world.run(Step(rows(3)))
    changed = Step(rows(2, "2"), on_missing="delete")
    (ended,) = world.run(replace(changed, faults=(fault,) * 3))
    assert not ended.complete
    (again,) = world.run(changed)
    assert sorted(action for action, *_ in again.requests) == ["delete", "update", "update"]
    assert [cells(world, key) for key in ("k1", "k2", "k3")] == [{A: "2", "b": "1"}] * 2 + [None]


@pytest.mark.parametrize("fault", [Fault.TRIED_NOT_SENT, Fault.TRIED_REJECTED, Fault.LOST_AFTER, Fault.DIES_AFTER])
@pytest.mark.parametrize("mode", ["upsert", "insert"])
def test_row_that_comes_back_after_an_unknown_deletion_is_in_the_list(world: World, fault: Fault, mode: str) -> None:
    world.run(Step(rows(2)))
    world.run(Step(rows(1), on_missing="delete", faults=(fault,)))
    assert not world.list.of_key("k2")
    world.run(Step(rows(2), mode=mode))
    assert cells(world, "k2") == {A: "1", "b": "1"}


def test_row_gone_again_after_an_unknown_update_is_cleared_again(world: World) -> None:
    world.run(Step(rows(2)))
    world.run(Step(rows(1), on_missing="clear"))
    world.run(Step(rows(2, "2"), faults=(FINE, Fault.DIES_AFTER)))
    world.run(Step(rows(1, "2"), on_missing="clear"))
    assert cells(world, "k2") == {A: None, "b": "1"}


def test_unknown_deletion_does_not_prevent_the_row_from_being_cleared(world: World) -> None:
    world.run(Step(rows(2)))
    world.run(Step(rows(1), on_missing="delete", faults=(Fault.LOST_BEFORE,)))
    world.run(Step(rows(1), on_missing="clear"))
    assert cells(world, "k2") == {A: None, "b": "1"}


def test_max_duration_leaves_rows_for_the_next_run_and_fails_nothing(world: World, monkeypatch: Any) -> None:
    class Clock:
        monotonic = staticmethod(lambda: world.clock)

    monkeypatch.setattr(dispatcher_module, "time", Clock)
    monkeypatch.setattr(sync_module, "time", Clock)
    # So that rows wait for their request when the time is over.
    monkeypatch.setattr(model, "WINDOW", 20)
    (first,) = world.run(Step(rows(40), max_duration=1.0))
    assert first.error is None
    assert first.report["not_sent"] == 0
    assert first.report["remaining"] + first.report["created"] == 40
    assert not first.complete
    assert not first.named()
    (second,) = world.run(Step(rows(40)))
    assert second.report["created"] == first.report["remaining"]


def test_intents_of_a_commit_whose_connection_broke_are_sent(world: World) -> None:
    # The lease, the stored values, then the first intents.
    (ended,) = world.run(Step(rows(5), writes=(AtWrite.FINE,) * 3 + (AtWrite.FAILS_AFTER,) * 2))
    assert ended.error is None
    assert (ended.report["created"], ended.report["unknown"]) == (5, 0)


def test_database_that_is_away_for_a_while_makes_no_creation_unknown(world: World) -> None:
    (ended,) = world.run(Step(rows(8), writes=(AtWrite.FINE,) * 4 + (AtWrite.FAILS_BEFORE,) * 6))
    assert ended.error is None
    assert (ended.report["created"], ended.report["unknown"]) == (8, 0)


def test_database_that_stays_away_leaves_what_had_left_unknown_and_nothing_else(world: World) -> None:
    (ended,) = world.run(Step(rows(8), writes=(AtWrite.FINE,) * 4 + (AtWrite.FAILS_BEFORE,) * 30))
    assert isinstance(ended.error, DatabaseError)
    unknown = [line for line in ended.lines if line.outcome is RowOutcome.UNKNOWN]
    assert unknown
    assert all(line.row_id in world.list.rows for line in unknown)
    (again,) = world.run(Step(rows(8)))
    assert again.report["unknown"] <= 3
    assert again.report["unknown"] + len(world.list.rows) >= 8


@pytest.mark.parametrize("on_missing", ["keep", "delete"])
def test_gateway_that_responds_404_to_everything_removes_no_row(world: World, on_missing: str) -> None:
    world.run(Step(rows(4)))
    source = rows(4, "2") if on_missing == "keep" else rows(1)
    (ended,) = world.run(Step(source, on_missing=on_missing, faults=(Fault.GATEWAY,) * 9))
    assert ended.report["deleted"] == 0
    world.run(Step(source, on_missing=on_missing))
    assert len(world.list.rows) == len(source)


def test_rows_that_were_rejected_in_a_row_are_sent_again_by_the_next_run(world: World) -> None:
    (ended,) = world.run(Step(rows(40), faults=(Fault.REJECTED,) * 60, max_failure_ratio=0.0))
    assert isinstance(ended.error, TooManyFailuresError)
    assert "in a row" in str(ended.error)
    (again,) = world.run(Step(rows(40)))
    assert again.report["created"] == 40


def test_crash_amid_rejections_marks_no_row_as_rejected(world: World) -> None:
    world.run(Step(rows(40), faults=(*(Fault.REJECTED,) * 15, Fault.DIES_BEFORE)))
    (again,) = world.run(Step(rows(40)))
    assert again.report["rejected_before"] == 0
    assert again.report["created"] + again.report["unknown"] == 40


def test_rejected_row_comes_again_only_when_changed(world: World) -> None:
    world.run(Step(rows(3), faults=(Fault.REJECTED,)))
    (second,) = world.run(Step(rows(3)))
    assert (second.report["rejected_before"], second.report["requests"]) == (1, 0)
    (third,) = world.run(Step(rows(3, "2")))
    assert third.report["created"] == 1
    assert third.report["updated"] == 2


def test_refused_key_marks_no_row_as_rejected(world: World) -> None:
    world.run(Step(rows(6), faults=(FINE, FINE, Fault.ACCOUNT)))
    (again,) = world.run(Step(rows(6)))
    assert again.report["rejected_before"] == 0
    assert len(world.list.rows) == 6


def test_reported_deleted_row_is_reported_whatever_the_source_has(world: World) -> None:
    world.run(Step(rows(1, "1")))
    world.run(Step(rows(1, "2"), on_deleted_row="report", vanishes=0))
    world.vanished.clear()
    (ended,) = world.run(Step(rows(1, "1"), on_deleted_row="report"))
    assert ended.report["rejected"] == 1


def test_lease_taken_over_while_requests_are_under_way_creates_nothing_twice(world: World) -> None:
    world.run(Step(rows(9), faults=(FINE, Fault.REPLACED)))
    world.run(Step(rows(9)))
    assert len(world.list.rows) == 9


def test_stop_records_what_was_sent(world: World) -> None:
    (ended,) = world.run(Step(rows(30), faults=(FINE, FINE, FINE, Fault.STOP)))
    assert isinstance(ended.error, StoppedError)
    (again,) = world.run(Step(rows(30)))
    assert again.report["unknown"] == 0
    assert again.report["unchanged"] == ended.report["created"]


def test_rows_that_another_task_made_unknown_do_not_delay_the_sync(world: World, monkeypatch: Any) -> None:
    # With the defect each group of such rows waited for a minute.
    monkeypatch.setattr(dispatcher_module, "_LONGEST_WAIT", 3600.0)
    world.run(Step(rows(0)))
    key_map = world.key_map
    assert key_map is not None
    entries = [MapEntry(key_map.hashes.of_key([f"k{n}"]), RowState.UNKNOWN) for n in range(1, 10)]
    planned = sync_module.check_changes

    def meanwhile(plan: Plan, **limits: Any) -> None:
        planned(plan, **limits)
        single = key_map.row_lease("an upsert")
        single.write([Change(MapEntry(entry.key_hash), entry) for entry in entries])
        single.release()

    monkeypatch.setattr(sync_module, "check_changes", meanwhile)
    (ended,) = world.run(Step(rows(9)))
    assert ended.report["unknown"] == 9


class _Full(Spool):
    """A spool whose disk is full as soon as rows are read back from it."""

    def work(self, after: int, count: int, **options: Any) -> Any:
        (pages,) = self._rows.execute("PRAGMA page_count").fetchone()
        self._rows.execute(f"PRAGMA max_page_count = {pages}")
        return super().work(after, count, **options)


def test_disk_full_while_rows_are_sent_loses_no_response(world: World, monkeypatch: Any) -> None:
    monkeypatch.setattr(sync_module, "Spool", _Full)
    (ended,) = world.run(Step(rows(400)))
    assert isinstance(ended.error, SpoolError)
    assert 0 < ended.report["created"] < 400
    monkeypatch.undo()
    (again,) = world.run(Step(rows(400)))
    assert again.report["unknown"] == 0
    assert again.report["created"] + ended.report["created"] == 400


def test_spool_in_a_folder_that_is_a_file_is_refused_in_words(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SpoolError, match="Give spool_path a folder"):
        Spool(str(tmp_path / "file"))
    with Spool(str(tmp_path / "new" / "folder")) as spool:
        assert spool.work(0, 1) == []


def test_rows_of_a_large_list_take_little_memory_while_they_are_sent() -> None:
    """They fill the cache while they are planned, and each that is sent would fill it further."""
    count, cells = 60_000, {"name": "n" * 400}
    with Spool() as spool:
        memory = SqliteMemory()
        for first in range(1, count, 10_000):
            numbers = range(first, first + 10_000)
            spool.add_work((WorkItem(n.to_bytes(16), n, f"k{n}", b"", cells), "create") for n in numbers)
        planned = memory.used()
        spool.keep_less_in_memory()
        seq = sent = 0
        while items := spool.work(seq, 1_000):
            seq, sent = items[-1].seq, sent + len(items)
        assert sent == count
        assert memory.used() < planned / 2


def test_half_characters_in_the_words_of_the_service_end_no_sync() -> None:
    with Spool() as spool:
        spool.add_outcome(OutcomeLine(1, "k", RowOutcome.REJECTED, reason="No \ud800 half"))
        (line,) = spool.outcomes()
    assert line.reason == "No ? half"


def test_empty_source_deletes_nothing_whatever_max_deletes_allows(world: World) -> None:
    world.run(Step(rows(3)))
    (ended,) = world.run(Step((), on_missing="delete"))
    assert isinstance(ended.error, TooManyChangesError)
    assert "The source has no rows" in str(ended.error)
    assert len(world.list.rows) == 3


@pytest.mark.parametrize("on_missing", ["delete", "clear"])
def test_source_that_breaks_deletes_and_clears_nothing(world: World, on_missing: str) -> None:
    world.run(Step(rows(3)))
    (ended,) = world.run(Step(rows(2), breaks_at=1, on_missing=on_missing))
    assert isinstance(ended.error, SourceError)
    assert ended.requests == []
    assert [cells(world, key) for key in ("k1", "k2", "k3")] == [{A: "1", "b": "1"}] * 3


def test_share_of_rows_is_not_rounded_down_by_binary_fractions() -> None:
    plan = Plan(rows=100, mapped=100, missing_changes=29)
    check_changes(plan, max_changes=None, max_deletes=0.29)
    plan.missing_changes = 30
    with pytest.raises(TooManyChangesError, match=r"allows 29 \(29% of 100\)"):
        check_changes(plan, max_changes=None, max_deletes=0.29)


def test_share_of_less_than_one_percent_is_named_as_it_is() -> None:
    plan = Plan(rows=1000, mapped=1000, missing_changes=6)
    with pytest.raises(TooManyChangesError, match=r"allows 5 \(0\.5% of 1,000\)"):
        check_changes(plan, max_changes=None, max_deletes=0.005)


def test_both_rows_of_a_key_are_named_where_none_is_used(world: World) -> None:
    (ended,) = world.run(Step((("k1", "1", "1"), ("k2", "1", "1"), ("k1", "2", "1")), on_duplicate_key="none"))
    assert [line.number for line in ended.lines if line.outcome is RowOutcome.INVALID] == [1, 3]
    assert ended.report["created"] == 1


def test_row_whose_key_is_that_of_an_invalid_row_does_not_name_it_as_used(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(World, "check_run", lambda *_: None)
    world.list.types["a"] = "NUMBER"
    (ended,) = world.run(Step((("k1", "x", "1"), ("k1", "2", "1"))))
    reason = ended.lines[1].reason
    assert (ended.report["created"], reason) == (0, "its key is that of row 1, and only the first row of a key counts")


def test_cursor_stays_while_a_creation_is_unknown(world: World) -> None:
    source = rows(3)
    world.run(Step(source, cursor=True, faults=(Fault.LOST_BEFORE,)))
    key_map = world.key_map
    assert key_map is not None
    assert key_map.value("cursor") is None
    # As a person resolves it: the row is not in the list.
    lease = key_map.row_lease("resolve")
    (entry,) = [one for page in key_map.pages(states=[RowState.UNKNOWN]) for one in page]
    lease.write([Change(entry, None)])
    lease.release()
    world.ambiguous.clear()
    (ended,) = world.run(Step(source, cursor=True))
    assert ended.report["created"] == 1
    assert key_map.value("cursor") is not None


def test_cursor_of_another_mapping_is_not_used(world: World) -> None:
    world.run(Step(rows(3), cursor=True))
    key_map = world.key_map
    assert key_map is not None
    lease = key_map.lease("a task")
    lease.write([], {"cursor": {**key_map.value("cursor"), "of": "another"}})
    lease.release()
    (ended,) = world.run(Step((*rows(3, "2"), ("k9", "1", "1")), cursor=True))
    assert (ended.report["created"], ended.report["updated"]) == (1, 3)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), True, b"x", [1]])
def test_value_that_can_be_no_cursor_makes_an_invalid_row(world: World, monkeypatch: Any, value: Any) -> None:
    monkeypatch.setattr(World, "source_rows", lambda *_: [{"key": "k1", "a": "1", "b": "1", "v": value}])
    (ended,) = world.run(Step(rows(0), cursor=True))
    assert ended.error is None
    assert ended.report["invalid_rows"] == 1


def test_resync_sends_every_row_once_although_it_is_killed(world: World) -> None:
    world.run(Step(rows(9)))
    step = Step(rows(9), resync=True, faults=(FINE, FINE, FINE, FINE, Fault.DIES_AFTER))
    (died,) = world.run(step)
    assert isinstance(died.error, Died)
    world.runs -= 1  # a retry of the same run
    (again,) = world.run(Step(rows(9), resync=True))
    assert again.report["updated"] < 9
    assert len(died.requests) + len(again.requests) <= 9 + 3
    requests = {(action, key) for action, key, _ in died.requests + again.requests}
    assert requests == {("update", f"k{number}") for number in range(1, 10)}
    assert len(world.list.rows) == 9
    (calm,) = world.run(Step(rows(9)))
    assert not calm.requests


def test_twenty_thousand_invalid_rows_are_all_named(world: World, monkeypatch: Any) -> None:
    monkeypatch.setattr(World, "source_rows", lambda *_: [{"key": "", "a": "1", "b": "1", "v": 1}] * 20_000)
    (ended,) = world.run(Step(rows(0), on_missing="delete"))
    assert ended.report["invalid_rows"] == len(ended.lines) == 20_000


def test_keys_of_one_unicode_form_are_one_and_capitals_count(world: World) -> None:
    (ended,) = world.run(Step((("é", "1", "1"), ("É", "1", "1"), ("e\u0301", "2", "2"))))
    assert (ended.report["created"], ended.report["duplicates"]) == (2, 1)
    assert {row[KEY] for row in world.list.rows.values()} == {"é", "É"}


@pytest.fixture
def postgres(postgres_url: str) -> Iterator[Database]:
    with open_database(postgres_url) as opened:
        yield opened


def test_sync_on_postgresql_survives_unknown_results_kills_and_takeovers(postgres: Database) -> None:
    world = World(postgres, "attacked")
    world.run(Step(rows(9), partitions=2, faults=(FINE, Fault.DIES_LATE, FINE, Fault.REPLACED)))
    world.run(Step(rows(9, "2"), partitions=2, writes=(AtWrite.FINE,) * 4 + (AtWrite.FAILS_AFTER,) * 2))
    world.run(Step(rows(5, "1"), on_missing="delete", faults=(Fault.TRIED_NOT_SENT, Fault.DIES_AFTER)))
    (ended,) = world.run(Step(rows(5, "1"), on_missing="delete"))
    assert ended.complete, ended.error


def test_postgresql_session_that_is_ended_amid_a_sync_makes_no_creation_unknown(postgres: Database) -> None:
    world = World(postgres, "attacked")
    refuse_doubles = world.refuse_doubles
    # Only its own sessions: other tests use the same server meanwhile.
    own: list[int] = []
    sqlalchemy.event.listen(postgres.engine, "connect", lambda session, _: own.append(session.info.backend_pid))
    postgres.engine.dispose()
    ending = sqlalchemy.text(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND pid = ANY(:own)"
    )

    def end_sessions() -> None:
        refuse_doubles()
        with postgres.engine.begin() as connection:
            connection.execute(ending, {"own": own})

    world.refuse_doubles = end_sessions  # type: ignore[method-assign]  # called for each request
    (ended,) = world.run(Step(rows(12)))
    assert ended.error is None
    assert (ended.report["created"], ended.report["unknown"]) == (12, 0)


def test_partitions_that_begin_at_once_on_an_empty_postgresql_make_one_map(postgres: Database) -> None:
    def begin(part: int) -> int:
        key_map = open_map(postgres, conn_id="c", base_url="https://x.example.com", table_id="t", name="at once")
        lease = key_map.lease(f"part {part}", buckets_of(part, 4))
        lease.write([], {"key_columns": ["id"]})
        return lease.fencing_token

    with ThreadPoolExecutor(4) as threads:
        assert sorted(threads.map(begin, range(4))) == [1, 2, 3, 4]


# The model itself: a mechanism that is broken has to be noticed.


def play(world: World, *steps: Step) -> None:
    for step in steps:
        world.run(step)


def test_model_notices_intents_that_are_not_written(world: World, monkeypatch: Any) -> None:
    original = dispatcher_module.Lease.write

    def without_intents(self: Any, changes: Any, values: Any = None) -> Any:
        kept = [one for one in changes if one.after is None or one.after.state is not RowState.CREATING]
        return original(self, kept, values)

    monkeypatch.setattr(dispatcher_module.Lease, "write", without_intents)
    with pytest.raises(AssertionError, match=r"forgotten a row|is repeated"):
        play(world, Step(rows(3), faults=(Fault.DIES_AFTER,)), Step(rows(3)))


def test_model_notices_a_lease_that_is_not_proved(world: World, monkeypatch: Any) -> None:
    monkeypatch.setattr(dispatcher_module.Lease, "_assert_held", lambda *_: None)
    with pytest.raises(AssertionError, match="a stale try wrote"):
        play(world, Step(rows(6), faults=(FINE, Fault.REPLACED)))


def test_model_notices_results_recorded_before_the_response(world: World, monkeypatch: Any) -> None:
    original = dispatcher_module.requested

    def as_if_done(decision: Any, item: Any, entry: Any, lease: Any) -> Any:
        intent = original(decision, item, entry, lease)
        key_map = world.key_map
        if intent.state is not RowState.UPDATING or key_map is None:
            return intent
        return dispatcher_module.in_step(item, entry, entry.row_id, sync_module.SyncRules(), key_map.hashes)

    monkeypatch.setattr(dispatcher_module, "requested", as_if_done)
    with pytest.raises(AssertionError, match="and is not named"):
        play(
            world,
            Step(rows(2)),
            Step(rows(2, "2"), faults=(Fault.DIES_BEFORE,)),
            Step(rows(2, "2")),
        )
