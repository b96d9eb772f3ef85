"""The same recipients in every kind of source, made once and kept.

python -m tests.benchmarks.campaign.places KIND COUNT FOLDER [--postgres URL]

PostgreSQL keeps them in the schema ``cpaas_bench``; ``DROP SCHEMA cpaas_bench CASCADE`` ends that.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import sqlite3
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, Self, get_type_hints

from tests.benchmarks.campaign.recipients import Person, people, write_csv

FILES = {"csv": "csv", "jsonl": "jsonl", "parquet": "parquet", "sqlite": "db"}
KINDS = (*FILES, "postgres")
SCHEMA = "cpaas_bench"
TYPES = get_type_hints(Person)
COLUMNS = ", ".join(f"{name} {'INTEGER' if kind is int else 'TEXT'}" for name, kind in TYPES.items())
# Rows held at a time while a table or a Parquet file is made.
BLOCK = 50_000


class Place(NamedTuple):
    """Where so many recipients are: a file by its path, a table by connection and query.

    The connection is in the environment of whoever is measured.
    """

    kind: str
    count: int
    path: str | None
    conn_id: str | None = None
    sql: str | None = None

    @classmethod
    def of(cls, kind: str, count: int, folder: Path) -> Self:
        """Return the place, whether it was made yet or not."""
        path = str(folder.absolute() / f"people-{count}.{FILES[kind]}") if kind in FILES else None
        if kind == "sqlite":
            return cls(kind, count, path, f"bench_{kind}", "SELECT * FROM people")
        if kind == "postgres":
            return cls(kind, count, None, f"bench_{kind}", f"SELECT * FROM {SCHEMA}.people_{count}")
        return cls(kind, count, path)

    def environment(self, postgres: str) -> dict[str, str]:
        """Return the variable that holds its connection, where it has one."""
        if self.conn_id is None:
            return {}
        connection = json.dumps({"conn_type": "sqlite", "host": self.path}) if self.path else postgres
        return {f"AIRFLOW_CONN_{self.conn_id.upper()}": connection}


def make(place: Place, postgres: str) -> None:
    """Fill a place, unless that was done before."""
    if place.path is None:
        _make_postgres_table(place, postgres)
    elif not Path(place.path).exists():
        Path(place.path).parent.mkdir(parents=True, exist_ok=True)
        # A file half made must not be taken for a whole one by the next run.
        unfinished = Path(f"{place.path}.unfinished")
        unfinished.unlink(missing_ok=True)
        _MAKERS[place.kind](unfinished, place.count)
        unfinished.rename(place.path)


def _write_json_lines(path: Path, count: int) -> None:
    with path.open("w") as file:
        for person in people(count):
            file.write(json.dumps(person._asdict()) + "\n")


def _write_parquet(path: Path, count: int) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema([(name, pa.int64() if kind is int else pa.string()) for name, kind in TYPES.items()])
    with pq.ParquetWriter(path, schema) as writer:
        for block in _blocks(people(count)):
            writer.write_table(pa.table(list(zip(*block, strict=True)), schema=schema))


def _write_sqlite(path: Path, count: int) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"CREATE TABLE people ({COLUMNS})")
        connection.executemany(f"INSERT INTO people VALUES ({', '.join('?' * len(Person._fields))})", people(count))


def _make_postgres_table(place: Place, postgres: str) -> None:
    import psycopg2

    table = f"people_{place.count}"
    with contextlib.closing(psycopg2.connect(postgres)) as connection, connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}")
        cursor.execute("SELECT to_regclass(%s)", [f"{SCHEMA}.{table}"])
        if cursor.fetchone() != (None,):
            return
        cursor.execute(f"CREATE TABLE {SCHEMA}.{table} ({COLUMNS})")
        for block in _blocks(people(place.count)):
            lines = "".join("\t".join(map(str, person)) + "\n" for person in block)
            cursor.copy_expert(f"COPY {SCHEMA}.{table} FROM STDIN", io.StringIO(lines))


def _blocks(rows: Iterable[Any]) -> Iterator[list[Any]]:
    rows = iter(rows)
    while block := list(islice(rows, BLOCK)):
        yield block


_MAKERS = {"csv": write_csv, "jsonl": _write_json_lines, "parquet": _write_parquet, "sqlite": _write_sqlite}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.campaign.places")
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("count", type=int)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--postgres", default="", help="URL of a database; needed for that kind only")
    arguments = parser.parse_args()
    make(Place.of(arguments.kind, arguments.count, arguments.folder), arguments.postgres)


if __name__ == "__main__":
    main()
