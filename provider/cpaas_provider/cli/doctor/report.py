"""Findings of checks: one line each, with what to do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

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

    :param found: what the check found
    :param advice: what to do
    """

    check: str
    status: Status
    found: str
    advice: str = ""


Findings = Iterator[Finding]


def ok(check: str, found: str) -> Finding:
    """Return that a check passed."""
    return Finding(check, Status.OK, found)


def warning(check: str, found: str, advice: str) -> Finding:
    """Return that a check found a possible problem."""
    return Finding(check, Status.WARNING, found, advice)


def failed(check: str, found: str, advice: str) -> Finding:
    """Return that a check failed."""
    return Finding(check, Status.FAILED, found, advice)


def skipped(check: str, why: str) -> Finding:
    """Return that a check could not be made."""
    return Finding(check, Status.SKIPPED, why)


def clock(check: str, ahead: timedelta, advice: str) -> Finding:
    """Return how far another clock is ahead of ours.

    :param advice: what to do about it
    """
    seconds = ahead.total_seconds()
    found = f"{abs(seconds):,.0f} s {'ahead of' if seconds >= 0 else 'behind'} this machine"
    if abs(ahead) > MOST_SKEW:
        return failed(check, found, advice)
    return warning(check, found, advice) if abs(ahead) > MAX_SKEW else ok(check, found)
