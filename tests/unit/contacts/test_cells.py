"""Typed cells: what each of the eight column types takes, and how it goes on the wire."""

from __future__ import annotations

import datetime as dt
import json
import math
from decimal import Decimal
from typing import Any

import pendulum
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpaas_provider.contacts.cells import encode_cell

GOOD: dict[str, list[tuple[Any, Any]]] = {
    "TEXT": [
        ("Ada", "Ada"),
        ("  spaced  ", "  spaced  "),
        ("", ""),
        (5, "5"),
        (2.5, "2.5"),
        (True, "True"),
        ("null", "null"),
    ],
    "NUMBER": [
        (5, 5),
        (0, 0),
        (-3, -3),
        (2.5, 2.5),
        (3.0, 3),
        ("12", 12),
        (" 1.5 ", 1.5),
        ("1e3", 1000),
        (Decimal("0.1"), 0.1),
    ],
    "DATE": [
        ("2026-01-31", "2026-01-31"),
        (" 2026-01-31 ", "2026-01-31"),
        ("2026-01-31T23:59:59+01:00", "2026-01-31"),
        ("20260131", "2026-01-31"),
        (dt.date(2026, 1, 31), "2026-01-31"),
        (dt.datetime(2026, 1, 31, 23, 59, tzinfo=dt.UTC), "2026-01-31"),
        (pendulum.datetime(2026, 1, 31), "2026-01-31"),
        (pendulum.date(2026, 1, 31), "2026-01-31"),
    ],
    "PHONE NUMBER": [
        ("0803 123 4567", "2348031234567"),
        ("+234 803 123 4567", "2348031234567"),
        (2348031234567, "2348031234567"),
    ],
    "EMAIL": [(" Ada@Example.COM ", "Ada@example.com")],
    "URL": [
        ("https://example.com/a?b=c#d", "https://example.com/a?b=c#d"),
        (" http://localhost:8025 ", "http://localhost:8025"),
    ],
    "SELECT": [("gold", "gold"), (" gold ", "gold")],
    "MULTI SELECT": [
        (["a", "b"], ["a", "b"]),
        (("b", "a"), ["b", "a"]),
        ({"b", "a"}, ["a", "b"]),
        ("a, b", ["a", "b"]),
        ([], []),
        ("a", ["a"]),
    ],
}
BAD: dict[str, list[tuple[Any, str]]] = {
    "TEXT": [(value, "must be text") for value in ({"a": 1}, ["a"], ("a",), {"a"}, b"bytes", math.nan)],
    "NUMBER": [(value, "must be a number") for value in ("many", "", True, [1], {}, "1,5")]
    + [(value, "must be a finite number") for value in (math.nan, math.inf, "-inf", "1e999", Decimal("NaN"))],
    "DATE": [
        (value, "must be a date such as 2026-01-31") for value in ("31.01.2026", "2026-02-30", "", "today", 20260131)
    ],
    "PHONE NUMBER": [
        ("0803", "is not a phone number"),
        ("", "is empty"),
        ("2.348E+12", "lost its last digits"),
        (True, "must be text"),
    ],
    "EMAIL": [("ada", "is not an email address"), ("", "is empty"), (5, "must be text")],
    "URL": [
        (value, "must be a URL such as")
        for value in (
            "example.com",
            "ftp://example.com",
            "https://",
            "https://a b.com",
            "javascript:alert(1)",
            "",
            5,
            "http://[",
        )
    ],
    "SELECT": [(value, "must be one option, as text") for value in ("", "  ", 5, ["a"], True)],
    "MULTI SELECT": [(value, "must be one option, as text") for value in ("a,,b", [""], [1], [["a"]], {1, "a"})]
    + [(value, "must be a list of options") for value in (5, {"a": 1}, True)],
}


def encode(column_type: str, value: Any, **options: Any) -> Any:
    return encode_cell(column_type, value, default_region="NG", **options)


@pytest.mark.parametrize(
    ("column_type", "value", "cell"), [(kind, *pair) for kind, pairs in GOOD.items() for pair in pairs]
)
def test_a_value_that_fits(column_type: str, value: Any, cell: Any) -> None:
    encoded = encode(column_type, value)
    assert (encoded, type(encoded)) == (cell, type(cell))


@pytest.mark.parametrize(
    ("column_type", "value", "reason"), [(kind, *pair) for kind, pairs in BAD.items() for pair in pairs]
)
def test_a_value_that_does_not(column_type: str, value: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        encode(column_type, value)


@pytest.mark.parametrize("column_type", GOOD)
@pytest.mark.parametrize(("empty_cell_value", "cell"), [("null", None), ("empty", "")])
def test_none_clears_a_cell_of_any_type(column_type: str, empty_cell_value: str, cell: str | None) -> None:
    assert encode(column_type, None, empty_cell_value=empty_cell_value) == cell


@pytest.mark.parametrize("column_type", [" multi select ", "Multi Select"])
def test_types_count_without_regard_to_case(column_type: str) -> None:
    assert encode(column_type, "a,b") == ["a", "b"]


@pytest.mark.parametrize("value", ["x", 5, [1], {"a": None}])
def test_a_type_the_contract_does_not_know_takes_any_value_as_it_is(value: Any) -> None:
    assert encode("GEO POINT", value) == value


def test_a_national_number_needs_to_know_the_nation() -> None:
    with pytest.raises(ValueError, match="default_region"):
        encode_cell("PHONE NUMBER", "0803 123 4567")


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.dates() | st.decimals(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@given(st.sampled_from(sorted(GOOD)), ANYTHING)
def test_whatever_is_given_becomes_json_or_is_refused_without_being_quoted(column_type: str, value: Any) -> None:
    try:
        cell = encode(column_type, value)
    except ValueError as error:
        words = str(error)
        assert len(words.splitlines()) == 1
        assert len(words) < 120
    else:
        assert json.loads(json.dumps(cell, allow_nan=False)) == cell


@given(st.sampled_from(sorted(GOOD)), ANYTHING)
def test_what_was_encoded_once_stays_the_same(column_type: str, value: Any) -> None:
    try:
        cell = encode(column_type, value)
    except ValueError:
        return
    if column_type != "PHONE NUMBER" and not (isinstance(cell, list) and any("," in one for one in cell)):
        assert encode(column_type, cell) == cell
