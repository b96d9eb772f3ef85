"""Data frames as sources."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import pytest

from cpaas_provider.sources import DataFrameSource, ParquetSource, as_source
from cpaas_provider.sources.base import Row, SourceError
from tests.unit.sources.reading import columns, read, values

Make = Callable[[Mapping[str, Sequence[Any]]], Any]


class Frame:
    """What a source calls of a data frame. Neither pandas nor Polars is installed for the tests."""

    def __init__(self, data: Mapping[Any, Sequence[Any]]) -> None:
        self.columns = list(data)
        self._records = list(zip(*data.values(), strict=True))

    def __len__(self) -> int:
        return len(self._records)

    def __eq__(self, other: object) -> bool:
        raise ValueError("The truth value of a DataFrame is ambiguous.")

    __hash__ = None  # type: ignore[assignment]  # as that of pandas

    def __iter__(self) -> Iterator[Any]:
        return iter(self.columns)


class PandasFrame(Frame):
    def itertuples(self, index: bool = True, name: str | None = "Pandas") -> Iterator[tuple[Any, ...]]:
        assert (index, name) == (False, None)
        return iter(self._records)


class PolarsFrame(Frame):
    def iter_rows(self) -> Iterator[tuple[Any, ...]]:
        return iter(self._records)


of_pandas = type("DataFrame", (PandasFrame,), {"__module__": "pandas.core.frame"})
of_polars = type("DataFrame", (PolarsFrame,), {"__module__": "polars.dataframe.frame"})


def of_arrow(data: Mapping[str, Sequence[Any]]) -> Any:
    return pytest.importorskip("pyarrow").table(data)


@pytest.fixture(params=[of_pandas, of_polars, of_arrow])
def make(request: pytest.FixtureRequest) -> Make:
    """Make a data frame of each library."""
    made: Make = request.param
    return made


def test_rows_of_a_data_frame_are_read_with_their_values(make: Make) -> None:
    moment = datetime(2026, 3, 1, 9, 30)
    source = as_source(make({"phone": ["+1", "+2"], "Name": ["Ada", "Bo"], "n": [1, 2], "at": [moment, moment]}))
    assert columns(source) == ("phone", "Name", "n", "at")
    assert read(source, "name", "phone", "at", "zone") == [
        Row(1, ("Ada", "+1", moment, None)),
        Row(2, ("Bo", "+2", moment, None)),
    ]
    assert read(source, "n") == read(source, "n") == [Row(1, (1,)), Row(2, (2,))]


def test_row_without_content_is_no_row(make: Make) -> None:
    source = as_source(make({"phone": ["+1", None, None], "n": [1.0, float("nan"), 3.0]}))
    assert [row.number for row in read(source, "phone")] == [1, 3]
    assert values(source) == [(), ()]


def test_source_of_a_data_frame_shows_its_size_alone(make: Make) -> None:
    source = as_source(make({"phone": ["+2348031234567"]}))
    assert str(source).endswith("data of 1 rows")
    assert "2348031234567" not in repr(source)


def test_source_of_a_data_frame_can_be_copied_and_compared(make: Make) -> None:
    source = DataFrameSource(make({"phone": ["+1", "+2"]}))
    assert copy.copy(source) == source
    assert source != DataFrameSource(make({"phone": ["+1", "+2"]}))
    assert values(copy.deepcopy(source), "phone") == [("+1",), ("+2",)]


def test_table_of_arrow_may_have_chunks_of_any_size_and_columns_of_one_name() -> None:
    arrow = pytest.importorskip("pyarrow")
    parts = [arrow.table([[part, None], [None, "x"], ["y", "z"]], names=["a", "b", "b"]) for part in range(5)]
    source = as_source(arrow.concat_tables(parts))
    assert [row.number for row in read(source, "a")] == list(range(1, 11))
    with pytest.raises(SourceError, match="Columns 2 and 3 of Arrow data of 10 rows have the same name"):
        read(source, "b")


def test_rows_of_a_table_are_those_of_its_parquet_file(tmp_path: Any) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    table = arrow.table({"a": [None, 2, None], "b": [None, " ", "x"]})
    parquet.write_table(table, tmp_path / "a.parquet")
    assert read(as_source(table), "a", "b") == read(ParquetSource(tmp_path / "a.parquet"), "a", "b")


def test_column_names_that_are_no_texts_are_read_as_texts() -> None:
    assert values(as_source(of_pandas({0: ["+1", "+2"], 1: ["Ada", "Bo"]})), "1", "0") == [("Ada", "+1"), ("Bo", "+2")]


def test_subclass_of_a_data_frame_is_one() -> None:
    frame = type("GeoDataFrame", (of_pandas,), {})({"phone": ["+1"]})
    assert values(as_source(frame), "phone") == [("+1",)]


@pytest.mark.parametrize("value", [5, [1], {"a": 1}, None])
def test_value_that_is_no_data_frame_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="takes a data frame"):
        DataFrameSource(value)


def test_list_source_imports_no_data_frame_library() -> None:
    before = set(sys.modules)
    as_source([{"phone": "+1"}])
    assert not {"pandas", "polars", "pyarrow"} & (set(sys.modules) - before)
