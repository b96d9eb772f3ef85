"""However many rows there are, few are held."""

from __future__ import annotations

import csv
import json
import sqlite3
import tracemalloc
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cpaas_provider.sources import CsvSource, JsonLinesSource, ParquetSource, SqlSource

FEW, MANY = 30_000, 120_000


def row(number: int) -> tuple[str, str]:
    return f"+23480{number:08}", f"Somebody called {number} of a street with a rather long name"


def csv_of(path: Path, rows: int) -> Any:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("phone", "name"))
        writer.writerows(map(row, range(rows)))
    return CsvSource(path)


def json_lines_of(path: Path, rows: int) -> Any:
    with path.open("w") as file:
        file.writelines(json.dumps(dict(zip(("phone", "name"), row(n), strict=True))) + "\n" for n in range(rows))
    return JsonLinesSource(path)


def parquet_of(path: Path, rows: int) -> Any:
    pq.write_table(pa.table(list(zip(*map(row, range(rows)), strict=True)), names=["phone", "name"]), path)
    return ParquetSource(path)


def sqlite_of(path: Path, rows: int) -> Any:
    path.unlink(missing_ok=True)
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE people (phone TEXT, name TEXT)")
        database.executemany("INSERT INTO people VALUES (?, ?)", map(row, range(rows)))
    return SqlSource("people", "SELECT * FROM people")


def peak_of(source: Any) -> int:
    tracemalloc.start()
    try:
        with source.open() as table:
            deque(table.rows(["name", "phone"]), maxlen=0)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("made", [csv_of, json_lines_of, parquet_of, sqlite_of])
def test_memory_does_not_grow_with_the_number_of_rows(
    made: Callable[[Path, int], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "rows"
    monkeypatch.setenv("AIRFLOW_CONN_PEOPLE", json.dumps({"conn_type": "sqlite", "host": str(path)}))
    peak_of(made(path, 10))  # what is imported and cached stays
    few = peak_of(made(path, FEW))
    many = peak_of(made(path, MANY))
    assert many < few + 500_000


def test_arrow_itself_holds_little_of_one_large_group(tmp_path: Path) -> None:
    source = parquet_of(tmp_path / "rows", 3 * MANY)
    metadata = pq.read_metadata(source.path)
    assert metadata.num_row_groups == 1
    before, held = pa.total_allocated_bytes(), 0
    with source.open() as table:
        for one in table.rows(["name", "phone"]):
            if one.number % 10_000 == 5_000:
                held = max(held, pa.total_allocated_bytes() - before)
    assert 0 < held < metadata.row_group(0).total_byte_size / 3
