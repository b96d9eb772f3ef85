"""The service's side: how it reports, and what it says it told whom."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from tests.sandbox import Sandbox

HOUR = 3600.0
HELD_BACK = 1800.0
"""For how long final reports are held back on the service's clock, so that somebody waits for them."""

SETTINGS: dict[str, Any] = {
    "report_in_flight": True,
    "report_undelivered_rate": 0.12,
    "report_clicked_rate": 0.1,
    "report_duplicate_rate": 0.15,
    "report_repeat_rate": 0.05,
    "report_disorder": 0.3,
    "report_concurrency": 16,
    "report_interval_seconds": HOUR,
    "report_timeout_seconds": 20.0,
    # Each kill costs what is due an attempt and an hour, and there may be more of them than the service is patient.
    "report_attempts": 1000,
    "report_window_seconds": 30 * 24 * HOUR,
}
# A request takes from 100 to 300 ms where it is to be killed at.
LATENCIES = ((100, 1.0), (200, 0.5))
_PAGE = 1000


class Progress(NamedTuple):
    """How far the reports are: counts of reports, and of attempts at them."""

    booked: int
    pending: int
    due: int
    sent: int
    acknowledged: int
    refused: int
    given_up: int


@dataclass(frozen=True, slots=True)
class Fate:
    """What became of one recipient of one message, and which words about it were acknowledged."""

    recipient: str
    outcome: str
    acknowledged: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Said:
    """One report; the same body may be in several."""

    body: str
    acknowledged: bool
    attempts: int


def as_key(body: Any) -> str:
    """Return a report's body, however it was written."""
    return json.dumps(body, sort_keys=True)


def fates(sandbox: Sandbox) -> Iterator[Fate]:
    """Yield what became of each recipient of each message, as a sandbox has it."""
    after = 0
    while after is not None:
        page = sandbox.control("GET", f"outcomes/sms?after={after}&limit={_PAGE}")
        for item in page["items"]:
            yield Fate(item["recipient"], item["outcome"], tuple(item["acknowledged"]))
        after = page["next"]


class Service:
    """The sandbox, as one who asks it about its reports.

    :param slow: whether it takes its time over requests
    """

    def __init__(self, sandbox: Sandbox, seed: int, *, held_back: bool, slow: bool) -> None:
        self.sandbox = sandbox
        delay = HELD_BACK if held_back else 0.0
        sandbox.control("PUT", "settings", {**SETTINGS, "report_seed": seed, "report_delay_seconds": delay})
        sandbox.control("PUT", "balance", {"balance": 1_000_000_000})
        for milliseconds, rate in LATENCIES if slow else ():
            latency = {"kind": "latency", "params": {"ms": milliseconds}, "rate": rate, "seed": seed}
            sandbox.control("POST", "faults", {**latency, "operation": "send_sms"})

    def progress(self) -> Progress:
        """Return how far the reports are."""
        counted = self.sandbox.counters()["reports"]
        return Progress(**{name: counted[name] for name in Progress._fields})

    def recipients(self) -> int:
        """Return how many were sent to."""
        return int(self.sandbox.counters()["sms"]["recipients"])

    def let_pass(self, seconds: float) -> None:
        """Turn the service's clock forward."""
        self.sandbox.control("POST", "clock/advance", {"seconds": seconds})

    def statuses(self) -> Iterator[Fate]:
        """Yield what became of each recipient of each message."""
        return fates(self.sandbox)

    def said(self) -> Iterator[Said]:
        """Yield every report there is; of use once no more are made."""
        for offset in range(0, self.progress().booked, _PAGE):
            for item in self.sandbox.inbox("reports", limit=_PAGE, offset=offset)["items"]:
                yield Said(as_key(item["body"]), item["state"] == "acknowledged", item["attempts"])
