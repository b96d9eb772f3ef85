"""Queries on real databases."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cpaas_provider._common.extras import describe_install
from cpaas_provider.sources import SqlSource
from cpaas_provider.sources.base import InvalidRow, Row, SourceError, Table
from tests.unit.sources.reading import columns, read, values

POSTGRES = {"conn_type": "postgres", "host": "127.0.0.1", "login": "postgres", "schema": "test"}
MANY = 200_000
TABLE = f"source_people_{os.getpid()}"


@pytest.fixture
def sqlite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A database of three people on the connection ``people``."""
    path = tmp_path / "people.db"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE people (phone TEXT, name TEXT, age INTEGER)")
        database.executemany(
            "INSERT INTO people VALUES (?, ?, ?)", [("1", "Ada", 36), ("2", "Bo", None), ("3", "Cy", 7)]
        )
    monkeypatch.setenv("AIRFLOW_CONN_PEOPLE", json.dumps({"conn_type": "sqlite", "host": str(path)}))
    return path


@pytest.fixture
def postgres(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A PostgreSQL server on the connection ``people``, with a table of its own."""
    psycopg2 = pytest.importorskip("psycopg2", reason="psycopg2-binary is not installed")
    try:
        database = psycopg2.connect(host="127.0.0.1", user="postgres", dbname="test", connect_timeout=3)
    except psycopg2.OperationalError:
        pytest.skip("no PostgreSQL on 127.0.0.1:5432 lets the user postgres into the database test without a password")
    database.autocommit = True
    monkeypatch.setenv("AIRFLOW_CONN_PEOPLE", json.dumps(POSTGRES))
    with database.cursor() as cursor:
        cursor.execute(f"DROP TABLE IF EXISTS {TABLE}")
        cursor.execute(f"CREATE TABLE {TABLE} (phone TEXT, name TEXT)")
        cursor.execute(f"INSERT INTO {TABLE} VALUES ('1', 'Ada'), ('2', '100%'), ('3', NULL)")
        yield cursor
        cursor.execute(f"DROP TABLE {TABLE}")
    database.close()


def count_people(database: Path) -> int:
    with sqlite3.connect(database) as connection:
        return int(connection.execute("SELECT count(*) FROM people").fetchone()[0])


def rows_before_it_fails(statement: str, words: str) -> int:
    given: list[Row | InvalidRow] = []

    def read_rows(table: Table) -> None:
        for row in table.rows(["x"]):
            given[:] = [row]

    with SqlSource("people", statement).open() as table, pytest.raises(SourceError, match=words):
        read_rows(table)
    return given[0].number


@pytest.mark.usefixtures("sqlite")
def test_rows_are_numbered_and_have_the_wanted_columns() -> None:
    source = SqlSource("people", "SELECT * FROM people ORDER BY phone;")
    assert columns(source) == ("phone", "name", "age")
    assert read(source, "age", "none", "phone") == [
        Row(1, (36, None, "1")),
        Row(2, (None, None, "2")),
        Row(3, (7, None, "3")),
    ]
    assert read(source, "age") == read(source, "age")


@pytest.mark.usefixtures("sqlite")
@pytest.mark.parametrize(
    ("condition", "parameters"),
    [
        ("name = ?", ["Bo"]),
        ("name = ?", ("Bo",)),
        ("name = :name", {"name": "Bo"}),
        ("name LIKE 'B%'", None),
        ("name LIKE 'B%'", []),
        ("name LIKE 'B%'", {}),
    ],
)
def test_placeholders_are_filled(condition: str, parameters: Any) -> None:
    assert values(SqlSource("people", f"SELECT phone FROM people WHERE {condition}", parameters), "phone") == [("2",)]


@pytest.mark.parametrize("statement", ["DELETE FROM people RETURNING phone", "DELETE FROM people"])
def test_query_commits_no_change(sqlite: Path, statement: str) -> None:
    source = SqlSource("people", statement)
    if "RETURNING" in statement:
        assert len(read(source, "phone")) == 3
    else:
        with pytest.raises(SourceError, match="has no result"):
            read(source, "phone")
    assert count_people(sqlite) == 3


def test_multiple_statements_are_refused(sqlite: Path) -> None:
    with pytest.raises(SourceError, match="must be one statement"):
        read(SqlSource("people", "DELETE FROM people; SELECT 1"), "phone")
    assert count_people(sqlite) == 3


@pytest.mark.usefixtures("sqlite")
def test_error_shows_neither_statement_nor_parameters(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(
        SourceError, match=r"SQL query on connection people failed \(OperationalError, SQLITE_ERROR\)"
    ) as told:
        read(SqlSource("people", "SELECT 'secret' FROM nowhere WHERE x = ?", ["secret"]), "phone")
    assert "secret" not in str(told.value)
    assert told.value.__cause__ is None
    assert told.value.__suppress_context__
    assert "secret" not in caplog.text


@pytest.mark.parametrize(
    ("statement", "kind", "permanent"),
    [
        ("SELECT phone FROM custmers", "UndefinedTable, SQLSTATE 42P01", True),
        ("SELECT fone FROM pg_class", "UndefinedColumn, SQLSTATE 42703", True),
        ("SELECT 1 / 0 AS phone", "DivisionByZero, SQLSTATE 22012", False),
    ],
)
@pytest.mark.usefixtures("postgres")
def test_error_of_postgresql_has_its_code_and_whether_a_retry_can_help(
    statement: str, kind: str, *, permanent: bool
) -> None:
    with pytest.raises(SourceError, match=re.escape(f"failed ({kind})")) as raised:
        values(SqlSource("people", statement), "phone")
    assert raised.value.permanent is permanent


def test_error_of_sqlite_has_its_code_and_is_permanent_for_an_unknown_table(sqlite: Path) -> None:
    with pytest.raises(SourceError, match=r"failed \(OperationalError, SQLITE_ERROR\)") as raised:
        values(SqlSource("people", "SELECT phone FROM custmers"), "phone")
    assert raised.value.permanent
    assert "custmers" not in str(raised.value)
    with sqlite3.connect(sqlite) as database:
        database.execute("PRAGMA journal_mode = DELETE")
        database.execute("BEGIN EXCLUSIVE")
        with pytest.raises(SourceError, match="SQLITE_BUSY") as raised:
            values(SqlSource("people", "SELECT phone FROM people"), "phone")
        database.rollback()
    assert not raised.value.permanent


@pytest.mark.parametrize(
    ("number", "permanent"), [(1146, True), (1054, True), (1064, True), (2013, False), (1205, False)]
)
def test_error_of_mysql_has_its_number_and_whether_a_retry_can_help(number: int, *, permanent: bool) -> None:
    # As the drivers of MySQL raise them, none of which the tests install.
    error = SqlSource("people", "SELECT 1")._query_error(sqlite3.ProgrammingError(number, "Table 'x.ada' is missing"))
    assert f"failed (ProgrammingError, error {number})" in str(error)
    assert "ada" not in str(error)
    assert error.permanent is permanent


@pytest.mark.usefixtures("sqlite")
def test_rows_come_before_the_query_ends() -> None:
    """The row at which it fails is reached only after those before it were given."""
    late = (
        f"WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < {MANY}) "
        f"SELECT CASE WHEN x = {MANY} THEN abs(-9223372036854775807 - 1) ELSE x END AS x FROM n"
    )
    assert MANY - 3_000 < rows_before_it_fails(late, "failed") < MANY


def test_missing_connection_is_an_error_with_advice() -> None:
    with pytest.raises(SourceError, match="Check that the connection exists"):
        read(SqlSource("nowhere", "SELECT 1"), "x")


def test_connection_of_another_type_is_an_error_with_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_OTHER", '{"conn_type": "cpaas", "password": "secret"}')
    with pytest.raises(SourceError, match="not of a SQL database"):
        read(SqlSource("other", "SELECT 1"), "x")
    monkeypatch.setenv("AIRFLOW_CONN_OTHER", '{"conn_type": "nosuch", "password": "secret"}')
    with pytest.raises(SourceError, match="provider of its database is installed") as told:
        read(SqlSource("other", "SELECT 1"), "x")
    assert "secret" not in str(told.value)


def test_missing_sql_provider_is_an_error_that_names_the_extra() -> None:
    script = (
        "import sys; sys.modules['airflow.providers.common.sql.hooks.sql'] = None\n"
        "from cpaas_provider.sources import SqlSource\n"
        "from cpaas_provider.sources.base import SourceError\n"
        "try:\n    SqlSource('people', 'SELECT 1').open().__enter__()\n"
        "except SourceError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert f"where the task runs: {describe_install('sql')}." in done.stdout


@pytest.mark.usefixtures("postgres")
def test_postgresql_is_read() -> None:
    assert values(SqlSource("people", f"SELECT * FROM {TABLE} ORDER BY phone"), "name", "phone") == [
        ("Ada", "1"),
        ("100%", "2"),
        (None, "3"),
    ]
    assert values(SqlSource("people", f"SELECT phone FROM {TABLE} WHERE name LIKE '%0\\%'"), "phone") == [("2",)]
    filled = f"SELECT phone FROM {TABLE} WHERE name = "
    assert values(SqlSource("people", filled + "%s", ["Ada"]), "phone") == [("1",)]
    assert values(SqlSource("people", filled + "%(name)s", {"name": "Ada"}), "phone") == [("1",)]


@pytest.mark.usefixtures("postgres")
def test_postgresql_gives_rows_before_the_query_ends() -> None:
    late = f"SELECT 1 / ({MANY} - n) AS x FROM (SELECT generate_series(1, {MANY}) AS n) AS numbers"
    assert MANY - 3_000 < rows_before_it_fails(late, r"failed \(DivisionByZero, SQLSTATE 22012\)") < MANY


@pytest.mark.parametrize(
    "statement",
    [f"DELETE FROM {TABLE} RETURNING phone", f"DELETE FROM {TABLE}", f"TRUNCATE {TABLE}"],
    ids=["returning", "delete", "truncate"],
)
def test_statement_that_changes_postgresql_is_refused(postgres: Any, statement: str) -> None:
    with pytest.raises(SourceError) as told:
        read(SqlSource("people", statement), "phone")
    assert TABLE not in str(told.value)
    postgres.execute(f"SELECT count(*) FROM {TABLE}")
    assert postgres.fetchone() == (3,)


@pytest.mark.usefixtures("postgres")
def test_terminated_database_session_is_an_error() -> None:
    killer = "SELECT n, CASE WHEN n = 100000 THEN pg_terminate_backend(pg_backend_pid()) END AS x "
    source = SqlSource("people", killer + "FROM (SELECT generate_series(1, 200000) AS n) AS numbers")
    with source.open() as table, pytest.raises(SourceError, match="failed"):
        list(table.rows(["n"]))


@pytest.mark.usefixtures("postgres")
def test_query_left_before_its_end_is_closed(postgres: Any) -> None:
    source = SqlSource("people", f"SELECT generate_series(1, 1000000) AS n, '{TABLE}' AS mark")
    with source.open() as table:
        assert next(table.rows(["n"])) == Row(1, (1,))
    postgres.execute(f"SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%{TABLE}%' AND pid <> pg_backend_pid()")
    assert postgres.fetchone() == (0,)
