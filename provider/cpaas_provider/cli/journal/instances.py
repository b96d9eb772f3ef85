"""A task instance, the journal that was found for it, and the columns by which Airflow's tables name it.

Airflow 3.3 has a map index. Airflow 3.4 has an index within a region, which is a mapped task or a loop. This module
looks at the columns that exist, not at the version.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from airflow.models.renderedtifields import RenderedTaskInstanceFields
from airflow.models.taskinstance import TaskInstance
from airflow.models.taskinstancekey import TaskInstanceKey
from airflow.state import TaskScope
from msgspec import Struct
from sqlalchemy import null
from sqlalchemy.orm import Session

from cpaas_provider.sending.errors import SendingError
from cpaas_provider.sending.journal.resolution import NOTHING_CHANGED
from cpaas_provider.sending.journal.view import JournalView
from cpaas_provider.tasks.airflow.task_states import index_of

_TRIES_WITH_FIELDS = 3
"""How many of the last tries are searched for rendered fields. A new try may have none yet."""

_RUNNING = frozenset({"running", "restarting"})


class JournalError(SendingError):
    """A journal cannot be read or changed. The message is for the user of the command."""


class Instance(Struct, frozen=True):
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


class Found(Struct, frozen=True):
    """A journal, and where it is stored.

    :param instance: the task instance that wrote it, or that sends its campaign
    :param seen: stored values by key, to notice a change of the journal
    :param stored_as: the name of the journal in the provider's database; ``None`` if it is stored in the task's state
    :param is_shared: whether it belongs to a campaign with an idempotency_key, which other task instances may send
    :param database: the URL of that database, without a password
    :param locked_by: the task that works on the campaign now, in words
    """

    instance: Instance
    journal: JournalView
    seen: Mapping[str, Any]
    stored_as: str | None = None
    is_shared: bool = False
    database: str | None = None
    locked_by: str | None = None


def to_journal_error(record: str, instance: Instance, error: ValueError) -> JournalError:
    """Return the error for a record of a task instance whose form this version does not know."""
    return JournalError(
        f"This version of the provider cannot read the {record} of task instance {instance}: {error}. {NOTHING_CHANGED}"
    )


def region_of(model: Any) -> Any:
    """Return the column with the region, or NULL if the table has none."""
    return model.region_id if hasattr(model, "region_id") else null()


def coordinates(model: Any) -> Sequence[Any]:
    """Return the columns that name a task instance."""
    named = model.dag_id, model.run_id, model.task_id, index_of(model)
    return (*named, model.region_id) if hasattr(model, "region_id") else named


def matches(model: Any, instance: Instance) -> list[Any]:
    """Return the conditions for the rows of a task instance, in any region if its region is not known yet."""
    conditions = [
        model.dag_id == instance.dag_id,
        model.run_id == instance.run_id,
        model.task_id == instance.task_id,
        index_of(model) == instance.map_index,
    ]
    return conditions if instance.region_id is None else [*conditions, region_of(model) == instance.region_id]


def instance_columns() -> Sequence[Any]:
    """Return the columns that ``to_instance`` reads."""
    return (
        TaskInstance.dag_id,
        TaskInstance.run_id,
        TaskInstance.task_id,
        index_of(TaskInstance).label("index"),
        region_of(TaskInstance).label("region"),
        TaskInstance.state,
        TaskInstance.try_number,
    )


def to_instance(row: Any) -> Instance:
    """Return the task instance of a row that has ``instance_columns``."""
    state = None if row.state is None else str(getattr(row.state, "value", row.state))
    names = row.dag_id, row.run_id, row.task_id, row.index
    return Instance(*names, state, row.try_number, region_id=row.region)


def rendered_fields(instance: Instance, session: Session) -> dict[str, Any]:
    """Return the rendered arguments of a task instance; empty if Airflow has stored none."""
    for number in range(instance.try_number, max(0, instance.try_number - _TRIES_WITH_FIELDS), -1):
        key = TaskInstanceKey(instance.dag_id, instance.task_id, instance.run_id, number, instance.map_index)
        fields: dict[str, Any] | None = RenderedTaskInstanceFields.get_templated_fields(key, session=session)
        if fields is not None:
            return fields
    return {}
