"""The rows of a campaign where its task reads them; each replaces what was there at one stroke."""

from __future__ import annotations

import csv
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from hashlib import sha256
from pathlib import Path

from tests.system.killing_campaigns.recipients import Row

POSTGRES = {"conn_type": "postgres", "host": "127.0.0.1", "login": "postgres", "schema": "test"}
COLUMNS = ("phone", "name")
FIRST_ROW = {"csv": 2}
"""The number of the first row, where that is not 1."""


def connection_of(kind: str, name: str, folder: Path) -> dict[str, str]:
    """Return the variable with the Airflow connection of a database, where there is one."""
    if kind not in ("sqlite", "postgres"):
        return {}
    connection = POSTGRES if kind == "postgres" else {"conn_type": "sqlite", "host": str(folder / f"{name}.db")}
    return {f"AIRFLOW_CONN_KILLED_{name.upper()}": json.dumps(connection)}


def as_items(rows: list[Row]) -> list[dict[str, str]]:
    """Return rows as the items of a list."""
    return [{"phone": row.written, "name": row.name} for row in rows]


def tables_of(folder: Path) -> str:
    """Return how the names of tables in PostgreSQL begin: two killings at once must not share any."""
    return f"killed_{sha256(str(folder).encode()).hexdigest()[:10]}"


def put(kind: str, name: str, folder: Path, rows: list[Row]) -> None:
    """Have the rows read from now on."""
    if kind == "postgres":
        _put_into_postgres(f"{tables_of(folder)}_{name}", rows)
        return
    suffix, write = _FILES[kind]
    unfinished = folder / f"{name}.unfinished"
    write(unfinished, rows)
    unfinished.rename(folder / f"{name}.{suffix}")


def drop_tables(folder: Path) -> None:
    """Leave nothing of ours in PostgreSQL."""
    tables = tables_of(folder)
    with closing(_postgres()) as database, database, database.cursor() as cursor:
        cursor.execute(f"DROP TABLE IF EXISTS {tables}_postgres, {tables}_postgres_mapped")


def _write_list(path: Path, rows: list[Row]) -> None:
    path.write_text(json.dumps(as_items(rows)))


def _write_csv(path: Path, rows: list[Row]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        writer.writerows((row.written, row.name) for row in rows)


def _write_json_lines(path: Path, rows: list[Row]) -> None:
    path.write_text("".join(json.dumps(item) + "\n" for item in as_items(rows)))


def _write_parquet(path: Path, rows: list[Row]) -> None:
    import pyarrow
    from pyarrow import parquet

    parquet.write_table(pyarrow.Table.from_pylist(as_items(rows)), path)


def _write_sqlite(path: Path, rows: list[Row]) -> None:
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE people (place INTEGER PRIMARY KEY, phone TEXT, name TEXT)")
        database.executemany(
            "INSERT INTO people VALUES (?, ?, ?)", ((place, row.written, row.name) for place, row in enumerate(rows))
        )


def _put_into_postgres(table: str, rows: list[Row]) -> None:
    # Not truncated: whoever reads at present goes on reading what was there.
    with closing(_postgres()) as database, database, database.cursor() as cursor:
        cursor.execute(f"CREATE TABLE IF NOT EXISTS {table} (place INTEGER, phone TEXT, name TEXT)")
        cursor.execute(f"DELETE FROM {table}")
        values = [(place, row.written, row.name) for place, row in enumerate(rows)]
        from psycopg2.extras import execute_values

        execute_values(cursor, f"INSERT INTO {table} VALUES %s", values, page_size=2000)


def _postgres():
    import psycopg2

    return psycopg2.connect(host="127.0.0.1", user="postgres", dbname="test", connect_timeout=3)


_FILES: dict[str, tuple[str, Callable[[Path, list[Row]], None]]] = {
    "list": ("json", _write_list),
    "xcom": ("json", _write_list),
    "csv": ("csv", _write_csv),
    "jsonl": ("jsonl", _write_json_lines),
    "parquet": ("parquet", _write_parquet),
    "sqlite": ("db", _write_sqlite),
}
