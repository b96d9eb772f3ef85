"""A DAG run that a test runs try by try: between two tries it may clear the task, drop its state or edit the DAG.

``dag.test()`` runs everything to its end. Here a test says when a try begins, when somebody clears the task, when its
state is dropped, and looks at each try's outcome. Task instances, clears, deferrals and the state are Airflow's own.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec.structs
from airflow.configuration import conf
from airflow.models.dagrun import DagRun
from airflow.models.task_state_store import TaskStateStoreModel
from airflow.models.taskinstance import TaskInstance, clear_task_instances
from airflow.models.trigger import Trigger
from airflow.models.xcom import XComModel
from airflow.sdk import DAG, timezone
from airflow.sdk.api.datamodels._generated import TaskInstance as TaskInstanceOfWorker
from airflow.sdk.execution_time.supervisor import run_task_in_process
from airflow.triggers.base import TriggerEvent
from airflow.utils.session import create_session
from airflow.utils.state import DagRunState, TaskInstanceState
from airflow.utils.types import DagRunTriggeredByType, DagRunType
from sqlalchemy import delete, select, update
from sqlalchemy.orm import Session

from cpaas_provider.database.database import Database, open_database
from cpaas_provider.database.schema.campaigns import campaign_values
from cpaas_provider.database.task_journals import TaskInstanceName, newest_journal
from cpaas_provider.delivery.tracking.retention import executing
from cpaas_provider.sending.journal.model import LogEntry
from tests import journals
from tests.airflow.harness.running import of_task_instance, register
from tests.airflow.harness.task_runner import RETRIES, TaskRunner

_MOST_TRIES = 12
EACH_TRY_HAS_A_ROW = hasattr(TaskInstance, "working_set")
"""Whether Airflow keeps the task instances of earlier tries, as it does from 3.4 on."""

_numbers = itertools.count(1)


def new_dag(**options: Any) -> DAG:
    """Return a DAG of its own, whose tasks have retries in hand."""
    given = {"schedule": None, "default_args": {"retries": RETRIES, "retry_delay": timedelta(0)}, **options}
    return DAG(f"tries_{next(_numbers)}", **given)


@dataclass(frozen=True)
class Try:
    """What became of one try.

    ``trigger`` is what a deferred one waits for, by path and arguments; ``next_kwargs`` what Airflow stores for it
    meanwhile.
    """

    number: int
    state: str
    result: Any
    report: Any
    error: str
    log: str = field(repr=False)
    trigger: tuple[str, dict[str, Any]] | None = None
    next_kwargs: dict[str, Any] = field(default_factory=dict)

    @property
    def references(self) -> list[str]:
        """Return the references that the error names."""
        return [word.strip(".,;:()") for word in self.error.split() if word.startswith("cpaas-")]


class Run:
    """One run of a DAG, and the tries of its task instances.

    :param task_runner: has the connections
    :param options: of ``create_dagrun``, where the run is not simply triggered by hand and now
    """

    def __init__(self, task_runner: TaskRunner, dag: DAG, **options: Any) -> None:
        self._stage = task_runner
        self.dag = dag
        self._scheduled = register(dag)
        now = timezone.utcnow()
        self._options = {
            "run_id": f"run_{next(_numbers)}",
            "run_type": DagRunType.MANUAL,
            "run_after": now,
            "start_date": now,
            "logical_date": options.get("run_after", now),
            **options,
        }
        self.run_id: str = self._create()

    def _create(self) -> str:
        with create_session() as session:
            made = self._scheduled.create_dagrun(
                state=DagRunState.RUNNING, triggered_by=DagRunTriggeredByType.TEST, session=session, **self._options
            )
            return str(made.run_id)

    # -- what happens -------------------------------------------------------------------------------------------------

    def run_try(self, task_id: str | None = None, map_index: int = -1) -> Try:
        """Run one try, or the next process of one whose trigger fired or that was rescheduled."""
        task_id = task_id or self._only_task()
        with create_session() as session:
            instance = self._find(session, task_id, map_index)
            if instance.next_method is None and instance.state != TaskInstanceState.UP_FOR_RESCHEDULE:
                # Airflow 3.4 counts as soon as there is a next try, Airflow 3.3 when it is scheduled.
                instance.try_number = max(1, instance.try_number + (0 if EACH_TRY_HAS_A_ROW else 1))
            instance.state = TaskInstanceState.QUEUED
            told = TaskInstanceOfWorker(
                id=UUID(str(instance.id)),
                task_id=task_id,
                dag_id=self.dag.dag_id,
                run_id=self.run_id,
                try_number=instance.try_number,
                map_index=map_index,
                dag_version_id=UUID(str(instance.dag_version_id)),
            )
        begin = len(self._stage.all_logs)
        with self._stage.record_logs():
            ended = run_task_in_process(ti=told, task=self.dag.task_dict[task_id])
        with create_session() as session:
            instance = self._find(session, task_id, map_index)
            trigger = instance.trigger
            if EACH_TRY_HAS_A_ROW:
                own = [XComModel.task_instance_id == told.id]  # type: ignore[attr-defined]  # Airflow 3.4 has it
            else:
                own = list(self._where(XComModel, task_id, map_index))
            rows = session.scalars(select(XComModel).where(*own).execution_options(include_all_attempts=True))
            pushed = {row.key: XComModel.deserialize_value(row) for row in rows}
            return Try(
                number=told.try_number,
                state=str(instance.state),
                result=pushed.get("return_value"),
                report=pushed.get("report"),
                error=str(ended.error or ""),
                log="\n".join(self._stage.all_logs[begin:]),
                trigger=trigger and (trigger.classpath, dict(trigger.kwargs)),
                next_kwargs=dict(instance.next_kwargs or {}),
            )

    def fire_trigger(self, task_id: str | None = None, map_index: int = -1, *, early: bool = False) -> Run:
        """Let the trigger a task waits for fire, as the triggerer would; ``early`` says its moment has come."""
        with create_session() as session:
            instance = self._find(session, task_id or self._only_task(), map_index)
            row = instance.trigger
            assert row is not None, "the task waits for nothing"
            if early:
                event = TriggerEvent(dict(row.kwargs))
            else:
                from airflow._shared.module_loading import import_string

                event = asyncio.run(anext(import_string(row.classpath)(**row.kwargs).run()))
            Trigger.submit_event(row.id, event, session=session)
        return self

    def run_to_end(self, task_id: str | None = None, map_index: int = -1) -> list[Try]:
        """Run tries, and let triggers fire, until the task instance has ended; return all of it in order."""
        seen = [self.run_try(task_id, map_index)]
        while seen[-1].state in ("up_for_retry", "deferred"):
            assert len(seen) < _MOST_TRIES, "it does not come to an end"
            if seen[-1].trigger:
                self.fire_trigger(task_id, map_index)
            seen.append(self.run_try(task_id, map_index))
        return seen

    def run_with_clears(self) -> Iterator[Try]:
        """Yield what each try of the only task came to: until it ends, and until it ends again after two clears."""
        for _ in range(3):
            ended = self.run_try()
            yield ended
            while ended.state == "up_for_retry":
                ended = self.run_try()
                yield ended
            self.clear()

    def clear(self, task_id: str | None = None, map_index: int = -1, *, drop_state: bool = False) -> Run:
        """Clear a task instance as Airflow 3.3 does; ``drop_state`` forgets its state, too, as 3.4 does by itself."""
        task_id = task_id or self._only_task()
        with create_session() as session:
            clear_task_instances([self._find(session, task_id, map_index)], session)
        if drop_state:
            self.drop_state(task_id, map_index)
        return self

    def recreate(self) -> Run:
        """Delete the run with all that Airflow has of it, and make it again under the same id."""
        with create_session() as session:
            # In Airflow 3.4 the model of XComs is a query, and what it reads goes with the task instance.
            models = (TaskStateStoreModel, *(() if EACH_TRY_HAS_A_ROW else (XComModel,)), TaskInstance, DagRun)
            for table in (model.__table__ for model in models):
                mine = (table.c.dag_id == self.dag.dag_id, table.c.run_id == self.run_id)
                session.execute(delete(table).where(*mine))
        assert self._create() == self.run_id
        return self

    def change(self, task_id: str | None = None, **arguments: Any) -> Run:
        """Edit the DAG: change arguments of a task, for the tries that come."""
        for name, value in arguments.items():
            setattr(self.dag.get_task(task_id or self._only_task()), name, value)
        return self

    def drop_state(self, task_id: str | None = None, map_index: int = -1) -> Run:
        """Forget a task instance's state."""
        with create_session() as session:
            session.execute(delete(TaskStateStoreModel).where(*self._where(TaskStateStoreModel, task_id, map_index)))
        return self

    def age(self, *, days: float) -> Run:
        """Let time pass: the run was due so much earlier."""
        with create_session() as session:
            found = session.scalar(select(DagRun).where(DagRun.dag_id == self.dag.dag_id, DagRun.run_id == self.run_id))
            assert found is not None
            found.run_after -= timedelta(days=days)
        return self

    def rewrite_requests(
        self, change: Callable[[LogEntry], LogEntry], task_id: str | None = None, map_index: int = -1
    ) -> Run:
        """Change each write of a task instance's journal as it is stored."""

        def rewritten(stored: dict[str, Any]) -> dict[str, Any]:
            return {**stored, "batches": [change(LogEntry.from_text(text)).as_text() for text in stored["batches"]]}

        self._rewrite(rewritten, task_id, map_index)
        return self

    def leave_in_flight(self, started_at: datetime, task_id: str | None = None, map_index: int = -1) -> Run:
        """Have the journal of a task instance as a try leaves it that was killed while its requests were in flight."""
        return self.rewrite_requests(
            lambda entry: msgspec.structs.replace(entry, at=started_at, results=[]), task_id, map_index
        )

    def backdate_requests(self, seconds: float, task_id: str | None = None, map_index: int = -1) -> Run:
        """Let time pass: the requests in a task instance's journal left so much earlier."""
        return self.rewrite_requests(
            lambda entry: msgspec.structs.replace(entry, at=entry.at - timedelta(seconds=seconds)), task_id, map_index
        )

    def rewrite_state(self, task_id: str | None = None, map_index: int = -1, **facts: Any) -> Run:
        """Set facts of the journal as a whole."""
        self._rewrite(lambda stored: {**stored, **facts}, task_id, map_index)
        return self

    def _rewrite(self, change: Callable[[dict[str, Any]], dict[str, Any]], task_id: str | None, map_index: int) -> None:
        if in_database():
            with open_database() as database:
                for campaign, key, value in self._stored_journal(database, task_id, map_index):
                    row = (campaign_values.c.campaign == campaign, campaign_values.c.key == key)
                    text = json.dumps(change(json.loads(value)))
                    database.write(executing(update(campaign_values).where(*row).values(value=text)))
            return
        with create_session() as session:
            for row in self._journal_rows(session, task_id, map_index):
                row.value = json.dumps(change(json.loads(row.value)))

    # -- what is there afterwards -------------------------------------------------------------------------------------

    def journal(self, task_id: str | None = None, map_index: int = -1) -> dict[str, Any]:
        """Return the requests of a task instance's journal, by reference; empty where there is none."""
        if in_database():
            with open_database() as database:
                stored = self._stored_journal(database, task_id, map_index)
                return journals.requests({key: value for _, key, value in stored})
        with create_session() as session:
            return journals.requests({row.key: row.value for row in self._journal_rows(session, task_id, map_index)})

    def _stored_journal(self, database: Database, task_id: str | None, map_index: int) -> list[tuple[str, str, str]]:
        """Return campaign, key and value of the parts of the newest journal that the database has."""
        name = TaskInstanceName(self.dag.dag_id, self.run_id, task_id or self._only_task(), map_index)
        journal = newest_journal(database, name)
        columns = campaign_values.c.campaign, campaign_values.c.key, campaign_values.c.value
        mine = campaign_values.c.campaign == (journal and journal.name)
        with database.connect() as connection:
            rows = connection.execute(select(*columns).where(mine)).all()
        return [(row.campaign, row.key, row.value) for row in rows if journals.is_key(row.key)]

    def _journal_rows(self, session: Session, task_id: str | None, map_index: int) -> list[TaskStateStoreModel]:
        mine = select(TaskStateStoreModel).where(*self._where(TaskStateStoreModel, task_id, map_index))
        return [row for row in session.scalars(mine) if journals.is_key(row.key)]

    def xcom(self, key: str, task_id: str | None = None, map_index: int = -1) -> Any:
        """Return an XCom of a task instance, ``None`` where there is none."""
        where = self._where(XComModel, task_id, map_index)
        with create_session() as session:
            row = session.scalar(select(XComModel).where(*where, XComModel.key == key))
            return None if row is None else XComModel.deserialize_value(row)

    def state_rows(self) -> list[TaskStateStoreModel]:
        """Return all rows of the state store that belong to the run."""
        return stored_rows(self.run_id)

    def _only_task(self) -> str:
        (task_id,) = self.dag.task_ids
        return str(task_id)

    def _where(self, model: Any, task_id: str | None, map_index: int) -> Sequence[Any]:
        return of_task_instance(model, self.dag.dag_id, self.run_id, task_id or self._only_task(), map_index)

    def _find(self, session: Any, task_id: str, map_index: int) -> TaskInstance:
        found = session.scalar(select(TaskInstance).where(*self._where(TaskInstance, task_id, map_index)))
        assert found is not None, f"no task instance {task_id}[{map_index}]"
        return found


def in_database() -> bool:
    """Tell whether the journals of tasks are in the provider's database."""
    return bool(conf.get("cpaas", "journal", fallback="") == "database")


def run_operator(operator: Callable[..., Any], task_runner: TaskRunner, **arguments: Any) -> Try:
    """Run a task of one operator once."""
    with new_dag() as dag:
        operator(task_id="one", **arguments)
    return Run(task_runner, dag).run_try()


def stored_rows(run_id: str) -> list[TaskStateStoreModel]:
    """Return all rows of the state store that belong to a run."""
    with create_session() as session:
        return list(session.scalars(select(TaskStateStoreModel).where(TaskStateStoreModel.run_id == run_id)))


def scheduled_at(run_after: datetime, started: datetime | None = None, **options: Any) -> dict[str, Any]:
    """Return what the scheduler gives a run that was due at a moment."""
    return {"run_type": DagRunType.SCHEDULED, "run_after": run_after, "start_date": started or run_after, **options}
