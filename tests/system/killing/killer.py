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
from tests.system.killing.cases import PLAIN, Case
from tests.system.killing.journal import Journal
from tests.system.killing.outages import FROZEN, Outages
from tests.system.killing.parts import AirflowInParts, Try

TICK_SECONDS = 0.03
LOOK_AFTER_PARTS_SECONDS = 5.0
TASK, SUPERVISOR = "task", "supervisor"
AT_A_MOMENT, ON_ARRIVAL = "at a moment", "on arrival"
# Until there are figures of this machine.
FIRST_GUESS_OF_A_LIFE = 2.5


@dataclass(frozen=True)
class Kill:
    """What was killed, when, and how far the try had come."""

    victim: str
    key: tuple[str, int] | None
    number: int
    at: float
    age: float
    aim: str
    phase: str

    @property
    def is_kill(self) -> bool:
        """Whether something died; a frozen API server did not."""
        return self.victim != FROZEN

    def __str__(self) -> str:
        clock = time.strftime("%H:%M:%S", time.localtime(self.at))
        if self.key is None:
            return f"{clock} {self.victim}"
        return f"{clock} {self.victim} of try {self.number}, {self.age:.2f} s old, {self.phase} ({self.aim})"


@dataclass
class Target:
    """A try that is to be killed once its moment has come."""

    case: Case
    number: int
    supervisor: psutil.Process
    task: psutil.Process
    victim: str
    delay: float
    aim: str = AT_A_MOMENT
    arrived: int | None = None
    seen: float = field(default_factory=time.monotonic)

    @property
    def age(self) -> float:
        """How long ago it was first seen."""
        return time.monotonic() - self.seen


@dataclass
class Killer:
    """Kills in one run until its quota is used up or the run has ended.

    :param quota: kills in all
    :param each: kills of one task instance at most, fewer than its tries
    """

    airflow: AirflowInParts
    sandbox: Sandbox
    cases: Iterable[Case]
    chance: random.Random
    outages: Outages
    quota: int
    each: int = 3
    share_of_tries: float = 0.8
    share_of_supervisors: float = 0.4
    share_on_arrival: float = 0.3
    kills: list[Kill] = field(default_factory=list)
    lives: list[float] = field(default_factory=list)

    def work(self, run_id: str, ended: Callable[[], bool], within: float) -> bool:
        """Kill until the run has ended; return whether it did in time."""
        self._run_id = run_id
        self._cases = {case.key: case for case in self.cases}
        self._targets: dict[uuid.UUID, Target | None] = {}
        self._born: dict[uuid.UUID, float] = {}
        deadline, look_after_parts = time.monotonic() + within, 0.0
        with self.outages:
            while not ended():
                now = time.monotonic()
                if now > deadline:
                    return False
                if now > look_after_parts and not self.outages.under_way:
                    self.airflow.revive()
                    look_after_parts = now + LOOK_AFTER_PARTS_SECONDS
                self._tick()
                time.sleep(TICK_SECONDS)
        return True

    def _tick(self) -> None:
        if outage := self.outages.tick():
            self.kills.append(Kill(outage, None, 0, time.time(), 0.0, "", ""))
        running = self.airflow.supervisors()
        tries = {task_instance for task_instance, _ in running.values()}
        self._note_lives(tries)
        for supervisor, (task_instance, task) in running.items():
            if task_instance not in self._targets:
                found = self.airflow.try_of(task_instance)
                self._targets[task_instance] = self._aim(found, supervisor, task) if found else None
            target = self._targets[task_instance]
            if target and self._due(target) and self._may_die(target, task_instance):
                self._targets[task_instance] = None
                self._born.pop(task_instance, None)
                self._kill(target)

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
        victim = SUPERVISOR if self.chance.random() < self.share_of_supervisors else TASK
        if case.operator == PLAIN:
            return Target(case, found.number, supervisor, task, TASK, 0.0, ON_ARRIVAL, self._arrivals(case))
        if self.chance.random() > self.share_of_tries:
            return None
        if self.chance.random() < self.share_on_arrival:
            delay = self.chance.uniform(0.0, 0.2)
            return Target(case, found.number, supervisor, task, victim, delay, ON_ARRIVAL, self._arrivals(case))
        life = statistics.median(self.lives[-30:] or [FIRST_GUESS_OF_A_LIFE])
        return Target(case, found.number, supervisor, task, victim, self.chance.uniform(0.0, 1.2 * life))

    def _spared(self, case: Case) -> bool:
        """Whether it has been killed often enough; one death shows what becomes of a case without a journal."""
        deaths = Counter(kill.key for kill in self.kills)[case.key]
        killed = sum(kill.is_kill for kill in self.kills)
        return deaths >= (1 if case.operator == PLAIN else self.each) or killed >= self.quota

    def _due(self, target: Target) -> bool:
        if target.arrived is None:
            return target.age >= target.delay
        if self._arrivals(target.case) > target.arrived:
            # From here on it is a moment like any other.
            target.arrived, target.delay = None, target.age + target.delay
        return False

    def _may_die(self, target: Target, task_instance: uuid.UUID) -> bool:
        """Spare a supervisor until it has told that its task runs: LocalExecutor leaves the task queued for ever."""
        return target.victim != SUPERVISOR or self.airflow.runs(task_instance)

    def _arrivals(self, case: Case) -> int:
        return int(self.sandbox.inbox(case.box, recipient=case.recipients[0], limit=1)["total"])

    def _kill(self, target: Target) -> None:
        phase = Journal.in_database(self.airflow, self._run_id, target.case).phase
        victim = target.supervisor if target.victim == SUPERVISOR else target.task
        with contextlib.suppress(psutil.NoSuchProcess):
            if not target.task.is_running() or target.task.status() == psutil.STATUS_ZOMBIE:
                return
            victim.kill()
            story = (target.number, time.time(), target.age, target.aim, phase)
            self.kills.append(Kill(target.victim, target.case.key, *story))
