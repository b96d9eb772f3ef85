"""The databases the store is tested on: a SQLite file, and PostgreSQL where there is one."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy

from cpaas_provider.database.database import Database, open_database
from tests.unit.database.workers import Worker

POSTGRES = "postgresql+psycopg2://postgres@127.0.0.1:5432/test"


@pytest.fixture
def postgres_url() -> Iterator[str]:
    """A URL into a schema of the test's own."""
    pytest.importorskip("psycopg2", reason="psycopg2 is not installed")
    name = f"cpaas_test_{secrets.token_hex(6)}"
    engine = sqlalchemy.create_engine(POSTGRES, connect_args={"connect_timeout": 3})
    try:
        with engine.begin() as connection:
            connection.execute(sqlalchemy.text(f"CREATE SCHEMA {name}"))
    except sqlalchemy.exc.OperationalError:
        pytest.skip("no PostgreSQL at 127.0.0.1:5432 with a database test")
    yield f"{POSTGRES}?options=-csearch_path%3D{name}"
    with engine.begin() as connection:
        connection.execute(sqlalchemy.text(f"DROP SCHEMA {name} CASCADE"))
    engine.dispose()


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'home' / 'store.db'}"


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    """Where nothing is yet."""
    return str(request.getfixturevalue(f"{request.param}_url"))


@pytest.fixture
def database(url: str) -> Iterator[Database]:
    with open_database(url) as opened:
        yield opened


@pytest.fixture(scope="package")
def crowd() -> Iterator[list[Worker]]:
    """Other processes, to do the same at once."""
    with contextlib.ExitStack() as workers:
        yield [workers.enter_context(Worker()) for _ in range(5)]
