"""What is missing is missing, whatever library it comes from."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from cpaas_provider._common.values import is_blank, plain
from cpaas_provider.api.values import readable_text
from cpaas_provider.contacts.mapping.keys import key_text


class Name(str):
    """A text of a library, which is a subclass."""


def from_arrow() -> list[Any]:
    arrow = pytest.importorskip("pyarrow")
    types = [arrow.string(), arrow.int64(), arrow.float64(), arrow.timestamp("us"), arrow.list_(arrow.string())]
    return [arrow.NA, *(arrow.scalar(None, type=kind) for kind in types), arrow.scalar(float("nan")), arrow.scalar(" ")]


def from_numpy() -> list[Any]:
    numpy = pytest.importorskip("numpy")
    return [
        *(kind("nan") for kind in (numpy.float16, numpy.float32, numpy.float64, numpy.longdouble)),
        *(numpy.datetime64("NaT"), numpy.datetime64("NaT", "ns"), numpy.timedelta64("NaT"), numpy.str_(" ")),
        *(numpy.array(float("nan")), numpy.ma.masked),
    ]


def from_pandas() -> list[Any]:
    pandas = pytest.importorskip("pandas")
    return [pandas.NA, pandas.NaT, *pandas.Series([None, 1]), *pandas.Series([None], dtype="Int64")][:3]


def from_polars() -> list[Any]:
    polars = pytest.importorskip("polars")
    return [*polars.Series([None, float("nan")]), *polars.Series([None], dtype=polars.Date)]


def from_python() -> list[Any]:
    return [None, "", " \t", "\u200b\xa0", float("nan"), Decimal("NaN"), Decimal("sNaN"), Name(" ")]


LIBRARIES = [from_python, from_arrow, from_numpy, from_pandas, from_polars]


@pytest.mark.parametrize("library", LIBRARIES)
def test_missing_value_of_a_library_is_blank_everywhere(library: Any) -> None:
    for value in library():
        assert is_blank(value), repr(value)
        assert readable_text(value) is None
        assert key_text(value) is None


def test_values_of_libraries_are_what_they_hold() -> None:
    arrow = pytest.importorskip("pyarrow")
    assert [plain(arrow.scalar(value)) for value in (5, "Ada", 2.5)] == [5, "Ada", 2.5]
    assert readable_text(arrow.scalar("Ada")) == "Ada"


@pytest.mark.parametrize("value", ["x", "nan", "None", 0, 0.0, False, Decimal(0), [], {}, b"", Name("x")])
def test_value_is_not_blank(value: Any) -> None:
    assert not is_blank(value)
