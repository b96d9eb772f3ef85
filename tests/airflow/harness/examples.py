"""Reads the example DAGs, and gives a block a time limit."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cpaas_sandbox.pytest_plugin._airflow.time_limit import time_limit

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
    """Raise when the block takes too long: a task knows no time limit."""
    with time_limit(seconds) as limit:
        yield
    if limit.is_over:
        raise TimeoutError(f"not done within {seconds} s")
