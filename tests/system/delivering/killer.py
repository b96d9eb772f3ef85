"""Kills the API server in the middle of what comes in, and looks at what is left before it starts again."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tests.system.delivering.places import Stored
from tests.system.delivering.service import HOUR, Progress, Service
from tests.system.killing.parts import API_SERVER, AirflowInParts
from tests.system.standalone import StandaloneError, wait_for

SENDING, REPORTING = "sending", "reporting"
BACK_WITHIN = 300.0
EVERY = 0.05


@dataclass(frozen=True, slots=True)
class Kill:
    """One kill.

    :param before: how far the reports were, right before it
    :param lost: reports that had been acknowledged by then and are not in the store
    :param away: seconds until another server answered
    """

    during: str
    before: Progress
    lost: tuple[str, ...]
    away: float

    def __str__(self) -> str:
        return (
            f"killed while {self.during}: {self.before.acknowledged:,} of {self.before.booked:,} reports acknowledged, "
            f"{self.before.due:,} due; away for {self.away:.1f} s; {len(self.lost)} lost"
        )


@dataclass
class Killer:
    """Kills by how much has come in, not by time: a slow machine is killed at the same places."""

    airflow: AirflowInParts
    service: Service
    stored: Stored
    chance: random.Random
    tell: Callable[[str], None]
    kills: list[Kill] = field(default_factory=list)

    def strike_sending(self, times: int, people: int, within: float) -> None:
        """Kill so many times while a campaign is sent to so many."""
        deadline = time.monotonic() + within
        for share in self._shares(times):
            left = deadline - time.monotonic()
            wait_for("the campaign", lambda s=share: self.service.recipients() >= s * people or None, left, EVERY)
            self._kill(SENDING)

    def strike_reporting(self, times: int, within: float) -> None:
        """Kill so many times while the reports that are left come in."""
        deadline = time.monotonic() + within
        begun = self.service.progress().acknowledged
        for share in self._shares(times):
            left = deadline - time.monotonic()
            wait_for("reports", lambda s=share: self._has_come(begun, s), left, EVERY)
            self._kill(REPORTING)

    def all_is_said(self) -> bool:
        """Tell whether it is; let an hour pass where all was tried that was to be tried now."""
        progress = self.service.progress()
        if progress.pending and not progress.due:
            self.service.let_pass(HOUR)
        return not progress.pending

    def _shares(self, times: int) -> Iterator[float]:
        for number in range(times):
            yield (number + self.chance.uniform(0.5, 1.0)) / (times + 1)

    def _has_come(self, begun: int, share: float) -> bool | None:
        """Tell whether that share has, with more on its way."""
        progress = self.service.progress()
        if progress.due and progress.acknowledged - begun >= share * (progress.booked - begun):
            return True
        if self.all_is_said():
            raise StandaloneError(f"All was said before the last kill. {progress}")
        return None

    def _kill(self, during: str) -> None:
        before = self.service.progress()
        self.airflow.kill_api_server()
        began = time.monotonic()
        # In this order: what is acknowledged while we read would be missing.
        said = [(status.recipient, word) for status in self.service.statuses() for word in status.acknowledged]
        stored = self.stored.words()
        lost = tuple(f"{recipient} {word}" for recipient, word in said if (recipient, word) not in stored)
        self.airflow.start_part(API_SERVER)
        wait_for("the API server to be back", lambda: self.airflow.answers() or None, BACK_WITHIN)
        self.kills.append(Kill(during, before, lost, time.monotonic() - began))
        self.tell(f"  {self.kills[-1]}")
