"""Kills what a run is made of, at moments drawn by lot from the whole life of a try."""

from __future__ import annotations

import contextlib
import random
import statistics
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import psutil

from tests.sandbox import Sandbox
from tests.system.killing import weather
from tests.system.killing.cases import PLAIN, Case
from tests.system.killing.freezer import Freezer
from tests.system.killing.journal import Journal
from tests.system.killing.outages import Outages
from tests.system.killing.parts import AirflowInParts, Try
from tests.system.killing.strikes import AT_A_MOMENT, FROZEN_SUPERVISOR, ON_ARRIVAL, ON_CLAIM, SUPERVISOR, TASK, Strike
from tests.system.killing.targets import Target

TICK_SECONDS = 0.03
LOOK_AFTER_PARTS_SECONDS = 5.0
# Longer than any task is deferred here.
STUCK_SECONDS = 45.0
# Until there are figures of this machine.
FIRST_GUESS_OF_A_LIFE = 2.5
# Tries that had to wait for the API server say nothing of how long others live.
LONGEST_LIFE = 5.0
SHARE_OF_TRIES = 0.8
AIMS = {AT_A_MOMENT: 0.4, ON_CLAIM: 0.35, ON_ARRIVAL: 0.25}
VICTIMS = {TASK: 0.5, SUPERVISOR: 0.4, FROZEN_SUPERVISOR: 0.1}
# Mostly for longer than Airflow waits for its heartbeat: then two tries of one task instance are alive at once.
FROZEN_SECONDS = (5.0, 25.0)


@dataclass
class Killer:
    """Strikes in one run until its quota is used up or the run has ended.

    :param quota: kills in all
    :param each: strikes at one task instance at most, fewer than its tries
    """

    airflow: AirflowInParts
    sandbox: Sandbox
    cases: Iterable[Case]
    chance: random.Random
    outages: Outages
    quota: int
    each: int = 3
    freezer: Freezer = field(default_factory=Freezer)
    strikes: list[Strike] = field(default_factory=list)
    lives: list[float] = field(default_factory=list)

    def work(self, run_id: str, ended: Callable[[], bool], within: float) -> bool:
        """Kill until the run has ended; return whether it did in time."""
        self._run_id = run_id
        self._cases = {case.key: case for case in self.cases}
        self._targets: dict[uuid.UUID, Target | None] = {}
        self._born: dict[uuid.UUID, float] = {}
        self._busy = time.monotonic()
        deadline, look_after_parts = time.monotonic() + within, 0.0
        with self.outages, self.freezer:
            while not ended():
                now = time.monotonic()
                if now > deadline:
                    return False
                if now > look_after_parts and not self.outages.under_way:
                    self._look_after_parts()
                    look_after_parts = now + LOOK_AFTER_PARTS_SECONDS
                self._tick()
                time.sleep(TICK_SECONDS)
        return True

    def _look_after_parts(self) -> None:
        """Start again what died, and the scheduler when it has not begun anything for long.

        When the executor's word on a try comes together with a late one on the try before, the scheduler takes only
        the latter, and LocalExecutor cannot revoke: the task stays queued until there is another scheduler.
        """
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
        tries = {task_instance for task_instance, _ in running.values()}
        self._note_lives(tries)
        for supervisor, (task_instance, task) in running.items():
            if task_instance not in self._targets:
                found = self.airflow.try_of(task_instance)
                self._targets[task_instance] = self._aim(found, supervisor, task) if found else None
            target = self._targets[task_instance]
            if target and target.due and self._may_die(target, task_instance):
                self._targets[task_instance] = None
                self._born.pop(task_instance, None)
                self._strike(target)

    def _note_lives(self, tries: set[uuid.UUID]) -> None:
        """Learn how long a try lives when nobody kills it, to spread the moments over that."""
        now = time.monotonic()
        for task_instance in tries - set(self._targets):
            self._born[task_instance] = now
        for task_instance in set(self._born) - tries:
            self.lives.append(now - self._born.pop(task_instance))

    def _aim(self, found: Try, supervisor: psutil.Process, task: psutil.Process) -> Target | None:
        case = self._cases.get((found.task_id, found.map_index))
        if case is None or self._spared(case):
            return None
        [victim] = self.chance.choices(list(VICTIMS), list(VICTIMS.values()))
        [aim] = self.chance.choices(list(AIMS), list(AIMS.values()))
        if case.operator == PLAIN:
            victim, aim = TASK, ON_ARRIVAL
        elif self.chance.random() > SHARE_OF_TRIES:
            return None
        return Target(case, found.number, supervisor, task, victim, aim, *self._moment(aim, case))

    def _moment(self, aim: str, case: Case) -> tuple[float, Callable[[], bool]]:
        """Draw how long after what."""
        if aim == ON_ARRIVAL:
            before = self._arrivals(case)
            longest = 0.0 if case.operator == PLAIN else 0.2
            return self.chance.uniform(0.0, longest), lambda: self._arrivals(case) > before
        if aim == ON_CLAIM:
            return self.chance.uniform(0.0, weather.SLOWEST_SECONDS), lambda: bool(self._journal(case).unresolved)
        life = statistics.median(self.lives[-30:] or [FIRST_GUESS_OF_A_LIFE])
        return self.chance.uniform(0.0, 1.2 * min(life, LONGEST_LIFE)), lambda: True

    def _spared(self, case: Case) -> bool:
        """Whether it has been killed often enough; one death shows what becomes of a case without a journal."""
        struck = Counter(strike.key for strike in self.strikes)[case.key]
        killed = sum(strike.killed for strike in self.strikes)
        return struck >= (1 if case.operator == PLAIN else self.each) or killed >= self.quota

    def _may_die(self, target: Target, task_instance: uuid.UUID) -> bool:
        """Spare a supervisor until it has told that its task runs: LocalExecutor leaves the task queued for ever."""
        return target.victim == TASK or self.airflow.runs(task_instance)

    def _arrivals(self, case: Case) -> int:
        return int(self.sandbox.inbox(case.box, recipient=case.recipients[0], limit=1)["total"])

    def _journal(self, case: Case) -> Journal:
        return Journal.in_database(self.airflow, self._run_id, case)

    def _strike(self, target: Target) -> None:
        phase = self._journal(target.case).phase
        with contextlib.suppress(psutil.NoSuchProcess):
            if not target.task.is_running() or target.task.status() == psutil.STATUS_ZOMBIE:
                return
            if target.victim == FROZEN_SUPERVISOR:
                self.freezer.freeze(target.supervisor, self.chance.uniform(*FROZEN_SECONDS))
            else:
                (target.task if target.victim == TASK else target.supervisor).kill()
            told = (target.case.key, target.number, target.age, target.aim, phase)
            self.strikes.append(Strike(target.victim, time.time(), *told))
