"""Parquet."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpaas_provider._common.extras import describe_install
from cpaas_provider.sources import ParquetSource
from cpaas_provider.sources.base import Row, SourceError
from cpaas_provider.sources.tables import has_content
from tests.unit.sources.reading import bad, columns, good, read, values

Make = Callable[..., ParquetSource]


@pytest.fixture
def made(tmp_path: Path) -> Make:
    """Write a file and return its source."""

    def make(table: pa.Table, **options: Any) -> ParquetSource:
        path = tmp_path / "a.parquet"
        pq.write_table(table, path, **options)
        return ParquetSource(path)

    return make


def test_only_requested_columns_are_read_in_the_requested_order(made: Make) -> None:
    source = made(pa.table({"phone": [2348030000000, None], "name": ["Ada", "Bo"], "other": [1, 2]}))
    assert columns(source) == ("phone", "name", "other")
    assert read(source, "name", "none", "phone") == [
        Row(1, ("Ada", None, 2348030000000)),
        Row(2, ("Bo", None, None)),
    ]
    assert read(source, "name") == read(source, "name")
    assert values(source, "none") == [(None,), (None,)]
    assert values(source) == [(), ()]


def test_values_are_python_s_own(made: Make) -> None:
    moment = datetime(2026, 1, 2, 3, 4, 5, 678901)
    there = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    table = pa.table(
        {
            "integer": [2**62],
            "decimal": [Decimal("1.50")],
            "date": [date(2026, 1, 2)],
            "nanoseconds": pa.array([1_767_323_045_678_901_234], pa.timestamp("ns")),
            "there": pa.array([there], pa.timestamp("us", "UTC")),
            "time": pa.array([3_723_000_000_001], pa.time64("ns")),
            "span": pa.array([timedelta(seconds=1)], pa.duration("us")),
            "word": pa.array(["x"]).dictionary_encode(),
            "list": [["a"]],
            "struct": [{"a": 1}],
            "dotted.name": ["y"],
            "nothing": pa.nulls(1),
        }
    )
    found = dict(zip(table.column_names, values(made(table), *table.column_names)[0], strict=True))
    assert found == {
        "integer": 2**62,
        "decimal": Decimal("1.50"),
        "date": date(2026, 1, 2),
        "nanoseconds": moment,
        "there": there,
        "time": time(1, 2, 3),
        "span": timedelta(seconds=1),
        "word": "x",
        "list": ["a"],
        "struct": {"a": 1},
        "dotted.name": "y",
        "nothing": None,
    }
    assert type(found["nanoseconds"]) is datetime


def test_all_row_groups_are_read(made: Make) -> None:
    source = made(pa.table({"n": range(25_000)}), row_group_size=7_000)
    assert read(source, "n") == [Row(number + 1, (number,)) for number in range(25_000)]


def test_values_python_cannot_hold_are_set_aside(made: Make) -> None:
    texts = pa.array([b"good", b"Zo\xeb", b"good", b"good"], pa.binary()).view(pa.string())
    dates = pa.array([0, 0, 2**61, 0], pa.timestamp("us"))
    found = read(made(pa.table({"text": texts, "date": dates})), "text")
    assert (good(found).keys(), bad(found).keys()) == ({1, 3, 4}, {2})
    found = read(made(pa.table({"text": texts, "date": dates})), "date", "text")
    assert (good(found).keys(), bad(found).keys()) == ({1, 4}, {2, 3})


def test_empty_table_has_no_rows(made: Make) -> None:
    assert read(made(pa.table({"phone": pa.array([], pa.string())})), "phone") == []


def test_row_that_is_null_in_every_batch_is_no_row(made: Make) -> None:
    numbers = [None if number % 3 else number for number in range(25_000)]
    texts = [" " if number % 5 else "x" for number in range(25_000)]
    source = made(pa.table({"phone": numbers, "text": texts, "none": pa.nulls(25_000)}))
    expected = [number + 1 for number in range(25_000) if number % 3 == 0 or number % 5 == 0]
    assert [row.number for row in read(source, "phone")] == expected
    assert [row.number for row in read(source, "none")] == expected
    assert [row.number for row in read(source)] == expected


def test_value_that_cannot_be_read_in_another_column_is_content(made: Make) -> None:
    damaged = pa.array([b"\xff", None]).view(pa.string())
    assert [row.number for row in read(made(pa.table({"phone": pa.nulls(2), "text": damaged})), "phone")] == [1]


def test_missing_or_invalid_parquet_file_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    with pytest.raises(SourceError, match="The file does not exist"):
        read(ParquetSource(path), "phone")
    for content in (b"", b"phone\n1\n", b"PAR1" * 10):
        path.write_bytes(content)
        with pytest.raises(SourceError, match=r"Parquet file .*cannot be read \(Arrow"):
            read(ParquetSource(path), "phone")


def test_file_damaged_in_the_middle_is_an_error_after_its_good_rows(tmp_path: Path, made: Make) -> None:
    source = made(pa.table({"n": range(50_000)}), use_dictionary=False, row_group_size=10_000)
    content = bytearray(source.path.read_bytes())
    content[len(content) // 2 : len(content) // 2 + 30_000] = b"\xff" * 30_000
    source.path.write_bytes(content)
    with source.open() as table:
        rows = table.rows(["n"])
        assert next(rows) == Row(1, (0,))
        with pytest.raises(SourceError, match=r"Parquet file .*cannot be read"):
            list(rows)


def test_missing_pyarrow_is_an_error_that_names_the_extra(made: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    source = made(pa.table({"phone": ["1"]}))
    for name in [name for name in sys.modules if name.partition(".")[0] == "pyarrow"]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(SourceError, match=re.escape(describe_install("parquet"))), source.open():
        pass


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("parquet") / "a.parquet"


COLUMNS = {
    "integer": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "text": (pa.string(), st.text(st.characters(exclude_categories=["Cs"]))),
    "decimal": (pa.decimal128(20, 2), st.decimals("-1e9", "1e9", places=2)),
    "date": (pa.date32(), st.dates()),
    "moment": (pa.timestamp("us"), st.datetimes()),
    "flag": (pa.bool_(), st.booleans()),
}
ROWS = st.tuples(*(st.none() | strategy for _, strategy in COLUMNS.values()))


@given(table=st.lists(ROWS, max_size=10), rows_a_group=st.integers(1, 10))
def test_written_table_is_read_unchanged(path: Path, table: list[tuple[Any, ...]], rows_a_group: int) -> None:
    kinds = [kind for kind, _ in COLUMNS.values()]
    arrays = [pa.array([row[place] for row in table], kind) for place, kind in enumerate(kinds)]
    pq.write_table(pa.table(arrays, names=list(COLUMNS)), path, row_group_size=rows_a_group)
    assert read(ParquetSource(path), *COLUMNS) == [
        Row(number, row) for number, row in enumerate(table, 1) if has_content(row)
    ]
    assert [row.number for row in read(ParquetSource(path), "flag")] == [
        number for number, row in enumerate(table, 1) if has_content(row)
    ]
