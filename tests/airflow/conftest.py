"""What tests inside Airflow share: its database, and the connection to the sandbox."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cpaas_sandbox.pytest_plugin import DagRunResult, RunDag
from tests.airflow.harness.examples import EXAMPLES, RUN_WITHIN, read_examples
from tests.sandbox import Sandbox, connection_json


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    """Run the tests of a module that read its finished run before those that reset the sandbox."""
    yield
    modules = [list(some) for _, some in itertools.groupby(items, key=lambda item: item.path)]
    items[:] = [item for some in modules for item in sorted(some, key=_uses_no_finished_run)]


def _uses_no_finished_run(item: pytest.Item) -> bool:
    return "finished_run" not in getattr(item, "fixturenames", ())


@pytest.fixture(scope="session")
def airflow_db(airflow_home: Path) -> Path:
    """Airflow's metadata database, migrated once a session."""
    from airflow.utils.db import initdb

    from tests.airflow.harness.execution_api import shortcut_execution_api
    from tests.airflow.harness.made_once import make_once

    initdb()
    make_once()
    shortcut_execution_api()
    run_nothing()
    # See tests/conftest.py: what that loaded stays, too.
    gc.freeze()
    return airflow_home / "airflow.db"


def run_nothing() -> None:
    """Run a task that does nothing: the first of a process has Airflow build its execution API, which takes seconds."""
    from airflow.sdk import DAG, BaseOperator

    from tests.airflow.harness.running import run

    class Nothing(BaseOperator):
        def execute(self, context: Any) -> None:
            pass

    with DAG("nothing", schedule=None) as dag:
        Nothing(task_id="nothing")
    run(dag)


@pytest.fixture
def cpaas_default(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> Sandbox:
    """The connection ``cpaas_default``, leading to the sandbox; returns the sandbox."""
    monkeypatch.setenv("AIRFLOW_CONN_CPAAS_DEFAULT", connection_json(sandbox.connection))
    return sandbox


@pytest.fixture
def task_runner(airflow_db: object, sandbox_process: Sandbox) -> Iterator[Any]:
    """A task runner with a fresh service and the connections to it; it records all logs."""
    from tests.airflow.harness.task_runner import open_task_runner

    with open_task_runner(sandbox_process) as ready:
        yield ready


@pytest.fixture(scope="session")
def examples(airflow_db: Path) -> Any:
    """The example DAGs, as Airflow reads them."""
    return read_examples()


@pytest.fixture
def own_database(airflow_db: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An empty database of the provider, as a contact list that is reset needs an empty key map."""
    from tests.airflow.harness.task_runner import forget_campaign_database

    monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", f"sqlite:///{tmp_path / 'own.db'}")
    forget_campaign_database()
    yield
    forget_campaign_database()


@pytest.fixture
def run_example(airflow_db: object, cpaas_run_dag: RunDag) -> Callable[..., DagRunResult]:
    """Run an example DAG to its end, as a user's test would, and return the run."""

    def run(dag_id: str, **conf: Any) -> DagRunResult:
        return cpaas_run_dag(EXAMPLES / f"{dag_id}.py", conf, check=False, timeout=RUN_WITHIN)

    return run
