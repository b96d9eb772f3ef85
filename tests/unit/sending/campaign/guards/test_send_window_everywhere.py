"""Send windows in every time zone there is, minute by minute around every change of its clock.

A sample of zones in a usual run; ``TORTURE=1`` walks through all of them.
"""

from __future__ import annotations

import os
from datetime import date, timedelta
from zoneinfo import available_timezones

import pytest

from tests.unit.sending.campaign.guards.clock_changes import breaches, clock_changes, windows_around

TORTURE = bool(os.environ.get("TORTURE"))
ZONES = sorted(available_timezones() - {"Factory", "localtime"})
STEP = 7 if TORTURE else 61


@pytest.mark.parametrize("zone", ZONES if TORTURE else ZONES[::24])
def test_window_follows_local_clock_around_every_change(zone: str) -> None:
    found = []
    for change in clock_changes(zone, date(2025, 1, 1), date(2027, 1, 1)):
        for window in windows_around(zone, change):
            found += breaches(window, change - timedelta(hours=14), 28 * 60, STEP)
    assert found == []
