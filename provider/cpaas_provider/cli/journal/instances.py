"""A task instance, and the journal that was found for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from airflow.state import TaskScope

from cpaas_provider.sending.errors import SendingError
from cpaas_provider.sending.journal.view import JournalView

_RUNNING = frozenset({"running", "restarting"})


class JournalError(SendingError):
    """A journal cannot be read or changed. The message is for the user of the command."""


@dataclass(frozen=True)
class Instance:
    """A task instance and its state in Airflow.

    :param map_index: the map index; the iteration if the task is in a loop
    :param state: the state; ``None`` if Airflow has not set one
    :param campaign_taken: whether a task instance works on its campaign now; ``None`` without an idempotency_key
    :param region_id: the mapped task or loop that it belongs to; ``None`` before Airflow 3.4
    """

    dag_id: str
    run_id: str
    task_id: str
    map_index: int = -1
    state: str | None = None
    try_number: int = 0
    campaign_taken: bool | None = None
    region_id: UUID | None = None

    @property
    def scope(self) -> TaskScope:
        """Return its key in the state store."""
        region: dict[str, Any] = {} if self.region_id is None else {"region_id": self.region_id}
        return TaskScope(self.dag_id, self.run_id, self.task_id, self.map_index, **region)

    @property
    def running(self) -> bool:
        """Whether a try that writes its journal may be running."""
        return self.state in _RUNNING if self.campaign_taken is None else self.campaign_taken

    def __str__(self) -> str:
        index = f"[{self.map_index}]" if self.map_index >= 0 else ""
        return f"{self.task_id}{index} in run {self.run_id} of Dag {self.dag_id}"


@dataclass(frozen=True)
class Found:
    """A journal, and where it is stored.

    :param instance: the task instance that wrote it, or that sends its campaign
    :param seen: stored values by key, to notice a change of the journal
    :param campaign: the name of the campaign partition in the provider's database; ``None`` if the journal is stored in
        the task's state
    :param database: the URL of that database, without a password
    :param locked_by: the task that works on the campaign now, in words
    """

    instance: Instance
    journal: JournalView
    seen: Mapping[str, Any]
    campaign: str | None = None
    database: str | None = None
    locked_by: str | None = None
