"""Airflow's own states of task instances, for the pages and the command line. Both can read Airflow's database."""

from __future__ import annotations

import logging
from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Any

from cpaas_provider.delivery.campaigns import Place, TaskState

log = logging.getLogger(__name__)


def index_of(model: Any) -> Any:
    """Return the column with the map index, or with the iteration of a loop."""
    return model.map_index if hasattr(model, "map_index") else model.region_index


def read_task_states(places: Collection[Place]) -> dict[Place, TaskState]:
    """Return Airflow's state of task instances, by one query. Those that Airflow does not have are left out.

    Of a single task instance that Airflow tries again, the time of the next try is read, too. A page is shown without
    these states if Airflow's database cannot be read.
    """
    if not places:
        return {}
    from sqlalchemy.exc import SQLAlchemyError

    try:
        return _read(places)
    except SQLAlchemyError as error:
        log.warning("Airflow's states of %d tasks could not be read (%s).", len(places), type(error).__name__)
        return {}


def read_next_run(place: Place) -> datetime | None:
    """Return when Airflow runs a task instance again by itself: its retry, or the end of a deferral until a time.

    :return: ``None`` if it does not, or if that cannot be found out
    """
    from airflow.utils.session import create_session

    from cpaas_provider.triggers.wait import WaitTrigger

    task = read_task_states([place]).get(place)
    if task is None or task.state != "deferred":
        return None if task is None else task.retry_at
    with create_session(scoped=False) as session:
        trigger = _instance(session, place).trigger
        is_wait = trigger is not None and trigger.classpath.endswith(f".{WaitTrigger.__name__}")
        return datetime.fromisoformat(trigger.kwargs["until"]) if is_wait else None


def _read(places: Collection[Place]) -> dict[Place, TaskState]:
    from airflow.models.taskinstance import TaskInstance
    from airflow.utils.session import create_session
    from sqlalchemy import select, tuple_

    names = (TaskInstance.dag_id, TaskInstance.run_id, TaskInstance.task_id, index_of(TaskInstance))
    columns = (
        TaskInstance.state,
        TaskInstance.try_number,
        TaskInstance.updated_at,
        TaskInstance.end_date,
        TaskInstance.retry_delay_override,
    )
    query = select(*names, *columns).where(tuple_(*names).in_(list(places)))
    found: dict[Place, TaskState] = {}
    with create_session(scoped=False) as session:
        for *place, state, try_number, updated_at, end_date, delay in session.execute(query):
            name = None if state is None else str(getattr(state, "value", state))
            retry_at = None
            if name == "up_for_retry" and delay is not None and end_date is not None:
                retry_at = end_date + timedelta(seconds=delay)
            elif name == "up_for_retry" and len(places) == 1:
                retry_at = _next_try(session, tuple(place))
            found[tuple(place)] = TaskState(name, try_number, updated_at, retry_at)
    return found


def _instance(session: Any, place: tuple[Any, ...]) -> Any:
    """Return the row of a task instance."""
    from airflow.models.taskinstance import TaskInstance
    from sqlalchemy import select

    names = (TaskInstance.dag_id, TaskInstance.run_id, TaskInstance.task_id, index_of(TaskInstance))
    conditions = (column == value for column, value in zip(names, place, strict=True))
    return session.scalars(select(TaskInstance).where(*conditions)).one()


def _next_try(session: Any, place: tuple[Any, ...]) -> datetime | None:
    """Return when Airflow tries a task instance again, as its DAG says; ``None`` if that cannot be found out."""
    from airflow.models.serialized_dag import SerializedDagModel

    try:
        instance = _instance(session, place)
        dag: Any = SerializedDagModel.get_dag(instance.dag_id, session=session)
        instance.task = dag.get_task(instance.task_id)
        return instance.next_retry_datetime()  # type: ignore[no-any-return]  # Airflow leaves it unannotated
    except Exception as error:  # noqa: BLE001 - Airflow raises several kinds for a DAG that changed or is gone
        log.debug("The time of the next try could not be read (%s).", type(error).__name__)
        return None
