"""What all tests share: an Airflow home that is not the user's, and the service to talk to."""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from tests import tiers
from tests.airflow_home import move_in
from tests.sandbox import Sandbox

# What is derandomised says the same at every run; `make torture` looks further, elsewhere each time.
hypothesis.settings.register_profile("small", derandomize=True, deadline=None, max_examples=20)
hypothesis.settings.register_profile("sample", derandomize=True, deadline=None, max_examples=50)
hypothesis.settings.register_profile("torture", max_examples=2000, deadline=None)
hypothesis.settings.load_profile("torture" if os.environ.get("TORTURE") else os.environ.get("EXAMPLES", "small"))

# What is made until all tests are collected stays, so there is nothing to look for: see pytest_collection_finish.
gc.disable()

# Before any test module can import Airflow, which reads its settings once.
AIRFLOW_HOME = move_in()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--write-durations", type=Path, help="write what each test took to this file, as JSON")


def pytest_configure(config: pytest.Config) -> None:
    file = config.getoption("--write-durations")
    # The processes of pytest-xdist report to the one that started them.
    if file and not hasattr(config, "workerinput"):
        config.pluginmanager.register(tiers.Durations(file))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Pass over files without a test of the tier that runs: to read them all takes a process a quarter of a minute."""
    name = collection_path.name
    if not (name.startswith("test_") and name.endswith(".py") and collection_path.is_relative_to(tiers.ROOT)):
        return None
    if any(name in argument for argument in config.args):
        return None  # whoever names a file is to read that nothing of it was selected
    path = collection_path.relative_to(tiers.ROOT).as_posix()
    return None if tiers.may_select(config.option.markexpr, path) else True


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    tiers.mark(items)


def pytest_collection_finish() -> None:
    """Have the collector pass over what is there for good: looking at it again and again costs a tenth of the time."""
    gc.freeze()
    gc.enable()
    gc.set_threshold(20_000, 20, 50)


def pytest_unconfigure() -> None:
    shutil.rmtree(AIRFLOW_HOME, ignore_errors=True)


@pytest.fixture(scope="session")
def airflow_home() -> Path:
    """The folder this process's Airflow lives in."""
    return AIRFLOW_HOME


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A SQLite file of the provider with tables and no rows, to be copied."""
    from tests.unit.database.migrated import SqliteTemplate

    return SqliteTemplate(tmp_path_factory.mktemp("template"))


@pytest.fixture(scope="session")
def postgres_schemas() -> Iterator[Any]:
    """Schemas of the PostgreSQL of the tests, where there is one."""
    pytest.importorskip("psycopg2", reason="psycopg2 is not installed")
    import sqlalchemy

    from tests.unit.database.migrated import POSTGRES, PostgresSchemas

    # What makes room for tests need not outlast the server.
    arguments = {"connect_timeout": 3, "options": "-csynchronous_commit=off"}
    engine = sqlalchemy.create_engine(POSTGRES, connect_args=arguments, pool_pre_ping=True)
    try:
        engine.connect().close()
    except sqlalchemy.exc.OperationalError:
        pytest.skip("no PostgreSQL at 127.0.0.1:5432 with a database test")
    with contextlib.closing(PostgresSchemas(engine)) as schemas:
        yield schemas
    engine.dispose()


@pytest.fixture(scope="session")
def sandbox_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """One sandbox for the whole session; tests take ``sandbox``."""
    with Sandbox(log=tmp_path_factory.mktemp("sandbox") / "sandbox.log") as running:
        yield running


@pytest.fixture
def sandbox(sandbox_process: Sandbox) -> Sandbox:
    """The service, fresh: ``.url .api_key .counters() .inbox(kind) .control(method, path, body)``."""
    sandbox_process.reset()
    return sandbox_process
