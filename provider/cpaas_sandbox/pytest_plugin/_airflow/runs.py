"""Runs a DAG to its end in this process, by ``dag.test()``, and shows what became of its tasks."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cpaas_sandbox.pytest_plugin._airflow.time_limit import TimeLimitError, time_limit
from cpaas_sandbox.pytest_plugin.errors import DagFailedError, DagTimeoutError, SandboxError

if TYPE_CHECKING:
    from airflow.models.dagrun import DagRun
    from airflow.sdk import DAG

DEFAULT_TIMEOUT = 120.0

_BUNDLE = "cpaas-tests"
_MAX_ERROR = 2000


@dataclass(frozen=True)
class TaskError:
    """The error of a failed try.

    :param task: the task as in ``DagRunResult.states``
    :param try_number: the number of the try, from 1 on
    :param error: the exception
    """

    task: str
    try_number: int
    error: BaseException


@dataclass(frozen=True)
class DagRunResult:
    """A finished DAG run.

    :param dag_run: Airflow's own object
    :param states: the states of the tasks, by ``task_id``, and by ``task_id[map_index]`` where a task is mapped
    :param errors: the errors of failed tries, oldest first, also of tries that were retried
    """

    dag_run: DagRun
    states: Mapping[str, str]
    errors: list[TaskError] = field(default_factory=list)

    @property
    def state(self) -> str:
        """The state of the run: ``success`` or ``failed``."""
        return str(self.dag_run.state)

    @property
    def run_id(self) -> str:
        """The id of the run."""
        return str(self.dag_run.run_id)

    def error(self, task: str) -> BaseException:
        """Return the last error of a task.

        :param task: as in ``states``
        :raises LookupError: when no try of it failed
        """
        errors = [failed.error for failed in self.errors if failed.task == task]
        if not errors:
            raise LookupError(f"No try of {task!r} failed. The states are: {_listed(self.states)}.")
        return errors[-1]

    def xcom(self, task_id: str, key: str = "return_value", map_index: int = -1) -> Any:
        """Return what a task pushed; ``None`` if it pushed nothing.

        :param task_id: the task
        :param key: the key of the XCom
        :param map_index: the index of a mapped task
        """
        from airflow.models.xcom import XComModel
        from airflow.utils.session import create_session
        from sqlalchemy import select

        names = {"dag_id": self.dag_run.dag_id, "run_id": self.run_id, "task_id": task_id, "key": key}
        query = select(XComModel).filter_by(**names, map_index=map_index)
        with create_session() as session:
            row = session.scalar(query)
            return None if row is None else XComModel.deserialize_value(row)


class RunDag:
    """Runs DAGs against the sandbox: the fixture ``run_dag``, which is called as a function."""

    def run_dag(
        self,
        dag: DAG | str | os.PathLike[str],
        conf: Mapping[str, Any] | None = None,
        *,
        dag_id: str | None = None,
        logical_date: datetime | None = None,
        timeout: float = DEFAULT_TIMEOUT,
        check: bool = True,
    ) -> DagRunResult:
        """Run a DAG to its end in this process and return the finished run.

        Tasks run one after another, deferrable ones included. A retry starts at once, without its delay.

        :param dag: the DAG, or the path of its file, which is then read anew
        :param conf: the configuration of the run, which replaces params of the DAG
        :param dag_id: which DAG of the file; ``None`` if it has only one
        :param logical_date: the logical date of the run, with a time zone; ``None`` for now
        :param timeout: seconds after which the run is stopped
        :param check: whether a failed run fails the test. A failed task does not, if the run is successful all the same
        :raises DagFailedError: when the run failed, with the error of the first failed task as its cause
        :raises DagTimeoutError: when it did not end in time
        :raises SandboxError: when the file cannot be read, or does not have exactly one such DAG
        """
        __tracebackhide__ = True
        ready = _read(Path(dag), dag_id) if isinstance(dag, (str, os.PathLike)) else _register(dag)
        result = _test(ready, {} if logical_date is None else {"logical_date": logical_date}, conf, timeout)
        if check and result.state != "success":
            message, cause = _failure(ready.dag_id, result)
            raise DagFailedError(message) from cause
        return result

    __call__ = run_dag


def _read(file: Path, dag_id: str | None) -> DAG:
    """Read a DAG file as Airflow reads it, and return one DAG of it."""
    from airflow.dag_processing.dagbag import BundleDagBag

    file = file.absolute()
    if not file.is_file():
        raise SandboxError(f"There is no DAG file {file}.")
    bag = BundleDagBag(dag_folder=file, bundle_path=file.parent, bundle_name=_BUNDLE)
    if bag.import_errors:
        raise SandboxError(f"Airflow cannot read {file}:\n" + "\n".join(bag.import_errors.values()))
    dags = bag.dags
    if dag_id is None and len(dags) != 1:
        raise SandboxError(f"{file} has {len(dags)} DAGs. Give dag_id, one of: {', '.join(sorted(dags)) or '(none)'}.")
    if dag_id is not None and dag_id not in dags:
        raise SandboxError(f"{file} has no DAG {dag_id!r}, only: {', '.join(sorted(dags)) or '(none)'}.")
    _write(bag)
    found: DAG = dags[dag_id] if dag_id is not None else next(iter(dags.values()))
    return found


def _register(dag: DAG) -> DAG:
    """Write a DAG to the metadata database, as ``dag.test()`` needs it."""
    from airflow.dag_processing.dagbag import DagBag
    from airflow.sdk import DAG

    if not isinstance(dag, DAG):
        hint = " Call the function that @dag decorates." if callable(dag) else ""
        raise SandboxError(f"run_dag needs a DAG or the path of a DAG file, not {type(dag).__name__}.{hint}")
    bag = DagBag(dag_folder=os.devnull, collect_dags=False, bundle_name=_BUNDLE)
    bag.bag_dag(dag)
    _write(bag)
    return dag


def _write(bag: Any) -> None:
    from airflow.dag_processing.dagbag import sync_bag_to_db
    from airflow.models.dagbundle import DagBundleModel
    from airflow.utils.session import create_session

    with create_session() as session:
        session.merge(DagBundleModel(name=_BUNDLE))
    sync_bag_to_db(bag, _BUNDLE, None)


def _test(dag: DAG, date: dict[str, Any], conf: Mapping[str, Any] | None, timeout: float) -> DagRunResult:
    __tracebackhide__ = True
    errors: list[TaskError] = []
    _start_execution_api()
    dag_run: DagRun | None = None
    with (
        _keeping_params(dag),
        _keeping_signals(),
        _recording(errors),
        _no_retry_delay(),
        time_limit(timeout) as limit,
    ):
        dag_run = dag.test(run_conf=dict(conf) if conf else None, **date)
    if dag_run is None or limit.is_over:
        # Airflow has failed the task that was interrupted.
        interrupted = {failed.task: "running" for failed in errors if isinstance(failed.error, TimeLimitError)}
        states = {**_states(dag.dag_id), **interrupted}
        raise DagTimeoutError(
            f"DAG {dag.dag_id!r} did not end within {timeout:g} s. The states are: {_listed(states)}. "
            "A passcode is verified by sandbox.set_outcomes(otp=...). The argument timeout sets another limit."
        )
    return DagRunResult(dag_run, _states(dag.dag_id, dag_run.run_id), errors)


@functools.cache
def _start_execution_api() -> None:
    """Have Airflow build its execution API, which takes seconds: the time limit of a run is about the DAG."""
    import httpx
    from airflow.sdk.execution_time.supervisor import in_process_api_server

    # Not closed, because Airflow uses the transport for each task.
    client = httpx.Client(transport=in_process_api_server().transport, base_url="http://in-process.invalid./")
    client.get("/health")


@contextlib.contextmanager
def _keeping_params(dag: DAG) -> Iterator[None]:
    """Restore the params of a DAG and its tasks: Airflow leaves the configuration of a run behind in them."""
    from airflow.sdk.definitions.param import ParamsDict

    # The params of a mapped task may be a plain dict, whose values Airflow copies.
    holders = [holder.params for holder in (dag, *dag.tasks)]
    params = [given.get_param(name) for given in holders if isinstance(given, ParamsDict) for name in given]
    values = [param.value for param in params]
    try:
        yield
    finally:
        for param, value in zip(params, values, strict=True):
            param.value = value


@contextlib.contextmanager
def _keeping_signals() -> Iterator[None]:
    """Restore the handler of SIGTERM, which each task replaces: nothing but it ends pytest in good order."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, handler)


@contextlib.contextmanager
def _recording(errors: list[TaskError]) -> Iterator[None]:
    """Record the error of each failed try: ``dag.test()`` logs it, and returns the run only."""
    from airflow.sdk.execution_time import supervisor

    run_task: Any = supervisor.run_task_in_process
    run_trigger: Any = supervisor.InProcessTestSupervisor.run_trigger_in_process

    def record(ti: Any, error: BaseException) -> None:
        errors.append(TaskError(_name(ti.task_id, ti.map_index), ti.try_number, error))

    def recording_task(ti: Any, *arguments: Any, **options: Any) -> Any:
        try:
            done = run_task(ti, *arguments, **options)
        except Exception as error:
            record(ti, error)
            raise
        if done.error is not None and done.state in ("failed", "up_for_retry"):
            record(ti, done.error)
        return done

    def recording_trigger(*, trigger: Any, ti: Any) -> Any:
        try:
            return run_trigger(trigger=trigger, ti=ti)
        except (Exception, TimeLimitError) as error:
            record(ti, error)
            raise

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(supervisor, "run_task_in_process", recording_task)
        patch.setattr(supervisor.InProcessTestSupervisor, "run_trigger_in_process", recording_trigger)
        yield


@contextlib.contextmanager
def _no_retry_delay() -> Iterator[None]:
    """Have a retry start at once."""
    from airflow.models.taskinstance import TaskInstance

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TaskInstance, "next_retry_datetime", lambda ti: ti.end_date)
        yield


def _states(dag_id: str, run_id: str | None = None) -> dict[str, str]:
    """Return the states of the tasks of a run; of the newest without an id."""
    from airflow.models.dagrun import DagRun
    from airflow.models.taskinstance import TaskInstance
    from airflow.utils.session import create_session
    from sqlalchemy import select

    with create_session() as session:
        if run_id is None:
            newest = select(DagRun.run_id).where(DagRun.dag_id == dag_id).order_by(DagRun.id.desc())
            run_id = session.scalar(newest.limit(1))
        query = select(TaskInstance).where(TaskInstance.dag_id == dag_id, TaskInstance.run_id == run_id)
        # In the order in which they began; those that did not begin are last.
        order = (TaskInstance.start_date.is_(None), TaskInstance.start_date, TaskInstance.map_index)
        instances = session.scalars(query.order_by(*order)).all()
        return {_name(ti.task_id, ti.map_index): str(ti.state or "none") for ti in instances}


def _failure(dag_id: str, result: DagRunResult) -> tuple[str, BaseException | None]:
    """Return the message about a failed run, and the error that it begins with."""
    # The last error of the first failed task; errors of tries that were retried stand before it.
    failed = [error for error in result.errors if result.states.get(error.task) == "failed"]
    first = next((error for error in reversed(failed) if error.task == failed[0].task), None)
    lines = [f"DAG {dag_id!r} {result.state}."]
    if first is not None:
        text = str(first.error)[:_MAX_ERROR]
        lines.append(f"Task {first.task!r} failed at try {first.try_number}: {type(first.error).__name__}: {text}")
    lines.append(f"The states are: {_listed(result.states)}.")
    return "\n".join(lines), _without_airflow(first.error) if first is not None else None


def _without_airflow(error: BaseException) -> BaseException:
    """Return an error whose traceback begins after Airflow's own frames."""
    own = error.__traceback__
    while own is not None and own.tb_frame.f_globals.get("__name__", "").startswith("airflow."):
        own = own.tb_next
    return error.with_traceback(own or error.__traceback__)


def _name(task_id: str, map_index: int | None) -> str:
    return task_id if map_index is None or map_index < 0 else f"{task_id}[{map_index}]"


def _listed(states: Mapping[str, str]) -> str:
    return ", ".join(f"{task} {state}" for task, state in states.items()) or "(no task)"
