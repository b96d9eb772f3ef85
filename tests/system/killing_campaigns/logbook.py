"""The journal of a campaign as its task's state holds it, read without the provider's code."""

from __future__ import annotations

import json
from base64 import b64decode
from dataclasses import dataclass, field
from typing import Any, Self

from tests.system.killing.parts import AirflowInParts

MEMBER_BYTES = 9


@dataclass
class Logbook:
    """What one task instance claimed, and what it wrote of the end of it."""

    claims: dict[int, tuple[int, str, int]] = field(default_factory=dict)
    """Try, reference and number of recipients of each request."""

    ends: dict[int, str] = field(default_factory=dict)

    @classmethod
    def read(cls, airflow: AirflowInParts, dag_id: str, run_id: str, map_index: int) -> Self:
        """Read it at once, whether or not the API server is there."""
        found = cls()
        for _, _, value in airflow.journal_rows(dag_id, run_id, "send", map_index):
            found._add(value)
        return found

    def _add(self, stored: Any) -> None:
        while isinstance(stored, str):
            stored = json.loads(stored)
        for batch in map(json.loads, stored.get("batches", ())):
            for number, reference, members, _ in batch["intents"]:
                self.claims[number] = batch["try"], reference, len(b64decode(members)) // MEMBER_BYTES
            for number, state, *_ in batch["results"]:
                self.ends[number] = state

    @property
    def people(self) -> int:
        """How many recipients are claimed, and not known not to be sent to."""
        return sum(size for number, (_, _, size) in self.claims.items() if self.ends.get(number) != "not_sent")

    @property
    def settled(self) -> int:
        """How many requests are known to have been carried out."""
        return sum(state == "accepted" for state in self.ends.values())

    @property
    def open(self) -> int:
        """How many requests are claimed whose end is not written."""
        return len(set(self.claims) - set(self.ends))

    def phase(self, number: int, everybody: int) -> str:
        """Tell how far a try of this number is in a campaign for so many."""
        own = sum(size for try_number, _, size in self.claims.values() if try_number == number)
        if not own:
            return "nothing claimed"
        if self.people >= 0.97 * everybody:
            return "at the end"
        return "at the first claims" if own < 0.05 * everybody else "in the middle"


def written(airflow: AirflowInParts, dag_id: str, run_id: str, map_index: int) -> int:
    """Return the newest row of a journal, to see it grow: each write adds one, and old ones are removed."""
    return max((row for row, _, _ in airflow.journal_rows(dag_id, run_id, "send", map_index)), default=0)
