"""Round after round of campaigns and kills, until there have been enough."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.sandbox import Sandbox, connection_json
from tests.system.killing.outages import Outages
from tests.system.killing.parts import AirflowInParts
from tests.system.killing.strikes import Strike
from tests.system.killing_campaigns import places, report, weather
from tests.system.killing_campaigns.campaigns import CONCURRENCY, KINDS, PACES, Campaign, Drawn
from tests.system.killing_campaigns.evidence import Story, Witnesses
from tests.system.killing_campaigns.killer import Killer
from tests.system.killing_campaigns.oracle import violations
from tests.system.killing_campaigns.recipients import ROOM
from tests.system.standalone import StandaloneError, wait_for

DAGS = Path(__file__).parent / "dags"
ROUND_WITHIN = 1200.0
LAST_PROCESSES_WITHIN = 60.0
BEGUN_WITHIN = 150.0
ENDED = ("success", "failed")
CONNECTION = {"timeout": 3, "sender_id": "Example", "email_sender_id": "news@example.com"}
IDLE = {"operator": "sms", "content": "Hello"}


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

    @property
    def sound(self) -> list[Story]:
        """The campaigns that keep their promises."""
        return [story for story in self.stories if not story.campaign.broken]

    def violations(self) -> list[str]:
        """Return every promise that was not kept, each with its whole story."""
        return [*self.wrongs, *(wrong for story in self.sound for wrong in told(story))]

    def seen(self, operator: str) -> list[str]:
        """Return what was seen of campaigns that were made to break the promises."""
        return [
            wrong
            for story in self.stories
            if story.campaign.operator == operator and story.campaign.broken
            for wrong in violations(story)
        ]

    def __str__(self) -> str:
        return report.tables(self.sound, self.strikes)


def told(story: Story) -> list[str]:
    """Return what was wrong with a campaign, with its story."""
    wrongs = violations(story)
    return ["\n".join([*wrongs, *map(str, story.parts)])] if wrongs else []


@dataclass
class Plan:
    """What a round is made of.

    :param each: strikes at one task instance at most
    :param size: people of a campaign
    :param broken: what is made to break the promises, to be found out
    """

    whole: int
    mapped: int
    kills: int
    outages: int
    foul: bool
    each: int = 5
    size: int = 10_000
    broken: tuple[str, ...] = ()


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
        folder = self._folder = self.home / "campaigns"
        folder.mkdir(parents=True)
        self._drawn = Drawn(folder, self._chance)
        names = [(kind, f"{kind}{suffix}") for kind in KINDS for suffix in ("", "_mapped")]
        for _, name in names:
            (folder / f"{name}.terms").write_text(json.dumps(IDLE))
        self.sandbox = Sandbox(self.home / "sandbox.log").start()
        try:
            settings = {"KILLED_CAMPAIGNS": str(folder), "KILLED_TABLES": places.tables_of(folder)}
            settings["AIRFLOW__CPAAS__JOURNAL"] = self.journal
            for kind, name in names:
                settings |= places.connection_of(kind, name, folder)
            for name, (size, rate) in PACES.items():
                pace = {"recipients_per_request": size, "requests_per_second": rate, "max_concurrency": CONCURRENCY}
                connection = connection_json(self.sandbox.connection, **CONNECTION, **pace)
                settings[f"AIRFLOW_CONN_{name.upper()}"] = connection
            self.airflow = AirflowInParts(self.home / "airflow", DAGS, settings).__enter__()
        except BaseException:
            self.sandbox.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.airflow.stop()
        self.sandbox.stop()
        places.drop_tables(self._folder)

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
        weather.make(self.sandbox, self._chance, plan.foul)
        campaigns = {campaign.name: campaign for campaign in self._campaigns(plan)}
        refused = {name: self._begin(campaign, plan) for name, campaign in campaigns.items()}
        outages = Outages(self.airflow, self._chance, plan.outages)
        killer = Killer(self.airflow, self._chance, campaigns, outages, plan.kills, plan.each)
        if not killer.work(lambda: all(map(self._ended, campaigns.values())), ROUND_WITHIN):
            self.outcome.wrongs.append(f"Not all of {list(campaigns)} ended within {ROUND_WITHIN:g} s.")
            # What is still on its way would be missing, and blamed on the campaign.
            campaigns = {name: campaign for name, campaign in campaigns.items() if self._ended(campaign)}
        self._let_the_last_end()
        stories = self._stories(campaigns, killer.strikes, refused)
        self._tell_of(plan, killer.strikes, stories, time.monotonic() - began)

    def _campaigns(self, plan: Plan) -> Iterator[Campaign]:
        names = set()
        drawn = [
            *(lambda operator=operator: self._drawn.broken(operator) for operator in plan.broken),
            *(
                lambda mapped=mapped: self._drawn.next(mapped)
                for mapped in (*(False,) * plan.whole, *(True,) * plan.mapped)
            ),
        ]
        for draw in drawn:
            campaign = draw()
            if campaign.name not in names:
                names.add(campaign.name)
                yield campaign

    def _begin(self, campaign: Campaign, plan: Plan) -> set[str]:
        """Begin a campaign, and return whom of it the service refuses."""
        campaign.prepare(plan.size)
        refused = set[str]()
        if plan.foul:
            refused = set(self._chance.sample(sorted(campaign.versions[0].people), weather.REFUSED))
            weather.refuse(self.sandbox, sorted(refused))
        # A DAG is gone for a time where its file could not be read for once.
        campaign.run_id = wait_for(f"{campaign.name} to begin", lambda: self._triggered(campaign), BEGUN_WITHIN)
        return refused

    def _triggered(self, campaign: Campaign) -> str | None:
        try:
            return self.airflow.trigger(campaign.name)
        except StandaloneError:
            return None

    def _ended(self, campaign: Campaign) -> bool:
        query = "SELECT state FROM dag_run WHERE dag_id = ? AND run_id = ?"
        rows = self.airflow.query(query, campaign.name, campaign.run_id)
        return bool(rows) and rows[0][0] in ENDED

    def _let_the_last_end(self) -> None:
        """Wait for tasks that outlived their supervisors, and for what the service still works on."""
        try:
            wait_for("the last task to end", lambda: not self.airflow.task_processes() or None, LAST_PROCESSES_WITHIN)
        except StandaloneError as error:
            self.outcome.wrongs.append(str(error))
        # The service may still be at a request whose sender is dead; it tells nobody when it is done.
        time.sleep(weather.SLOWEST_SECONDS)

    def _stories(
        self, campaigns: dict[str, Campaign], strikes: list[Strike], refused: dict[str, set[str]]
    ) -> list[Story]:
        witnesses = Witnesses(self.airflow, self.sandbox)
        boxes = {box: witnesses.inbox(box) for box in ("sms", "email")}
        counted = self.sandbox.counters()
        for box, inbox in boxes.items():
            arrived = sum(map(len, inbox.values()))
            if arrived != counted[box]["recipients"]:
                self.outcome.wrongs.append(f"{box}: {arrived} in the inbox, {counted[box]['recipients']} counted.")
        stories = []
        for name, campaign in campaigns.items():
            own = {
                who: arrivals
                for who, arrivals in boxes["email" if campaign.operator == "email" else "sms"].items()
                if campaign.crowd.first <= _number(who) < campaign.crowd.first + ROOM
            }
            parts = witnesses.parts(campaign, strikes)
            stories.append(Story(campaign, parts, own, refused[name], weather.obscured(self.sandbox)))
        self.outcome.stories += stories
        self.outcome.strikes += strikes
        return stories

    def _tell_of(self, plan: Plan, strikes: list[Strike], stories: list[Story], seconds: float) -> None:
        died = sum(strike.killed for strike in strikes)
        self.tell(
            f"round in {'foul' if plan.foul else 'fair'} weather: {died} kills, {seconds:.0f} s, "
            f"died by themselves so far: {self.airflow.deaths or 'none'}"
        )
        for story in stories:
            states = [f"{part.state} after {part.tries} ({part.count('unknown')}?)" for part in story.parts]
            self.tell(f"  {story.campaign}: {', '.join(states)}; {len(story.twice)} twice")
            if story.campaign.broken:
                self.tell(f"    as it was made to: {violations(story)}")
            else:
                for wrong in told(story):
                    self.tell(wrong)


def _number(who: str) -> int:
    return int(who.removeprefix("234803").removeprefix("person").partition("@")[0])
