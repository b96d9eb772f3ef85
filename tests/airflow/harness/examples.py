"""Runs an example DAG in this process and reads its results."""

from __future__ import annotations

import contextlib
import json
import math
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).parents[3] / "example_dags"
RUN_WITHIN = 180


def read_examples() -> Any:
    """Return the bag of example DAGs, registered as ``dag.test()`` wants it."""
    from airflow.dag_processing.dagbag import BundleDagBag, sync_bag_to_db
    from airflow.models.dagbundle import DagBundleModel
    from airflow.utils.session import create_session

    bag = BundleDagBag(dag_folder=EXAMPLES, bundle_path=EXAMPLES, bundle_name="examples")
    with create_session() as session:
        session.merge(DagBundleModel(name="examples"))
    sync_bag_to_db(bag, "examples", None)
    return bag


@contextlib.contextmanager
def bounded(seconds: float) -> Iterator[None]:
    """Raise when the block takes too long: ``dag.test()`` knows no time limit.

    pytest-timeout uses the same timer. It is still due when it would have been, in the block or after it.
    """
    left, interval = signal.getitimer(signal.ITIMER_REAL)
    handler = signal.getsignal(signal.SIGALRM)
    own_due = time.monotonic() + seconds
    other_due = time.monotonic() + left if left else math.inf

    def arm(due: float, again: float = 0.0) -> None:
        # Nought would turn the timer off.
        signal.setitimer(signal.ITIMER_REAL, max(due - time.monotonic(), 0.001), again)

    def ring(*_: object) -> None:
        nonlocal other_due
        if own_due <= other_due:
            raise TimeoutError(f"not done within {seconds} s")
        other_due = time.monotonic() + interval if interval else math.inf
        signal.signal(signal.SIGALRM, handler)
        signal.raise_signal(signal.SIGALRM)
        signal.signal(signal.SIGALRM, ring)
        arm(min(own_due, other_due))

    signal.signal(signal.SIGALRM, ring)
    arm(min(own_due, other_due))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        if other_due < math.inf:
            arm(other_due, interval)


def run_example_dag(dag_id: str, conf: dict[str, Any]) -> Any:
    """Run an example DAG in this process and return the run."""
    from airflow.dag_processing.dagbag import BundleDagBag

    # Read anew, as for every task: a run's conf stays behind in the params of the DAG object.
    bag = BundleDagBag(dag_folder=EXAMPLES / f"{dag_id}.py", bundle_path=EXAMPLES, bundle_name="examples")
    with bounded(RUN_WITHIN):
        return bag.dags[dag_id].test(run_conf=conf)


def states(run: Any) -> dict[str, str]:
    """Return the state of every task of a run."""
    return {ti.task_id: ti.state for ti in run.get_task_instances()}


def xcom(run: Any, task_id: str, key: str = "return_value") -> Any:
    """Return what a task of a run pushed."""
    from airflow.models.xcom import XComModel
    from airflow.utils.session import create_session

    found = XComModel.get_many(run_id=run.run_id, dag_ids=run.dag_id, task_ids=task_id, key=key)
    with create_session() as session:
        row = session.scalars(found).first()
    value = row.value if row else None
    return json.loads(value) if isinstance(value, str) else value
