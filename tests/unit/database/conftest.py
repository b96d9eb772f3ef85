"""The databases the store is tested on: a SQLite file, and PostgreSQL where there is one."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from cpaas_provider.database.database import Database, open_database
from tests.unit.database.migrated import PostgresSchemas, SqliteTemplate, url_of
from tests.unit.database.workers import Worker


def wants_tables(request: pytest.FixtureRequest) -> bool:
    """Tell whether a test's database is opened for it, so that none of it sees the tables being made."""
    return "database" in request.fixturenames or "with_tables" in request.fixturenames


@pytest.fixture
def with_tables() -> None:
    """Have the tables at ``url``, ``sqlite_url`` and ``postgres_url`` already."""


@pytest.fixture
def postgres_url(request: pytest.FixtureRequest, postgres_schemas: PostgresSchemas) -> Iterator[str]:
    """A URL into a schema of the test's own."""
    name = f"cpaas_test_{secrets.token_hex(6)}"
    with postgres_schemas.migrated(name) if wants_tables(request) else postgres_schemas.empty(name):
        yield url_of(name)


@pytest.fixture
def sqlite_url(request: pytest.FixtureRequest, tmp_path: Path, sqlite_template: SqliteTemplate) -> str:
    file = tmp_path / "home" / "store.db"
    if wants_tables(request):
        sqlite_template.copy_to(file)
    return f"sqlite:///{file}"


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    """Where nothing is yet, or where the tables are but no rows; see ``wants_tables``."""
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
