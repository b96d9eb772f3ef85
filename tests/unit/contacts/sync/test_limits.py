"""Many rejections or failures in a row: the sync tells bad rows from a service that handles no row."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from cpaas_provider.contacts.errors import NotSyncedError, TooManyFailuresError, UnknownCreationsError
from cpaas_provider.contacts.key_map.entries import RowState
from cpaas_provider.contacts.sync import dispatcher as dispatcher_module
from cpaas_provider.contacts.sync import sync as sync_module
from cpaas_provider.contacts.sync.decisions import Plan
from cpaas_provider.contacts.sync.limits import FailureLimits, tolerated_rejections
from cpaas_provider.contacts.sync.rows.requests import Response
from cpaas_provider.contacts.sync.spool import Spool, WorkItem
from cpaas_provider.contacts.sync.work import PendingWindow, Work
from cpaas_provider.database.database import Database
from tests.row_service import RowService
from tests.unit.contacts.sync.real_syncs import COLUMNS, Contacts, rows


@pytest.fixture
def contacts(database: Database) -> Iterator[Contacts]:
    with RowService(COLUMNS) as service:
        yield Contacts(service, database)


def bad(count: int, first: int) -> list[dict[str, object]]:
    """Return rows that the service rejects if it refuses the value ``bad``, or fails on if that breaks it."""
    return rows(count, "bad", first)


def test_25_rejected_rows_together_do_not_keep_the_other_rows_from_being_sent(contacts: Contacts) -> None:
    contacts.service.refused_values = ["bad"]
    source = bad(25, 1) + rows(275, first=26)
    ended = contacts.sync(source, max_failure_ratio=0.2)
    assert ended.error is None
    assert (ended.report["created"], ended.report["rejected"]) == (275, 25)
    again = contacts.sync(source, max_failure_ratio=0.2)
    assert (again.report["rejected_before"], again.report["requests"]) == (25, 0)


def test_25_rejected_rows_at_the_end_of_the_source_fail_nothing_within_the_ratio(contacts: Contacts) -> None:
    contacts.service.refused_values = ["bad"]
    source = rows(275) + bad(25, 276)
    ended = contacts.sync(source, max_failure_ratio=0.2)
    assert ended.error is None
    assert (ended.report["created"], ended.report["rejected"]) == (275, 25)


def test_as_many_failed_rows_as_the_ratio_allows_fail_nothing(contacts: Contacts) -> None:
    """Also where the product of ratio and rows has no exact float: 0.29 * 100 is less than 29."""
    contacts.service.refused_values = ["bad"]
    ended = contacts.sync(rows(71) + bad(29, 72), max_failure_ratio=0.29)
    assert ended.error is None
    assert (ended.report["created"], ended.report["rejected"]) == (71, 29)


@pytest.mark.parametrize("ratio", [0.0, 0.2, 0.9])
def test_service_that_rejects_every_row_stops_the_sync_and_marks_none(contacts: Contacts, ratio: float) -> None:
    contacts.service.refused_values = ["basic"]
    ended = contacts.sync(rows(300), max_failure_ratio=ratio)
    assert isinstance(ended.error, TooManyFailuresError)
    assert "in a row" in str(ended.error)
    assert "from elsewhere in the source" in str(ended.error)
    assert ended.report["requests"] < 150
    contacts.service.refused_values = []
    again = contacts.sync(rows(300))
    assert (again.report["created"], again.report["rejected_before"]) == (300, 0)


def test_run_after_a_stop_starts_at_other_rows(contacts: Contacts) -> None:
    contacts.service.refused_values = ["basic"]
    starts = []
    for _ in range(3):
        ended = contacts.sync(rows(1000))
        assert isinstance(ended.error, TooManyFailuresError)
        starts.append(sorted(line.number or 0 for line in ended.lines)[0:20])
    assert starts[0] != starts[1] != starts[2] != starts[0]


def test_rows_that_always_fail_do_not_take_all_the_time_of_each_run(
    contacts: Contacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    contacts.sync(rows(60))
    clock = SimpleNamespace(monotonic=lambda: float(contacts.service.requests))
    monkeypatch.setattr(dispatcher_module, "time", clock)
    monkeypatch.setattr(sync_module, "time", clock)
    monkeypatch.setattr(dispatcher_module, "random", SimpleNamespace(random=lambda: 0.5))
    contacts.service.broken_values = ["bad"]
    source = bad(20, 1) + rows(40, "gold", first=21)
    options = {"max_duration": 4.0, "client": {"max_concurrency": 1}}
    first, second = contacts.sync(source, **options), contacts.sync(source, **options)
    assert (first.report["updated"], first.report["not_sent"] > 0) == (0, True)
    assert (second.report["updated"] > 0, second.report["not_sent"]) == (True, 0)


def test_rows_that_change_before_each_run_do_not_keep_the_last_ones_from_being_sent(
    contacts: Contacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    contacts.sync(rows(41))
    clock = SimpleNamespace(monotonic=lambda: float(contacts.service.requests))
    monkeypatch.setattr(dispatcher_module, "time", clock)
    monkeypatch.setattr(sync_module, "time", clock)
    monkeypatch.setattr(dispatcher_module, "random", SimpleNamespace(random=lambda: 0.99))
    options = {"max_duration": 4.0, "client": {"max_concurrency": 1}, "rules": {"on_missing": "delete"}}
    first = contacts.sync(rows(40, "gold"), **options)
    assert (first.report["deleted"], first.report["remaining"] > 0) == (0, True)
    # The row that is gone from the source comes last.
    assert contacts.sync(rows(40, "silver"), **options).report["deleted"] == 1


def test_work_of_25_rejected_rows_alone_ends_within_the_ratio_and_is_not_sent_for_ever(contacts: Contacts) -> None:
    contacts.sync(rows(300))
    contacts.service.refused_values = ["bad"]
    source = bad(25, 1) + rows(275, first=26)
    first = contacts.sync(source, max_failure_ratio=0.2)
    assert first.error is None
    assert (first.report["rejected"], first.report["requests"]) == (25, 25)
    # One run does not prove that the rows are at fault, so the next one sends them once more.
    second = contacts.sync(source, max_failure_ratio=0.2)
    assert (second.report["rejected"], second.report["rejected_before"]) == (25, 0)
    third = contacts.sync(source, max_failure_ratio=0.2)
    assert (third.report["requests"], third.report["rejected_before"]) == (0, 25)


def test_cursor_does_not_pass_over_rejected_rows_that_the_next_run_sends_once_more(contacts: Contacts) -> None:
    contacts.service.refused_values = ["bad"]
    source = [{**row, "version": number} for number, row in enumerate(bad(25, 1))]
    first = contacts.sync(source, cursor_column="version", max_failure_ratio=1.0)
    assert (first.report["rejected"], first.error) == (25, None)
    contacts.service.refused_values = []
    again = contacts.sync(source, cursor_column="version")
    assert (again.report["created"], again.report["complete"]) == (25, True)


def test_cursor_passes_over_rows_that_two_runs_rejected(contacts: Contacts) -> None:
    contacts.service.refused_values = ["bad"]
    source = [{**row, "version": number} for number, row in enumerate(bad(25, 1))]
    for _ in range(2):
        contacts.sync(source, cursor_column="version", max_failure_ratio=1.0)
    third = contacts.sync(source, cursor_column="version", max_failure_ratio=1.0)
    assert (third.report["requests"], third.report["before_cursor"]) == (0, 24)
    assert third.report["incomplete_because"] == {"rejected_before": 1, "failed_before_cursor": 24}


def test_work_of_25_rejected_rows_beyond_the_ratio_names_each_and_fails(contacts: Contacts) -> None:
    contacts.service.refused_values = ["bad"]
    ended = contacts.sync(bad(25, 1))
    assert isinstance(ended.error, TooManyFailuresError)
    assert len(ended.lines) == 25
    assert contacts.entry("k1") is None


def test_updates_that_always_fail_do_not_keep_the_other_rows_from_being_sent(contacts: Contacts) -> None:
    contacts.sync(rows(60))
    contacts.service.broken_values = ["bad"]
    source = bad(20, 1) + rows(40, "gold", first=21)
    ended = contacts.sync(source)
    assert isinstance(ended.error, NotSyncedError)
    assert (ended.report["updated"], ended.report["not_sent"]) == (40, 20)


def test_creations_that_always_fail_do_not_keep_the_other_rows_from_being_sent(contacts: Contacts) -> None:
    contacts.service.broken_values = ["bad"]
    ended = contacts.sync(bad(20, 1) + rows(40, first=21))
    assert isinstance(ended.error, UnknownCreationsError)
    assert (ended.report["created"], ended.report["unknown"]) == (40, 20)


class OutageAfter(list):  # type: ignore[type-arg]  # of any values
    """Values on which the service fails; from the first look at them, its table cannot be read either."""

    def __init__(self, values: list[str], service: RowService) -> None:
        super().__init__(values)
        self._service = service

    def __contains__(self, value: object) -> bool:
        self._service.switch(table_read="refused")
        return super().__contains__(value)


def test_outage_ends_the_sync_without_another_creation(contacts: Contacts) -> None:
    contacts.service.broken_values = OutageAfter(["basic"], contacts.service)
    ended = contacts.sync(rows(300), client={"max_concurrency": 1})
    assert isinstance(ended.error, NotSyncedError)
    assert "the contact table cannot be read" in str(ended.error)
    assert ended.report["unknown"] == contacts.key_map.counts()[RowState.UNKNOWN] == 5


def test_service_that_fails_on_every_creation_ends_the_sync_after_few(contacts: Contacts) -> None:
    contacts.service.broken_values = ["basic"]
    ended = contacts.sync(rows(300), client={"max_concurrency": 1})
    assert isinstance(ended.error, NotSyncedError)
    assert ended.report["unknown"] == 8


def test_outage_is_probed_with_updates_rather_than_creations(contacts: Contacts) -> None:
    contacts.sync(rows(10))
    contacts.service.broken_values = ["gold"]
    source = rows(60, "gold", first=11) + rows(10, "gold")
    ended = contacts.sync(source, client={"max_concurrency": 1})
    assert isinstance(ended.error, NotSyncedError)
    assert (ended.report["unknown"], ended.report["not_sent"]) == (5, 3)


def test_tolerated_share_decides_how_many_rows_from_elsewhere_are_tried() -> None:
    assert tolerated_rejections(Plan(rows=100, invalid_rows=3, rejected_before=2), 0.29) == 24
    assert [FailureLimits(100, share)._probes_needed for share in (-1, 0, 20, 90, 99)] == [10, 10, 10, 66, 688]


@pytest.mark.parametrize(
    ("response", "in_a_row", "from_elsewhere"), [(Response.REJECTED, 20, 10), (Response.NOT_SENT, 5, 3)]
)
def test_sync_ends_after_so_many_bad_results_in_a_row_and_so_many_from_elsewhere(
    response: Response, in_a_row: int, from_elsewhere: int
) -> None:
    limits = FailureLimits(100, 0)
    bad_result: Any = SimpleNamespace(response=response, reason="No.")
    for _ in range(in_a_row - 1):
        limits.check(bad_result, is_probe=False)
    assert limits.probing is None
    limits.check(bad_result, is_probe=False)
    assert limits.probing is not None
    for _ in range(from_elsewhere - 1):
        assert limits.check(bad_result, is_probe=True) is None
    assert isinstance(limits.check(bad_result, is_probe=True), (TooManyFailuresError, NotSyncedError))


def spooled(spool: Spool, count: int) -> None:
    spool.add_work((WorkItem(bytes([n]) * 16, n, f"k{n}", b"", {}), "create") for n in range(1, count + 1))


@pytest.mark.parametrize("start", [0.0, 0.3, 0.999])
def test_each_row_of_the_work_comes_once_wherever_the_run_starts(start: float) -> None:
    with Spool() as spool:
        spooled(spool, 50)
        work, numbers = Work(spool, start), []
        while items := work.next(7):
            numbers += [item.number for item in items]
            if (item := work.elsewhere()) is not None:
                numbers.append(item.number)
        assert sorted(filter(None, numbers)) == list(range(1, 51))
        assert work.is_exhausted


def test_rows_from_elsewhere_are_spread_and_prefer_an_action() -> None:
    with Spool() as spool:
        spooled(spool, 100)
        spool.add_work([(WorkItem(b"u" * 16, 101, "u", b"", {}), "update")])
        work = Work(spool)
        assert [item.number for item in work.next(20)] == list(range(1, 21))
        preferred = work.elsewhere(["update", "delete"])
        assert preferred is not None
        assert preferred.number == 101
        found = [item.number or 0 for _ in range(8) if (item := work.elsewhere(["update"])) is not None]
        assert len({number // 20 for number in found}) >= 3


class PendingCreations(list):  # type: ignore[type-arg]  # of no values
    """Looks into the key map at each creation: how many of them would be unknown after a kill."""

    def __init__(self, contacts: Contacts) -> None:
        super().__init__()
        self._contacts = contacts
        self.seen: list[int] = []

    def __contains__(self, value: object) -> bool:
        self.seen.append(self._contacts.key_map.counts()[RowState.CREATING])
        return False


def test_kill_leaves_few_unknown_creations_at_a_low_rate(contacts: Contacts, monkeypatch: pytest.MonkeyPatch) -> None:
    # On a busy machine, the rate is not reached, and the window grows.
    monkeypatch.setattr(dispatcher_module, "PendingWindow", partial(PendingWindow, clock=lambda: 0.0))
    contacts.service.broken_values = pending = PendingCreations(contacts)
    ended = contacts.sync(rows(20), client={"requests_per_second": 40.0, "max_concurrency": 8})
    assert ended.report["created"] == 20
    assert max(pending.seen) <= 3


def test_window_grows_only_while_the_rate_is_not_reached() -> None:
    now = 0.0
    window = PendingWindow(16, 10.0, clock=lambda: now)
    assert window.size == 2
    for _ in range(30):
        now += 0.1
        window.add_results(1)
    assert window.size == 2
    for _ in range(100):
        now += 0.25
        window.add_results(1)
    assert window.size == 16
    assert PendingWindow(16, 250.0).size == 14
    assert PendingWindow(4, 250.0).size == 4


@pytest.mark.parametrize(("size", "pending", "room"), [(2, 1, 1), (2, 2, 0), (16, 9, 0), (16, 8, 8), (1, 0, 1)])
def test_large_window_is_filled_in_groups(size: int, pending: int, room: int) -> None:
    assert PendingWindow(size, 10_000.0).room(pending) == room
