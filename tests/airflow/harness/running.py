"""Runs a DAG for real, in this process, and returns the states and results of its task instances."""

from __future__ import annotations

from functools import cache
from typing import Any

from airflow.models.dag import DagModel
from airflow.models.dagbundle import DagBundleModel
from airflow.models.renderedtifields import RenderedTaskInstanceFields
from airflow.models.serialized_dag import SerializedDagModel
from airflow.models.taskinstance import TaskInstance
from airflow.models.xcom import XComModel
from airflow.sdk import DAG
from airflow.serialization.definitions.dag import SerializedDAG
from airflow.serialization.serialized_objects import DagSerialization, LazyDeserializedDAG
from airflow.utils.session import create_session
from sqlalchemy import select

from airflow import settings

BUNDLE = "tests"


def of_task_instance(model: Any, dag_id: str, run_id: str, task_id: str, map_index: int) -> list[Any]:
    """Return the conditions for a task instance's rows in one of Airflow's tables, as its version names them."""
    if not hasattr(model, "dag_id"):
        named = of_task_instance(TaskInstance, dag_id, run_id, task_id, map_index)
        return [model.task_instance_id.in_(select(TaskInstance.id).where(*named))]
    index = model.map_index if hasattr(model, "map_index") else model.region_index
    return [model.dag_id == dag_id, model.run_id == run_id, model.task_id == task_id, index == map_index]


def copy_row(row: Any, **instead: Any) -> Any:
    """Return a new row like one of Airflow's, without its id."""
    kept = {column.key: getattr(row, column.key) for column in type(row).__table__.columns if not column.primary_key}
    return type(row)(**{**kept, **instead})


class DagRunResult:
    """A finished run: states, tries, results and rendered fields of its task instances."""

    def __init__(self, dag_id: str, run_id: str) -> None:
        self.dag_id = dag_id
        self.run_id = run_id

    def instance(self, task_id: str, map_index: int = -1) -> TaskInstance:
        """Return the task instance as the database has it."""
        with create_session() as session:
            found = session.scalar(self._where(TaskInstance, task_id, map_index))
        assert found is not None, f"no task instance {task_id}[{map_index}]"
        return found

    def state(self, task_id: str, map_index: int = -1) -> str:
        """Return a task instance's state."""
        return str(self.instance(task_id, map_index).state)

    def tries(self, task_id: str) -> int:
        """Return how many tries a task instance used."""
        return int(self.instance(task_id).try_number)

    def xcom(self, task_id: str, map_index: int = -1, key: str = "return_value") -> Any:
        """Return what a task instance returned, or the value of another key."""
        with create_session() as session:
            rows = session.scalars(self._where(XComModel, task_id, map_index)).all()
        values = [XComModel.deserialize_value(row) for row in rows if row.key == key]
        return values[0] if values else None

    def all_xcoms(self) -> list[str]:
        """Return every XCom of the run as it is stored."""
        query = select(XComModel).where(XComModel.dag_id == self.dag_id, XComModel.run_id == self.run_id)
        with create_session() as session:
            return [str(row.value) for row in session.scalars(query)]

    def rendered(self, task_id: str, map_index: int = -1) -> dict[str, Any]:
        """Return a task instance's rendered fields as Airflow stored them."""
        with create_session() as session:
            row = session.scalar(self._where(RenderedTaskInstanceFields, task_id, map_index))
        assert row is not None, f"nothing rendered for {task_id}"
        return dict(row.rendered_fields)

    def _where(self, model: Any, task_id: str, map_index: int) -> Any:
        return select(model).where(*of_task_instance(model, self.dag_id, self.run_id, task_id, map_index))


@cache
def _add_bundle(database: str | None) -> None:
    with create_session() as session:
        session.merge(DagBundleModel(name=BUNDLE))


def register(dag: DAG) -> SerializedDAG:
    """Write a new DAG to the database and return it as the scheduler has it.

    A DAG bag writes the same, after looking for all that an earlier version may have left. Nothing of that is here: a
    DAG without schedule and assets needs its own rows and no more.
    """
    _add_bundle(settings.SQL_ALCHEMY_CONN)
    dag.check_cycle()
    dag.resolve_template_files()
    written = LazyDeserializedDAG.from_dag(dag)
    with create_session() as session:
        if dag.schedule is None and not any(task.inlets or task.outlets for task in dag.tasks):
            session.add(DagModel(dag_id=dag.dag_id, bundle_name=BUNDLE, fileloc=dag.fileloc, is_stale=False))
        else:
            SerializedDAG.bulk_write_to_db(BUNDLE, None, [written], session=session)
        SerializedDagModel.write_dag(written, BUNDLE, session=session)
    return DagSerialization.from_dict(written.data)


def run(dag: DAG, **options: Any) -> DagRunResult:
    """Run a DAG to its end, whether its tasks succeed or not. The metadata database must be there."""
    register(dag)
    finished = dag.test(**options)
    return DagRunResult(dag.dag_id, finished.run_id)
