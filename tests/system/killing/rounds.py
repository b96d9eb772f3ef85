"""Round after round of sends and kills, until there have been enough."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.sandbox import Sandbox, connection_json
from tests.system.killing import report, weather
from tests.system.killing.cases import Case, Population, configuration, draw_cases, plain_cases
from tests.system.killing.evidence import Story, Witnesses
from tests.system.killing.killer import Killer
from tests.system.killing.oracle import violations
from tests.system.killing.outages import Outages
from tests.system.killing.parts import AirflowInParts
from tests.system.killing.strikes import Strike
from tests.system.standalone import StandaloneError, wait_for

DAGS = Path(__file__).parent / "dags"
DAG_ID = "sends_killed"
ROUND_WITHIN = 420.0
LAST_PROCESSES_WITHIN = 60.0
ENDED = ("success", "failed")


@dataclass
class Outcome:
    """What came of all rounds so far."""

    stories: list[Story] = field(default_factory=list)
    strikes: list[Strike] = field(default_factory=list)
    wrongs: list[str] = field(default_factory=list)

    @property
    def died(self) -> int:
        """How many processes were killed."""
        return sum(strike.killed for strike in self.strikes)

    def of(self, journaled: bool) -> list[Story]:
        """Return the cases with a journal, or those without."""
        return [story for story in self.stories if (story.case.operator != "plain") == journaled]

    def violations(self) -> list[str]:
        """Return every promise that was not kept, each with its whole story."""
        found = [(story, violations(story)) for story in self.of(journaled=True)]
        return [*self.wrongs, *("\n".join([*wrongs, str(story)]) for story, wrongs in found if wrongs)]

    def twice_without_journal(self) -> int:
        """How many people got something twice where no journal was kept: the proof that it would be seen."""
        return sum(len(story.twice) for story in self.of(journaled=False))

    def __str__(self) -> str:
        return report.tables(self.stories, self.strikes)


@dataclass
class Plan:
    """What a round is made of."""

    cases: int
    kills: int
    outages: int
    foul: bool
    plain: int = 0


def _tell(line: str) -> None:
    print(line, flush=True)


@dataclass
class Killing:
    """One Airflow and one sandbox, for as many rounds as it takes; a context manager."""

    home: Path
    seed: int
    journal: str = "task_state"
    tell: Callable[[str], None] = _tell
    outcome: Outcome = field(default_factory=Outcome)

    def __enter__(self) -> Killing:
        self.tell(f"seed {self.seed}")
        self._chance = random.Random(self.seed)
        self._people = Population()
        self.sandbox = Sandbox(self.home / "sandbox.log").start()
        try:
            weather.prepare(self.sandbox)
            connection = connection_json(self.sandbox.connection, **weather.CONNECTION)
            settings = {"AIRFLOW_CONN_CPAAS_DEFAULT": connection, "AIRFLOW__CPAAS__JOURNAL": self.journal}
            self.airflow = AirflowInParts(self.home / "airflow", DAGS, settings).__enter__()
        except BaseException:
            self.sandbox.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.airflow.stop()
        self.sandbox.stop()

    def until(self, kills: int, plans: Iterator[Plan], within: float) -> Outcome:
        """Hold rounds until so many processes died, or the time is over; what was found is told even when ended."""
        deadline = time.monotonic() + within
        try:
            while self.outcome.died < kills and time.monotonic() < deadline:
                self.round(next(plans))
        except KeyboardInterrupt:
            self.outcome.wrongs.append("It was ended early.")
        if self.outcome.died < kills:
            self.outcome.wrongs.append(f"There were only {self.outcome.died} kills, in {within:g} s at most.")
        return self.outcome

    def round(self, plan: Plan) -> None:
        """Send, kill, wait for the last process, and hear the witnesses."""
        began = time.monotonic()
        cases = draw_cases(plan.cases, self._people, self._chance) + plain_cases(plan.plain, self._people)
        weather.make(self.sandbox, self._chance, plan.foul)
        run_id = self.airflow.trigger(DAG_ID, configuration(cases))
        outages = Outages(self.airflow, self._chance, plan.outages)
        killer = Killer(self.airflow, self.sandbox, cases, self._chance, outages, plan.kills)
        in_time = killer.work(run_id, lambda: self._ended(run_id), ROUND_WITHIN)
        if not in_time:
            self.outcome.wrongs.append(f"The run {run_id} did not end within {ROUND_WITHIN:g} s.")
        self._let_the_last_end()
        self._hear(run_id, cases, killer.strikes)
        weather_name = "foul" if plan.foul else "fair"
        died = sum(strike.killed for strike in killer.strikes)
        self.tell(
            f"round of {len(cases)} in {weather_name} weather: {died} kills, {time.monotonic() - began:.0f} s, "
            f"died by themselves so far: {self.airflow.deaths or 'none'}"
        )

    def _ended(self, run_id: str) -> bool:
        rows = self.airflow.query("SELECT state FROM dag_run WHERE run_id = ?", run_id)
        return bool(rows) and rows[0][0] in ENDED

    def _let_the_last_end(self) -> None:
        """Wait for tasks that outlived their supervisors, and for what the service still works on."""
        try:
            wait_for("the last task to end", lambda: not self.airflow.task_processes() or None, LAST_PROCESSES_WITHIN)
        except StandaloneError as error:
            self.outcome.wrongs.append(str(error))
        # The service may still be at a request whose sender is dead; it tells nobody when it is done.
        time.sleep(weather.SLOWEST_SECONDS)

    def _hear(self, run_id: str, cases: list[Case], strikes: list[Strike]) -> None:
        witnesses = Witnesses(self.airflow, self.sandbox, DAG_ID, run_id)
        self.outcome.stories += witnesses.stories(cases, strikes)
        self.outcome.strikes += strikes
        counted = self.sandbox.counters()
        boxes = {"sms": "recipients", "email": "recipients", "airtime": "purchases", "otp": "requested"}
        for box, counter in boxes.items():
            arrived = sum(map(len, witnesses.arrivals(box).values()))
            if arrived != counted[box][counter]:
                self.outcome.wrongs.append(f"{box}: {arrived} in the inbox, {counted[box][counter]} by the counters.")
