"""When people may be reached: over midnight, over changes of the clock, in several time zones."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpaas_provider.sending.campaign.guards.send_window import SendWindow
from tests.unit.sending.campaign.guards.clock_changes import breaches, clock_changes, windows_around

DAY = SendWindow(time(9), time(20), "Africa/Lagos")
NIGHT = SendWindow(time(22), time(6), "Africa/Lagos")
ZONES = ["Africa/Lagos", "Europe/Berlin", "America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe", "UTC"]


def lagos(hour: int, minute: int = 0) -> datetime:
    return datetime(2026, 3, 10, hour, minute, tzinfo=ZoneInfo("Africa/Lagos"))


@pytest.mark.parametrize(
    ("window", "hour", "is_open"),
    [
        *[(DAY, 8, False), (DAY, 9, True), (DAY, 19, True), (DAY, 20, False), (DAY, 0, False)],
        *[(NIGHT, 21, False), (NIGHT, 22, True), (NIGHT, 0, True), (NIGHT, 5, True), (NIGHT, 6, False)],
    ],
)
def test_window_includes_its_start_and_excludes_its_end(window: SendWindow, hour: int, is_open: bool) -> None:
    assert window.is_open(lagos(hour), None) is is_open


def test_window_is_judged_in_the_time_zone_of_the_recipient() -> None:
    now = lagos(9)
    assert DAY.is_open(now, "Africa/Lagos")
    assert not DAY.is_open(now, "America/New_York")
    assert DAY.next_opening(now, ["America/New_York"]) == datetime(2026, 3, 10, 13, tzinfo=UTC)


def test_next_opening_is_the_earliest_of_all_zones() -> None:
    assert DAY.next_opening(lagos(21), ["America/Los_Angeles", "Asia/Tokyo", None]) == datetime(
        2026, 3, 11, 0, tzinfo=UTC
    )


def test_next_change_is_the_earliest_opening_or_closing_of_any_zone() -> None:
    assert DAY.next_change(lagos(10), [None]) == lagos(20)
    assert DAY.next_change(lagos(10), [None, "America/New_York"]) == datetime(2026, 3, 10, 13, tzinfo=UTC)


def test_window_over_midnight_opens_the_same_evening() -> None:
    assert NIGHT.next_opening(lagos(7), [None]) == lagos(22)
    assert NIGHT.next_change(lagos(23), [None]) == lagos(6) + timedelta(days=1)


class TestChangesOfTheClock:
    BERLIN = SendWindow(time(9), time(20), "Europe/Berlin")

    def test_nine_is_nine_before_and_after(self) -> None:
        evening = datetime(2026, 3, 28, 21, tzinfo=ZoneInfo("Europe/Berlin"))
        assert self.BERLIN.next_opening(evening, [None]) == datetime(2026, 3, 29, 7, tzinfo=UTC)
        evening = datetime(2026, 10, 24, 21, tzinfo=ZoneInfo("Europe/Berlin"))
        assert self.BERLIN.next_opening(evening, [None]) == datetime(2026, 10, 25, 8, tzinfo=UTC)

    def test_close_in_repeated_hour_is_found_from_within_that_hour(self) -> None:
        london = SendWindow(time(18), time(1, 30), "Europe/London")
        second = datetime(2026, 10, 25, 1, 15, tzinfo=UTC)
        assert london.is_open(second, None)
        assert london.next_change(second, [None]) == datetime(2026, 10, 25, 1, 30, tzinfo=UTC)

    def test_repeated_hour_is_judged_by_the_local_clock_both_times(self) -> None:
        london = SendWindow(time(18), time(1, 30), "Europe/London")
        first = datetime(2026, 10, 25, 0, 15, tzinfo=UTC)
        assert london.next_change(first, [None]) == datetime(2026, 10, 25, 0, 30, tzinfo=UTC)
        assert london.next_opening(first, [None]) == datetime(2026, 10, 25, 1, tzinfo=UTC)

    def test_close_in_skipped_hour_comes_when_the_clock_jumps(self) -> None:
        window = SendWindow(time(20), time(2, 30), "Europe/Berlin")
        before = datetime(2026, 3, 29, 0, 30, tzinfo=UTC)
        assert window.next_change(before, [None]) == datetime(2026, 3, 29, 1, tzinfo=UTC)

    def test_open_in_skipped_hour_comes_when_the_clock_jumps(self) -> None:
        window = SendWindow(time(2, 30), time(5), "Europe/Berlin")
        before = datetime(2026, 3, 29, 0, 30, tzinfo=UTC)
        assert window.next_opening(before, [None]) == datetime(2026, 3, 29, 1, tzinfo=UTC)

    def test_window_within_skipped_hour_opens_on_the_next_day(self) -> None:
        window = SendWindow(time(2, 15), time(2, 45), "Europe/Berlin")
        before = datetime(2026, 3, 29, 0, 30, tzinfo=UTC)
        assert window.next_opening(before, [None]) == datetime(2026, 3, 30, 0, 15, tzinfo=UTC)

    def test_skipped_day_has_no_window(self) -> None:
        window = SendWindow(time(9), time(20), "Pacific/Apia")
        evening = datetime(2011, 12, 29, 21, tzinfo=ZoneInfo("Pacific/Apia"))
        assert window.next_opening(evening, [None]) == datetime(2011, 12, 30, 19, tzinfo=UTC)

    @pytest.mark.parametrize(
        "zone", ["Europe/London", "America/New_York", "Australia/Lord_Howe", "Africa/Casablanca", "Antarctica/Troll"]
    )
    def test_next_change_is_when_the_local_clock_changes_state(self, zone: str) -> None:
        changes = list(clock_changes(zone, date(2026, 1, 1), date(2027, 1, 1)))
        assert changes
        for change in changes:
            for window in windows_around(zone, change)[::9]:
                assert breaches(window, change - timedelta(hours=3), 6 * 60, step=47) == []

    def test_open_in_skipped_hour_is_at_most_one_hour_late(self) -> None:
        window = SendWindow(time(2, 30), time(5), "Europe/Berlin")
        before = datetime(2026, 3, 29, 0, 30, tzinfo=UTC)
        opening = window.next_opening(before, [None])
        assert window.is_open(opening, None)
        assert opening - before <= timedelta(hours=1, minutes=30)


@given(
    st.times().map(lambda one: one.replace(tzinfo=None)),
    st.integers(1, 24 * 60 - 1),
    st.datetimes(datetime(2026, 1, 1), datetime(2027, 1, 1)),
    st.sampled_from(ZONES),
)
def test_window_is_open_at_its_next_opening_within_two_days(
    opens: time, minutes: int, now: datetime, zone: str
) -> None:
    closes = (datetime.combine(datetime(2026, 1, 1), opens) + timedelta(minutes=minutes)).time()
    window, now = SendWindow(opens, closes, zone), now.replace(tzinfo=UTC)
    opening = window.next_opening(now, [None])
    assert timedelta() < opening - now <= timedelta(days=2)
    assert window.is_open(opening, None)
    assert window.next_change(now, [None]) > now


class TestReading:
    def test_pair_of_times_is_read(self) -> None:
        assert SendWindow.read(("09:00", "20:00"), "Africa/Lagos") == DAY
        assert SendWindow.read(["22:00", "06:00"], "Africa/Lagos") == NIGHT

    @pytest.mark.parametrize(
        "given_",
        ["09:00", ("09:00",), ("09:00", "09:00"), ("9 am", "8 pm"), ("09:00+01:00", "20:00"), 5, None, (9, 20), {}],
    )
    def test_invalid_window_is_refused(self, given_: Any) -> None:
        with pytest.raises(ValueError, match="two times of day"):
            SendWindow.read(given_, "Africa/Lagos")

    def test_time_without_a_time_zone_is_refused(self) -> None:
        with pytest.raises(ValueError, match="needs timezone"):
            SendWindow.read(("09:00", "20:00"), None)

    def test_unknown_time_zone_is_refused(self) -> None:
        with pytest.raises(ValueError, match="timezone"):
            SendWindow.read(("09:00", "20:00"), "Africa/Atlantis")
