"""Kills what campaigns are made of, at moments drawn by lot from planning to the very end, and edits their sources."""

from __future__ import annotations

import contextlib
import random
import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import psutil

from tests.system.killing.freezer import Freezer
from tests.system.killing.outages import Outages
from tests.system.killing.parts import AirflowInParts
from tests.system.killing.strikes import FROZEN_SUPERVISOR, SUPERVISOR, TASK, TOLD_TO_END, Strike
from tests.system.killing_campaigns import places
from tests.system.killing_campaigns.campaigns import Campaign
from tests.system.killing_campaigns.logbook import Logbook, written
from tests.system.killing_campaigns.recipients import Version
from tests.system.standalone import StandaloneError

TICK_SECONDS = 0.05
LOOK_SECONDS = 0.2
LOOK_AFTER_PARTS_SECONDS = 5.0
# Longer than any task is deferred or waits for a slot here.
STUCK_SECONDS = 45.0
PLANNING, FIRST_CLAIM, MIDDLE, END = "in planning", "on the first claim", "in the middle", "at the end"
FIRST_END = "as some are settled and some are not"
AIMS = {PLANNING: 0.15, FIRST_CLAIM: 0.2, MIDDLE: 0.45, END: 0.2}
DELAYS = {PLANNING: (0.0, 4.0), FIRST_CLAIM: (0.0, 0.3), MIDDLE: (0.2, 4.0), END: (0.0, 1.0)}
VICTIMS = {TASK: 0.58, SUPERVISOR: 0.25, FROZEN_SUPERVISOR: 0.06, TOLD_TO_END: 0.11}
SHARE_OF_TRIES = 0.95
# Mostly for longer than Airflow waits for its heartbeat: then two tries of one task instance are alive at once.
FROZEN_SECONDS = (5.0, 25.0)
EDITS = 6


class Place(NamedTuple):
    """Where a try belongs."""

    name: str
    map_index: int
    number: int

    @property
    def key(self) -> tuple[str, int]:
        return self.name, self.map_index


@dataclass
class Target:
    """A try that is to be struck, and when."""

    place: Place
    supervisor: psutil.Process
    task: psutil.Process
    victim: str
    aim: str
    delay: float
    written: int
    born: float = field(default_factory=time.monotonic)
    began: float | None = None
    looked: float = 0.0

    @property
    def age(self) -> float:
        """How long ago it was first seen."""
        return time.monotonic() - self.born


@dataclass
class Killer:
    """Strikes until its quota is used up or all runs have ended.

    :param quota: kills in all
    :param each: strikes at one task instance at most, fewer than its tries
    """

    airflow: AirflowInParts
    chance: random.Random
    campaigns: Mapping[str, Campaign]
    outages: Outages
    quota: int
    each: int = 5
    freezer: Freezer = field(default_factory=Freezer)
    strikes: list[Strike] = field(default_factory=list)

    def work(self, ended: Callable[[], bool], within: float) -> bool:
        """Kill until all has ended; return whether it did in time."""
        self._targets: dict[uuid.UUID, Target | None] = {}
        self._to_edit: set[str] = set()
        self._busy = time.monotonic()
        deadline, look_after_parts, look = time.monotonic() + within, 0.0, 0.0
        with self.outages, self.freezer:
            while True:
                now = time.monotonic()
                if now > look:
                    if ended():
                        return True
                    look = now + 1.0
                if now > deadline:
                    return False
                if now > look_after_parts and not self.outages.under_way:
                    self._look_after_parts()
                    look_after_parts = now + LOOK_AFTER_PARTS_SECONDS
                self._tick()
                time.sleep(TICK_SECONDS)

    def _look_after_parts(self) -> None:
        """Start again what died, and the scheduler when it has not begun anything for long."""
        self.airflow.revive()
        if time.monotonic() - self._busy > STUCK_SECONDS:
            self.airflow.replace_scheduler()
            self._busy = time.monotonic()

    def _tick(self) -> None:
        self.freezer.thaw_due()
        if outage := self.outages.tick():
            self.strikes.append(Strike(outage, time.time()))
        running = self.airflow.supervisors()
        if running or self.outages.under_way:
            self._busy = time.monotonic()
        for supervisor, (task_instance, task) in running.items():
            if task_instance not in self._targets:
                found = self._place_of(task_instance)
                self._targets[task_instance] = self._aim(found, supervisor, task) if found else None
            target = self._targets[task_instance]
            if target and self._due(target) and self._may_die(target, task_instance):
                self._targets[task_instance] = None
                self._strike(target)
        for name in sorted(self._to_edit):
            self._edit(self.campaigns[name])

    def _place_of(self, task_instance: uuid.UUID) -> Place | None:
        rows = self.airflow.query(
            "SELECT dag_id, map_index, try_number FROM task_instance WHERE id IN (?, ?) AND task_id = 'send'",
            task_instance.hex,
            str(task_instance),
        )
        return Place(*rows[0]) if rows and rows[0][0] in self.campaigns else None

    def _aim(self, place: Place, supervisor: psutil.Process, task: psutil.Process) -> Target | None:
        broken = self.campaigns[place.name].broken
        if self._spared(place, broken) or (not broken and self.chance.random() > SHARE_OF_TRIES):
            return None
        [victim] = self.chance.choices(list(VICTIMS), list(VICTIMS.values()))
        [aim] = self.chance.choices(list(AIMS), list(AIMS.values()))
        delays = DELAYS[aim]
        if broken:
            # What both ways of breaking the promises are seen by.
            victim, aim, delays = TASK, FIRST_END, (0.0, 0.0)
        return Target(place, supervisor, task, victim, aim, self.chance.uniform(*delays), self._written(place))

    def _spared(self, place: Place, broken: bool) -> bool:
        """Whether it has been struck often enough; one death shows what becomes of a broken campaign."""
        struck = Counter(strike.key for strike in self.strikes)[place.key]
        killed = sum(strike.killed for strike in self.strikes)
        return struck >= 1 if broken else struck >= self.each or killed >= self.quota

    def _due(self, target: Target) -> bool:
        now = time.monotonic()
        if target.began is None and now - target.looked > (0.0 if target.aim == FIRST_CLAIM else LOOK_SECONDS):
            target.looked = now
            target.began = now if self._begins(target) else None
        return target.began is not None and now - target.began >= target.delay

    def _begins(self, target: Target) -> bool:
        """Tell whether that has come from which on the delay counts."""
        if target.aim == PLANNING:
            return True
        if target.aim == END:
            return self._logbook(target.place).people >= 0.97 * self._everybody(target.place)
        if target.aim == FIRST_END:
            logbook = self._logbook(target.place)
            return logbook.settled > 0 and logbook.open > 0
        return self._written(target.place) > target.written

    def _may_die(self, target: Target, task_instance: uuid.UUID) -> bool:
        """Spare a supervisor until it has told that its task runs: LocalExecutor leaves the task queued for ever."""
        return target.victim in (TASK, TOLD_TO_END) or self.airflow.runs(task_instance)

    def _strike(self, target: Target) -> None:
        phase = self._logbook(target.place).phase(target.place.number, self._everybody(target.place))
        with contextlib.suppress(psutil.NoSuchProcess):
            if not target.task.is_running() or target.task.status() == psutil.STATUS_ZOMBIE:
                return
            if target.victim == FROZEN_SUPERVISOR:
                self.freezer.freeze(target.supervisor, self.chance.uniform(*FROZEN_SECONDS))
            elif target.victim == TOLD_TO_END:
                target.task.terminate()
            else:
                (target.task if target.victim == TASK else target.supervisor).kill()
            told = (target.place.key, target.place.number, target.age, target.aim, phase)
            self.strikes.append(Strike(target.victim, time.time(), *told))
            self._to_edit.add(target.place.name)

    def _edit(self, campaign: Campaign) -> None:
        """Put another source in the place of what a struck try has read; what is read meanwhile is told by the file."""
        if len(campaign.versions) > EDITS or campaign.broken:
            self._to_edit.discard(campaign.name)
        elif campaign.kind != "xcom":
            campaign.edit()
            self._to_edit.discard(campaign.name)
        elif not self.outages.under_way:
            self._edit_xcom(campaign)
            self._to_edit.discard(campaign.name)

    def _edit_xcom(self, campaign: Campaign) -> None:
        rows, began = campaign.crowd.edit(campaign.rows), time.time()
        path = f"dags/{campaign.name}/dagRuns/{campaign.run_id}/taskInstances/people/xcomEntries/return_value"
        try:
            self.airflow.api("PATCH", path, {"value": places.as_items(rows), "map_index": -1})
        except StandaloneError:
            # A server at its limits: from now on either may be read.
            campaign.versions.append(Version(rows, began))
        else:
            campaign.replaced(Version(rows, began))

    def _everybody(self, place: Place) -> float:
        campaign = self.campaigns[place.name]
        return len(campaign.versions[-1].rows) * 0.93 / len(campaign.places)

    def _logbook(self, place: Place) -> Logbook:
        return Logbook.read(self.airflow, place.name, self.campaigns[place.name].run_id, place.map_index)

    def _written(self, place: Place) -> int:
        return written(self.airflow, place.name, self.campaigns[place.name].run_id, place.map_index)
