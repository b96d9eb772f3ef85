"""The journal of a task instance as its store holds it, read without the provider's code."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Self

from tests import journals
from tests.system.killing.cases import Case
from tests.system.killing.parts import AirflowInParts

UNRESOLVED = frozenset({"pending", "unknown"})
ACCEPTED = "accepted"
UNTOUCHED = "nothing claimed"


@dataclass(frozen=True)
class Journal:
    """What the journal says; empty where there is none."""

    entries: dict[str, dict[str, Any]] = field(default_factory=dict)

    @classmethod
    def in_database(cls, airflow: AirflowInParts, run_id: str, case: Case) -> Self:
        """Read it at once, whether or not the API server is there."""
        rows = airflow.journal_rows("sends_killed", run_id, *case.key)
        return cls(journals.requests({key: _decoded(value) for _, key, value in rows}))

    @property
    def states(self) -> list[str]:
        """How each of its requests stands."""
        return [str(entry["state"]) for entry in self.entries.values()]

    @property
    def unresolved(self) -> list[str]:
        """The references nobody knows the outcome of."""
        return [reference for reference, entry in self.entries.items() if entry["state"] in UNRESOLVED]

    @property
    def phase(self) -> str:
        """How far the send had come."""
        return "/".join(sorted(set(self.states))) or UNTOUCHED


def _decoded(stored: Any) -> Any:
    while isinstance(stored, str):
        stored = json.loads(stored)
    return stored
