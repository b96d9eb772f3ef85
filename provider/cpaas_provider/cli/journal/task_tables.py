"""The columns by which Airflow's tables name a task instance.

Airflow 3.3 has a map index. Airflow 3.4 has an index within a region, which is a mapped task or a loop. This module
looks at the columns that exist, not at the version.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow.models.renderedtifields import RenderedTaskInstanceFields
from airflow.models.taskinstance import TaskInstance
from airflow.models.taskinstancekey import TaskInstanceKey
from sqlalchemy import null
from sqlalchemy.orm import Session

from cpaas_provider.cli.journal.instances import Instance

_TRIES_WITH_FIELDS = 3
"""How many of the last tries are searched for rendered fields. A new try may have none yet."""


def index_of(model: Any) -> Any:
    """Return the column with the map index, or with the iteration of a loop."""
    return model.map_index if hasattr(model, "map_index") else model.region_index


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
