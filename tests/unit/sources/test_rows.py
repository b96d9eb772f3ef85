"""What holds for rows and columns of every kind of source."""

from __future__ import annotations

import csv
import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpaas_provider.sources import CsvSource, JsonLinesSource, ListSource, ParquetSource, SqlSource
from cpaas_provider.sources.base import InvalidRow, Row, SourceError
from cpaas_provider.sources.csv_file.records import _MAY_HOLD_RECIPIENT, _RECIPIENT
from cpaas_provider.sources.tables import (
    AmbiguousColumnError,
    FilteredTable,
    all_have_content,
    find_column,
    has_content,
    missing_columns,
)
from tests.unit.sources.reading import bad, read, values

Records = Sequence[Sequence[Any]]
Make = Callable[[Sequence[str], Records], Any]


def as_csv(folder: Path, names: Sequence[str], records: Records) -> CsvSource:
    with (folder / "a.csv").open("w", newline="") as file:
        csv.writer(file).writerows([names, *records])
    return CsvSource(folder / "a.csv")


def as_sql(folder: Path, names: Sequence[str], records: Records) -> SqlSource:
    selected = ", ".join(f'c{place} AS "{name}"' for place, name in enumerate(names))
    with sqlite3.connect(folder / "a.db") as database:
        database.execute(f"CREATE TABLE a ({', '.join(f'c{place}' for place in range(len(names)))})")
        database.executemany(f"INSERT INTO a VALUES ({', '.join('?' * len(names))})", records)
    return SqlSource("rows", f"SELECT {selected} FROM a ORDER BY rowid")


def as_parquet(folder: Path, names: Sequence[str], records: Records) -> ParquetSource:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = [arrow.array([record[place] for record in records], arrow.string()) for place in range(len(names))]
    parquet.write_table(arrow.table(columns, names=list(names)), folder / "a.parquet")
    return ParquetSource(folder / "a.parquet")


def mappings(names: Sequence[str], records: Records) -> list[Mapping[str, Any]]:
    return [dict(zip(names, record, strict=True)) for record in records]


def as_json_lines(folder: Path, names: Sequence[str], records: Records) -> JsonLinesSource:
    (folder / "a.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in mappings(names, records)))
    return JsonLinesSource(folder / "a.jsonl")


WITH_HEADER = {"csv": as_csv, "sql": as_sql, "parquet": as_parquet}
KINDS: dict[str, Callable[[Path, Sequence[str], Records], Any]] = {
    **WITH_HEADER,
    "json lines": as_json_lines,
    "list": lambda folder, names, records: ListSource(mappings(names, records)),
}


@pytest.fixture(params=KINDS)
def make(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Make a source of each kind."""
    return maker(request.param, tmp_path, monkeypatch)


@pytest.fixture(params=WITH_HEADER)
def make_with_header(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Make a source of each kind whose columns may have any names."""
    return maker(request.param, tmp_path, monkeypatch)


def maker(kind: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    connection = json.dumps({"conn_type": "sqlite", "host": str(folder / "a.db")})
    monkeypatch.setenv("AIRFLOW_CONN_ROWS", connection)
    return lambda names, records: KINDS[kind](folder, names, records)


def test_record_without_content_is_no_row_in_any_source(make: Make) -> None:
    source = make(["phone", "name"], [("1", "Ada"), (None, None), ("", " \t"), (None, "Bo"), ("\u200b", "\xa0")])
    found = read(source, "phone")
    first = found[0].number
    assert [row.number - first for row in found] == [0, 3]
    assert values(source, "name") == [("Ada",), ("Bo",)]
    assert values(source) == [(), ()]


@pytest.mark.parametrize("wanted", ["phone", "PHONE", " Phone ", "pHoNe"])
def test_column_is_found_regardless_of_capitals_and_blanks(make: Make, wanted: str) -> None:
    assert values(make([" Phone ", "name"], [("1", "Ada")]), "Name", wanted) == [("Ada", "1")]


def test_exact_column_name_is_preferred(make: Make) -> None:
    source = make(["Phone", "phone", "PHONE"], [("1", "2", "3")])
    assert values(source, "phone", "PHONE", "Phone") == [("2", "3", "1")]


def test_column_of_no_name_is_never_found(make_with_header: Make) -> None:
    assert values(make_with_header(["", "phone"], [("0", "1")]), "phone", "", " ") == [("1", None, None)]


def test_column_name_that_differs_from_another_only_in_case_is_refused(make: Make) -> None:
    source = make(["Phone", "name", "PHONE"], [("1", "Ada", "2")])
    assert values(source, "name") == [("Ada",)]
    try:
        reasons = list(bad(read(source, "phone")).values())
    except SourceError as error:
        reasons = [str(error)]
    assert "olumns 1 and 3" in reasons[0]
    assert "the same name but for capitals and blanks" in reasons[0]


def test_only_requested_columns_need_a_unique_name(make_with_header: Make) -> None:
    source = make_with_header(["", "phone", "name", "name", ""], [("0", "1", "Ada", "Obi", "x")])
    assert values(source, "phone") == [("1",)]
    with pytest.raises(SourceError, match=r"Columns 3 and 4 of .* have the same name\. Rename one\.") as raised:
        read(source, "phone", "name")
    assert "Ada" not in str(raised.value)


def test_filtered_table_finds_columns_as_its_source_does(make: Make) -> None:
    with make(["Phone", "Name"], [("1", "Ada"), ("2", "Bo")]).open() as table:
        assert [row[1] for row in FilteredTable(table, ["name"], lambda name: name == "Bo").rows(["phone"])] == [("2",)]


def test_absent_columns_are_those_that_no_record_had_in_any_capitals() -> None:
    source = ListSource([{"PHONE": "1"}, {"name": None}, {"phone": "2", "Zone": "x"}])
    with source.open() as table:
        assert [row[1] for row in table.rows(["phone", "Name", "zone", "city"])] == [
            ("1", None, None, None),
            ("2", None, "x", None),
        ]
        assert table.absent == {"city"}


def test_names_of_records_may_differ_from_row_to_row() -> None:
    rows = [{f"Column {number}": number, "PHONE" if number % 2 else "phone": number} for number in range(1_000)]
    assert values(ListSource(rows), "phone") == [(number,) for number in range(1_000)]


def test_bare_item_without_a_value_stays_a_row() -> None:
    assert read(ListSource(["+1", "", " "]), "phone") == [Row(1, ("+1",)), Row(2, ("",)), Row(3, (" ",))]
    assert isinstance(read(ListSource([None]), "phone")[0], InvalidRow)


def test_defaultdict_row_creates_no_value_for_a_missing_column() -> None:
    from collections import defaultdict

    row = defaultdict(lambda: "made", {"Phone": "1"})
    assert values(ListSource([row]), "phone", "name") == [("1", None)]
    assert list(row) == ["Phone"]


def test_missing_columns_are_named_sorted_and_once() -> None:
    assert missing_columns("it", ("Phone",), ["zone", "phone", "age", "age"]) == ["age", "zone"]
    assert missing_columns("it", None, ["zone"]) == []


NAMES = st.text("aA ßS\u0130\t", max_size=4)


@given(columns=st.lists(NAMES, max_size=5), name=NAMES)
def test_column_is_found_only_if_it_is_the_one_that_matches(columns: list[str], name: str) -> None:
    def fold(text: str) -> str:
        return text.strip().casefold()

    matching = [column for column in columns if column == name] or [one for one in columns if fold(one) == fold(name)]
    if not name.strip():
        assert find_column(columns, name) is None
    elif len(matching) > 1:
        with pytest.raises(AmbiguousColumnError):
            find_column(columns, name)
    else:
        place = find_column(columns, name)
        assert (None if place is None else columns[place]) == (matching[0] if matching else None)


@given(column=st.lists(st.none() | st.text(max_size=3) | st.integers() | st.booleans() | st.floats(), max_size=5))
def test_column_that_counts_as_full_has_no_blank_value(column: list[Any]) -> None:
    if all_have_content(column):
        assert all(has_content([value]) for value in column)


@pytest.mark.parametrize(("column", "is_full"), [(["a", "~"], True), ([0, 1], True), (["a", " "], False), ([], False)])
def test_only_column_of_visible_texts_or_integers_counts_as_full(column: list[Any], is_full: bool) -> None:
    assert all_have_content(column) is is_full


@given(text=st.from_regex(_RECIPIENT, fullmatch=True))
def test_text_that_may_be_recipient_is_looked_at(text: str) -> None:
    assert _MAY_HOLD_RECIPIENT.search(text)
