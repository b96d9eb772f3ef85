"""Alerts are counted by all and sent by one: who leads, when a notification is due, what no end of a process loses."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

from cpaas_provider.database.database import Database, open_database
from cpaas_provider.notifications._runtime.alerts import MAX_SUBJECTS, OTHERS, RETRY, AlertGroups, PendingAlerts, Timing

WINDOW = timedelta(minutes=5)
QUIET, LONGEST, MAX_WAIT, REQUEST = (timedelta(seconds=number) for number in (8, 60, 10, 8))


class Clock:
    def __init__(self) -> None:
        self.now = datetime(2026, 3, 1, 12, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def pass_(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def groups(database: Database, clock: Clock) -> AlertGroups:
    return AlertGroups(database, Timing(QUIET, LONGEST, MAX_WAIT, REQUEST), clock=clock)


@pytest.fixture
def opened(url: str) -> Iterator[list[Database]]:
    found = [open_database(url) for _ in range(4)]
    yield found
    for one in found:
        one.close()


def alert(groups: AlertGroups, subject: str = "orders.load failed", message: str = "m") -> int | None:
    return groups.add("group", "cpaas_default", subject, message, WINDOW)


def sent(groups: AlertGroups, token: int | None) -> PendingAlerts:
    assert token is not None
    pending = groups.take("group", token)
    assert pending is not None
    groups.finish(pending)
    return pending


class TestLeading:
    def test_first_caller_leads_and_those_after_it_do_not(self, groups: AlertGroups, clock: Clock) -> None:
        token = alert(groups, message="first")
        clock.pass_(1)
        assert token == 1
        assert alert(groups, "orders.check failed", "newest") is None
        assert groups.due_in("group", 1) == QUIET
        clock.pass_(8)
        assert groups.due_in("group", 1) == timedelta()
        pending = groups.take("group", 1)
        assert pending is not None
        assert (pending.count, pending.message) == (2, "newest")
        assert pending.subjects == {"orders.load failed": 1, "orders.check failed": 1}
        assert (pending.first_at, pending.last_at) == (clock.now - timedelta(seconds=9), clock.now - QUIET)

    def test_caller_that_comes_when_the_leader_has_little_time_left_leads(
        self, groups: AlertGroups, clock: Clock
    ) -> None:
        first = alert(groups)
        clock.pass_(3)
        second = alert(groups)
        assert (first, second) == (1, 2)
        assert groups.due_in("group", 1) is None
        assert groups.take("group", 1) is None
        assert groups.due_in("group", 2) == QUIET

    def test_alerts_that_do_not_end_are_reported_after_the_longest_time(
        self, groups: AlertGroups, clock: Clock
    ) -> None:
        token = 0
        for _ in range(60):
            token = alert(groups) or token
            clock.pass_(1)
        assert groups.due_in("group", token) == timedelta()
        assert sent(groups, token).count == 60

    def test_alerts_of_an_open_window_are_reported_when_they_end(self, groups: AlertGroups, clock: Clock) -> None:
        sent(groups, alert(groups))
        clock.pass_(5)
        token = alert(groups)
        clock.pass_(2)
        assert alert(groups) is None
        assert token is not None
        assert groups.due_in("group", token) == QUIET
        assert sent(groups, token).count == 2

    def test_alerts_of_a_killed_leader_are_reported_with_the_next(self, groups: AlertGroups, clock: Clock) -> None:
        assert alert(groups) == 1
        clock.pass_(3600)
        assert alert(groups) == 2
        assert sent(groups, 2).count == 2

    def test_subjects_beyond_the_most_are_counted_together(self, groups: AlertGroups) -> None:
        for number in range(MAX_SUBJECTS + 7):
            alert(groups, f"task {number}")
        subjects = sent(groups, 1).subjects
        assert len(subjects) == MAX_SUBJECTS + 1
        assert subjects[OTHERS] == 7

    def test_groups_do_not_know_each_other(self, groups: AlertGroups) -> None:
        assert [groups.add(name, "c", "s", "m", WINDOW) for name in "ab"] == [1, 1]
        pending = groups.take("a", 1)
        assert pending is not None
        assert pending.count == 1
        assert groups.due_in("b", 1) == QUIET

    def test_threads_with_databases_of_their_own_elect_one_leader_and_lose_no_alert(
        self, opened: list[Database]
    ) -> None:
        now = datetime(2026, 3, 1, tzinfo=UTC)
        groups = [AlertGroups(one, Timing(), clock=lambda: now) for one in opened]
        with ThreadPoolExecutor(8) as pool:
            tokens = list(pool.map(lambda number: alert(groups[number % 4], f"task {number % 3}"), range(40)))
        assert sorted(tokens, key=bool) == [*[None] * 39, 1]
        assert sent(groups[0], 1).count == 40


class TestOutcomes:
    def test_alerts_that_were_not_sent_are_reported_with_the_next(self, groups: AlertGroups, clock: Clock) -> None:
        alert(groups, "a", "first")
        pending = groups.take("group", 1)
        assert pending is not None
        clock.pass_(1)
        token = alert(groups, "b", "second")
        groups.finish(pending, not_sent=True)
        again = sent(groups, token)
        assert (again.count, again.subjects, again.message) == (2, {"a": 1, "b": 1}, "second")
        assert (again.first_at, again.sent_before) == (pending.first_at, None)

    def test_request_without_a_recorded_outcome_is_not_sent_again(self, groups: AlertGroups, clock: Clock) -> None:
        alert(groups)
        assert groups.take("group", 1)
        clock.pass_(3600)
        token = alert(groups)
        again = sent(groups, token)
        assert (again.count, again.unrecorded) == (1, 1)
        assert list(groups.unrecorded()) == []

    def test_request_without_a_recorded_outcome_is_named_once(self, groups: AlertGroups, clock: Clock) -> None:
        alert(groups)
        assert groups.take("group", 1)
        assert list(groups.unrecorded()) == []
        clock.pass_(3600)
        assert list(groups.unrecorded()) == [("cpaas_default", 1)]
        assert list(groups.unrecorded()) == []


class TestBackgroundSender:
    def test_one_of_two_holds_the_lease_until_it_ends(self, groups: AlertGroups, clock: Clock) -> None:
        assert [groups.acquire_background(owner, 30) for owner in ("a", "b", "a")] == [True, False, True]
        clock.pass_(31)
        assert [groups.acquire_background(owner, 30) for owner in ("b", "a")] == [True, False]
        groups.release_background("b")
        assert groups.acquire_background("a", 30)

    def test_callers_lead_until_it_has_shown_that_it_can_send(self, groups: AlertGroups, clock: Clock) -> None:
        groups.acquire_background("a", 30)
        assert alert(groups) == 1
        [waiting] = groups.waiting()
        assert (waiting.name, waiting.message, waiting.is_checked) == ("group", "m", False)
        groups.check("group", can_send=True)
        assert groups.waiting()[0].is_checked
        assert groups.due_in("group", 1) is None
        assert alert(groups) is None
        assert groups.take_due("group") is None
        clock.pass_(8)
        pending = groups.take_due("group")
        assert pending is not None
        assert pending.count == 2

    def test_callers_lead_where_it_has_stopped_or_cannot_send(self, groups: AlertGroups, clock: Clock) -> None:
        groups.acquire_background("a", 30)
        alert(groups)
        groups.check("group", can_send=True)
        clock.pass_(31)
        assert alert(groups) == 2
        clock.pass_(31)
        groups.acquire_background("a", 30)
        groups.check("group", can_send=False)
        assert groups.waiting()[0].is_checked
        assert alert(groups) == 3
        clock.pass_(601)
        assert not groups.waiting()[0].is_checked

    def test_background_sender_waits_for_the_window_and_the_lease_of_a_leader(
        self, groups: AlertGroups, clock: Clock
    ) -> None:
        alert(groups)
        clock.pass_(9)
        assert groups.take_due("group") is None
        clock.pass_(10)
        first = groups.take_due("group")
        assert first is not None
        assert groups.take("group", 1) is None
        groups.finish(first)
        groups.acquire_background("a", 1000)
        groups.check("group", can_send=True)
        for _ in range(3):
            assert alert(groups) is None
            clock.pass_(60)
        assert groups.take_due("group") is None
        clock.pass_(119)
        assert groups.take_due("group") is None
        clock.pass_(1)
        last = groups.take_due("group")
        assert last is not None
        assert last.count == 3
        assert groups.waiting() == []

    def test_alert_that_was_not_sent_is_retried_later(self, groups: AlertGroups, clock: Clock) -> None:
        groups.acquire_background("a", 1000)
        alert(groups)
        groups.check("group", can_send=True)
        groups.due_in("group", 1)
        clock.pass_(8)
        first = groups.take_due("group")
        assert first is not None
        groups.finish(first, not_sent=True)
        assert groups.take_due("group") is None
        clock.pass_(RETRY.total_seconds())
        assert groups.take_due("group") is not None


class TestClockSetBack:
    """What was stored by a clock that was an hour ahead keeps nothing waiting."""

    def test_caller_leads_in_place_of_one_that_seems_to_lead_for_an_hour(
        self, groups: AlertGroups, clock: Clock
    ) -> None:
        assert alert(groups) == 1
        clock.pass_(-3600)
        assert alert(groups) == 2
        assert groups.due_in("group", 2) == QUIET
        assert sent(groups, 2).count == 2

    def test_leader_of_the_wrong_clock_still_waits_for_a_quiet_moment_only(
        self, groups: AlertGroups, clock: Clock
    ) -> None:
        token = alert(groups)
        assert token is not None
        clock.pass_(-3600)
        assert groups.due_in("group", token) == QUIET

    def test_background_sender_sends(self, groups: AlertGroups, clock: Clock) -> None:
        sent(groups, alert(groups))
        assert groups.acquire_background("old", 60)
        alert(groups)
        clock.pass_(-3600)
        assert groups.acquire_background("new", 60)
        first = groups.take_due("group")
        assert first is not None
        groups.finish(first, not_sent=True)
        clock.pass_(-3600)
        assert groups.take_due("group") is not None

    def test_lease_of_another_background_sender_with_a_clock_some_seconds_ahead_holds(
        self, groups: AlertGroups, clock: Clock
    ) -> None:
        clock.pass_(30)
        assert groups.acquire_background("ahead", 60)
        clock.pass_(-30)
        assert not groups.acquire_background("other", 60)
