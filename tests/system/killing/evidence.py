"""What became of each case, by all witnesses: Airflow, the state store, and the sandbox's inbox."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from tests.sandbox import Sandbox
from tests.system.killing.cases import NAMES, Case
from tests.system.killing.journal import Journal
from tests.system.killing.parts import AirflowInParts
from tests.system.killing.strikes import Strike

PAGE = 1000
AIRFLOW_PAGE = 50
# What the log of a try says that found its request carried out by an earlier one.
EVIDENCE = "A probe established that"


@dataclass(frozen=True)
class Story:
    """One case from beginning to end."""

    case: Case
    state: str
    tries: int
    result: dict[str, Any]
    report: Any
    journal: Journal
    arrivals: dict[str, list[str]]
    """The ids of what arrived at each person."""

    strikes: list[Strike]
    outages: list[Strike]
    log: str
    by_evidence: bool

    @property
    def succeeded(self) -> bool:
        return self.state == "success"

    @property
    def missing(self) -> list[str]:
        """Those nothing arrived at."""
        return [one for one, ids in self.arrivals.items() if not ids]

    @property
    def twice(self) -> list[str]:
        """Those something arrived at more than once."""
        return [one for one, ids in self.arrivals.items() if len(ids) > 1]

    @property
    def unknown(self) -> int:
        """How many its result says it does not know of."""
        return int(self.result.get("unknown_recipients") or 0)

    @property
    def result_id(self) -> str | None:
        """What its result says was sent, bought or made."""
        return self.result.get("id") or self.result.get("row_id")

    def __str__(self) -> str:
        case = self.case
        return "\n".join(
            [
                f"{case.operator}[{case.map_index}], {case.on_unknown}: {self.state} after {self.tries} tries",
                *(f"  struck {strike}" for strike in self.strikes),
                *(f"  meanwhile {strike}" for strike in self.outages),
                f"  result {self.result}",
                f"  report {self.report}",
                f"  journal {self.journal.entries}",
                f"  arrivals {self.arrivals}",
                *(f"  | {line}" for line in self.log.splitlines()),
            ]
        )


@dataclass(frozen=True)
class Witnesses:
    """Whom to ask about one run."""

    airflow: AirflowInParts
    sandbox: Sandbox
    dag_id: str
    run_id: str

    def stories(self, cases: list[Case], strikes: list[Strike]) -> list[Story]:
        """Return what became of each case."""
        instances = {(one["task_id"], one["map_index"]): one for one in self._instances()}
        inboxes = {box: self.arrivals(box) for box in {case.box for case in cases}}
        return [self._story(case, instances.get(case.key, {}), inboxes[case.box], strikes) for case in cases]

    def arrivals(self, box: str) -> dict[str, list[str]]:
        """Return the ids of what each person got."""
        found: dict[str, list[str]] = {}
        for item in self._inbox(box):
            found.setdefault(_recipient(item), []).append(str(item.get("message_id") or item["id"]))
        return found

    def _story(
        self, case: Case, instance: dict[str, Any], inbox: dict[str, list[str]], strikes: Iterable[Strike]
    ) -> Story:
        log = self.airflow.task_log(self.dag_id, self.run_id, case.operator, map_index=case.map_index)
        place = f"dags/{self.dag_id}/dagRuns/{self.run_id}/taskInstances/{case.operator}"
        return Story(
            case=case,
            state=str(instance.get("state")),
            tries=int(instance.get("try_number") or 0),
            result=self._xcom(case, place, "return_value") or {},
            report=self._xcom(case, place, "report"),
            journal=Journal.in_database(self.airflow, self.run_id, case),
            arrivals={one: inbox.get(one, []) for one in case.recipients},
            strikes=[strike for strike in strikes if strike.key == case.key],
            outages=[strike for strike in strikes if strike.key is None],
            log=log,
            by_evidence=EVIDENCE in log,
        )

    def _xcom(self, case: Case, place: str, key: str) -> Any:
        entry = self.airflow.found(f"{place}/xcomEntries/{key}", map_index=case.map_index)
        return entry and entry["value"]

    def _instances(self) -> Iterator[dict[str, Any]]:
        offset, path = 0, f"dags/{self.dag_id}/dagRuns/{self.run_id}/taskInstances"
        while found := self.airflow.api("GET", path, limit=AIRFLOW_PAGE, offset=offset)["task_instances"]:
            yield from found
            offset += len(found)

    def _inbox(self, box: str) -> Iterator[dict[str, Any]]:
        offset = 0
        while found := self.sandbox.inbox(box, limit=PAGE, offset=offset)["items"]:
            yield from found
            offset += len(found)


def _recipient(item: dict[str, Any]) -> str:
    return str(item["columns"][NAMES["id"]] if "columns" in item else item["recipient"])
