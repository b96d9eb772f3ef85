"""What became of each task instance of a campaign, by all witnesses: Airflow, its own outcome file, and the inbox."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from tests.reading import results_in, with_service_numbers
from tests.sandbox import Sandbox
from tests.system.killing.parts import AirflowInParts
from tests.system.killing.strikes import Strike
from tests.system.killing_campaigns.campaigns import Campaign
from tests.system.killing_campaigns.logbook import Logbook

PAGE = 1000


class ReceivedReport(NamedTuple):
    """One message in the inbox."""

    message_id: str
    text: str


Inbox = dict[str, list[ReceivedReport]]


# As in the DAG.
RETRIES = 9

# No API server answered, neither the task nor its supervisor.
GIVEN_UP = (
    "The task state store could not be reached",
    "so nothing was sent",
    "Failed to report terminal task state to supervisor",
)


@dataclass
class Part:
    """One task instance of a campaign from beginning to end.

    :param began: when its last try did
    :param lines: its outcome file; ``None`` where there is none
    """

    campaign: Campaign
    map_index: int
    state: str
    tries: int
    began: float
    report: dict[str, Any]
    lines: list[dict[str, Any]] | None
    logbook: Logbook
    strikes: list[Strike]
    log: str

    @property
    def struck_last(self) -> bool:
        """Whether its last try was not left alone."""
        return any(strike.number == self.tries for strike in self.strikes)

    @property
    def given_up_by_airflow(self) -> bool:
        """Whether its last try could not read the journal, and Airflow ended it without the retry it asked for."""
        is_early = self.state == "failed" and self.tries <= RETRIES
        return is_early and all(sentence in self.log for sentence in GIVEN_UP)

    def count(self, outcome: str) -> int:
        """Return how many lines of the outcome file say so."""
        return sum(line["outcome"] == outcome for line in self.lines or ())

    def __str__(self) -> str:
        outcomes = Counter(line["outcome"] for line in self.lines or ())
        return "\n".join(
            [
                f"{self.campaign}[{self.map_index}]: {self.state} after {self.tries} tries",
                f"  began {self.began:.1f}, sources since {[round(one.since, 1) for one in self.campaign.versions]}",
                *(f"  struck {strike}" for strike in self.strikes),
                f"  outcomes {dict(outcomes)}",
                f"  report { {name: value for name, value in self.report.items() if value} }",
                *(f"  | {line}" for line in self.log.splitlines()),
            ]
        )


@dataclass
class Story:
    """One campaign: its parts, and what arrived at whom.

    :param refused: whom the service refuses
    :param obscured: how many requests of the round the weather may have left in doubt
    """

    campaign: Campaign
    parts: list[Part]
    inbox: Inbox
    refused: set[str] = field(default_factory=set)
    obscured: int = 0
    outages: int = 0

    @property
    def twice(self) -> list[str]:
        """Those something arrived at more than once."""
        return [who for who, arrivals in self.inbox.items() if len(arrivals) > 1]


@dataclass(frozen=True)
class Witnesses:
    """Whom to ask about one round."""

    airflow: AirflowInParts
    sandbox: Sandbox

    def inbox(self, box: str) -> Inbox:
        """Return what everybody got."""
        found: Inbox = {}
        for item in self._items(box):
            found.setdefault(item["recipient"], []).append(ReceivedReport(str(item["message_id"]), str(item["text"])))
        return found

    def parts(self, campaign: Campaign, strikes: list[Strike]) -> list[Part]:
        """Return what became of each of its task instances."""
        path = f"dags/{campaign.name}/dagRuns/{campaign.run_id}/taskInstances"
        found = self.airflow.api("GET", path, limit=50)["task_instances"]
        instances = {one["map_index"]: one for one in found if one["task_id"] == "send"}
        return [self._part(campaign, place, instances.get(place, {}), strikes) for place in campaign.places]

    def _part(self, campaign: Campaign, place: int, instance: dict[str, Any], strikes: list[Strike]) -> Part:
        name, run_id, state = campaign.name, campaign.run_id, str(instance.get("state"))
        path = f"dags/{name}/dagRuns/{run_id}/taskInstances/send/xcomEntries"
        key = "return_value" if state == "success" else "report"
        entry = self.airflow.found(f"{path}/{key}", map_index=place)
        file = campaign.results(place)
        return Part(
            campaign=campaign,
            map_index=place,
            state=state,
            tries=int(instance.get("try_number") or 0),
            began=datetime.fromisoformat(instance["start_date"]).timestamp() if instance.get("start_date") else 0.0,
            report=(entry and entry["value"]) or {},
            lines=_lines(file) if file.exists() else None,
            logbook=Logbook.read(self.airflow, name, run_id, place),
            strikes=[strike for strike in strikes if strike.key == (name, place)],
            log=self.airflow.task_log(name, run_id, "send", map_index=place if campaign.mapped else None),
        )

    def _items(self, box: str) -> Iterator[dict[str, Any]]:
        """Yield what arrived, each once: of what arrives meanwhile, what stands on a page moves on to the next."""
        offset, seen = 0, set[int]()
        while found := self.sandbox.inbox(box, limit=PAGE, offset=offset)["items"]:
            yield from (item for item in found if item["seq"] not in seen)
            seen.update(item["seq"] for item in found)
            offset += len(found)


def _lines(file: Path) -> list[dict[str, Any]]:
    if file.suffix == ".parquet":
        from pyarrow import parquet

        return list(map(with_service_numbers, parquet.read_table(file).to_pylist()))
    return results_in(file)
