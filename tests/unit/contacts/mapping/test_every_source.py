"""The same contacts out of files and databases have the same keys and the same cells."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pytest

from cpaas_provider.api.recipients.msisdn import INTERNATIONAL
from cpaas_provider.contacts.mapping.rows import InvalidRowError, RowMapping
from cpaas_provider.contacts.mapping.rules import parse_mapping
from cpaas_provider.sources import CsvSource, JsonLinesSource, ListSource, ParquetSource, SqlSource
from cpaas_provider.sources.base import Row, Source
from tests.reading import NIGERIAN
from tests.unit.contacts.tables import table

LIST = table(
    name=("Name", "TEXT"),
    points=("Points", "NUMBER"),
    born=("Born", "DATE"),
    phone=("Phone", "PHONE NUMBER"),
    plan=("Plan", "SELECT"),
    tags=("Tags", "MULTI SELECT"),
)
NAMES = ("id", "name", "points", "born", "phone", "plan", "tags")
KEYS = [("4711",), ("4712",)]
CELLS: list[dict[str, Any]] = [
    {
        "name": "Zo\u00eb",
        "points": 12.5,
        "born": "1990-01-31",
        "phone": "2348031234567",
        "plan": "2",
        "tags": ["b", "a"],
    },
    {"name": "Bola", "points": -3, "born": None, "phone": None, "plan": None, "tags": None},
]
# The third record of each source has no content, so it is no row.
SELECT = """
    SELECT * FROM (VALUES
        (4711::bigint, 'Zo\u00eb', 12.50::numeric, '1990-01-31'::date, 2348031234567::numeric, 2, array['b', 'a']),
        (4712, 'Bola', -3, NULL, NULL, NULL, array[]::text[]),
        (NULL, ' ', 'NaN', NULL, NULL, NULL, NULL)
    ) AS people (id, name, points, born, phone, plan, tags)
"""


def csv(path: Path) -> Source:
    path.write_text(
        "id,name,points,born,phone,plan,tags\n"
        '4711,Zo\u00eb,12.50,1990-01-31,0803 123 4567,2,"b,a"\n'
        "4712,Bola,-3,,,,\n"
        ", , ,,,,\n",
        encoding="utf-8",
    )
    return CsvSource(path)


def json_lines(path: Path) -> Source:
    people = [
        (4711, "Zo\u00eb", 12.5, "1990-01-31", "+2348031234567", 2, ["b", "a"]),
        ("4712", "Bola", -3, None, "", None, []),
        (None, " ", None, "", None, "", None),
    ]
    path.write_text("".join(json.dumps(dict(zip(NAMES, one, strict=True))) + "\n" for one in people))
    return JsonLinesSource(path)


def parquet(path: Path) -> Source:
    arrow, files = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    # As data frames write them: an integer column with a gap is one of floats.
    columns = {
        "id": [4711.0, 4712.0, float("nan")],
        "name": ["Zo\u00eb", "Bola", ""],
        "points": [12.5, -3.0, float("nan")],
        "born": [dt.date(1990, 1, 31), None, None],
        "phone": [2348031234567.0, None, None],
        "plan": [2.0, None, None],
        "tags": [["b", "a"], [], None],
    }
    files.write_table(arrow.table(columns), path)
    return ParquetSource(path)


def lists(path: Path) -> Source:
    people = [
        (4711, "Zo\u00eb", 12.5, dt.datetime(1990, 1, 31, tzinfo=dt.UTC), 2348031234567, "2", ("b", "a", "b")),
        (4712, "Bola", "-3", None, None, None, None),
        dict.fromkeys(NAMES, None).values(),
    ]
    return ListSource([dict(zip(NAMES, one, strict=True)) for one in people])


def postgres(path: Path) -> Source:
    psycopg2 = pytest.importorskip("psycopg2", reason="psycopg2-binary is not installed")
    try:
        psycopg2.connect(host="127.0.0.1", user="postgres", dbname="test", connect_timeout=3).close()
    except psycopg2.OperationalError:
        pytest.skip("no PostgreSQL on 127.0.0.1:5432 lets the user postgres into the database test without a password")
    return SqlSource("people", SELECT)


@pytest.mark.parametrize("source", [csv, json_lines, parquet, lists, postgres])
def test_keys_and_cells_are_the_same(source: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connection = {"conn_type": "postgres", "host": "127.0.0.1", "login": "postgres", "schema": "test"}
    monkeypatch.setenv("AIRFLOW_CONN_PEOPLE", json.dumps(connection))
    with source(tmp_path / "people").open() as opened:
        mapping = RowMapping(
            parse_mapping(NAMES[1:]),
            LIST,
            opened.columns,
            numbers=NIGERIAN,
            empty_cell_value="null",
            key=("id",),
        )
        rows = []
        for row in opened.rows(mapping.source_columns):
            assert isinstance(row, Row)
            rows.append(dict(zip(mapping.source_columns, row.values, strict=True)))
    assert [mapping.key_of(row) for row in rows] == KEYS
    assert [mapping.cells(row) for row in rows] == CELLS


def test_damage_of_a_file_is_refused_and_not_shown(tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    # Written on Windows and read as Latin-1: what were quotes are control characters.
    path.write_bytes("id,name\n4711,\u201cAda\u201d\n".encode("cp1252"))
    with CsvSource(path, encoding="latin-1").open() as opened:
        mapping = RowMapping(
            parse_mapping(None),
            LIST,
            opened.columns,
            numbers=INTERNATIONAL,
            empty_cell_value="null",
            key=("id",),
        )
        row = next(iter(opened.rows(mapping.source_columns)))
    assert isinstance(row, Row)
    with pytest.raises(InvalidRowError, match=r"^Name: contains control characters$"):
        mapping.cells(dict(zip(mapping.source_columns, row.values, strict=True)))
