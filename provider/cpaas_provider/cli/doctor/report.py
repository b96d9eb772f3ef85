"""Findings of checks: one line each, with what to do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import partial

MAX_SKEW = timedelta(seconds=30)
"""How far a clock may differ without a warning."""

MOST_SKEW = timedelta(minutes=2)
"""How far a clock may differ at all. Passcode records are matched by their time within this limit."""


class Status(StrEnum):
    """How a check ended."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True)
class Finding:
    """The result of a check.

    :param found: what the check found, or why it could not be made
    :param advice: what to do about a warning or a failure
    """

    check: str
    found: str
    advice: str = ""
    _: KW_ONLY
    status: Status


Findings = Iterator[Finding]

NO_CONNECTION = "There is no usable connection."

ok = partial(Finding, status=Status.OK)
warning = partial(Finding, status=Status.WARNING)
failed = partial(Finding, status=Status.FAILED)
skipped = partial(Finding, status=Status.SKIPPED)


def clock(check: str, moment: datetime, now: datetime, advice: str) -> Finding:
    """Return how far another clock is ahead of ours.

    :param moment: the time of the other clock, in UTC if it has no time zone
    :param now: the time of ours
    :param advice: what to do about it
    """
    ahead = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - now
    seconds = ahead.total_seconds()
    found = f"{abs(seconds):,.0f} s {'ahead of' if seconds >= 0 else 'behind'} this machine"
    if abs(ahead) > MOST_SKEW:
        return failed(check, found, advice)
    return warning(check, found, advice) if abs(ahead) > MAX_SKEW else ok(check, found)
