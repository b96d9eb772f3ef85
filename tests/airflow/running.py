"""Runs a DAG for real, in this process, and tells what became of its task instances."""

from __future__ import annotations

import os
from typing import Any

from airflow.dag_processing.dagbag import DagBag, sync_bag_to_db
from airflow.models.dagbundle import DagBundleModel
from airflow.models.renderedtifields import RenderedTaskInstanceFields
from airflow.models.taskinstance import TaskInstance
from airflow.models.xcom import XComModel
from airflow.sdk import DAG
from airflow.utils.session import create_session
from sqlalchemy import select

BUNDLE = "tests"


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

    def xcom(self, task_id: str, map_index: int = -1) -> Any:
        """Return what a task instance returned."""
        with create_session() as session:
            rows = session.scalars(self._where(XComModel, task_id, map_index)).all()
        values = [XComModel.deserialize_value(row) for row in rows if row.key == "return_value"]
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
        return select(model).where(
            model.dag_id == self.dag_id,
            model.run_id == self.run_id,
            model.task_id == task_id,
            model.map_index == map_index,
        )


def run(dag: DAG, **options: Any) -> DagRunResult:
    """Run a DAG to its end, whether its tasks succeed or not. The metadata database must be there."""
    bag = DagBag(dag_folder=os.devnull, collect_dags=False, bundle_name=BUNDLE)
    bag.bag_dag(dag)
    with create_session() as session:
        if session.get(DagBundleModel, BUNDLE) is None:
            session.add(DagBundleModel(name=BUNDLE))
    sync_bag_to_db(bag, BUNDLE, None)
    finished = dag.test(**options)
    return DagRunResult(dag.dag_id, finished.run_id)
