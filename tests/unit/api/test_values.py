"""Values of cells and arguments: the text that a recipient reads, or that there is none."""

from __future__ import annotations

import enum
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpaas_provider.api.values import no_value_reason, plain_texts, readable_text


class Size(enum.Enum):
    SMALL = "small"
    NONE = None


class Grade(enum.IntEnum):
    FIRST = 1


# As pandas has them: NaT is a datetime, too.
NA_TYPE = type("NAType", (), {})
NAT_TYPE = type("NaTType", (datetime,), {})


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        ("  Ada ", "Ada"),
        ("\u200bAda\ufeff", "Ada"),
        ("Null", "Null"),
        ("Nan", "Nan"),
        (5.0, "5"),
        (5.5, "5.5"),
        (0, "0"),
        (0.0, "0"),
        (False, "False"),
        (1e16, "10000000000000000"),
        (date(2026, 3, 1), "2026-03-01"),
        (datetime(2026, 3, 1, 9, 30, 15, tzinfo=UTC), "2026-03-01 09:30+00:00"),
        (time(9, 30), "09:30:00"),
        (timedelta(days=2), "2 days, 0:00:00"),
        (Decimal("2.50"), "2.50"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (Size.SMALL, "small"),
        (Grade.FIRST, "1"),
    ],
)
def test_value_is_written_as_recipients_read_it(cell: Any, text: str) -> None:
    assert readable_text(cell) == text


@pytest.mark.parametrize(
    "cell",
    [
        None, "", "  ", "\u200b", "\xa0", float("nan"), Decimal("NaN"), Decimal("sNaN"), float("inf"),
        NA_TYPE(), NAT_TYPE(2026, 1, 1),
        Size.NONE, "None", "nan", "NaN", "NaT", "<NA>", "null", "NULL", " None ",
        b"Ada", bytearray(b"Ada"), memoryview(b"Ada"), ["Ada", "B"], [], ("Ada",), {"first": "Ada"}, {}, {"Ada"},
        frozenset(), object(), lambda: "Ada",
    ],
)  # fmt: skip
def test_cell_that_recipients_cannot_read_has_no_text(cell: Any) -> None:
    assert readable_text(cell) is None


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "is None"), ("", "is empty"), (" \n", "is empty"), ("\u200b", "is empty"), (float("nan"), "is empty"),
        ("None", "is the word 'None'"), (" none ", "is the word 'none'"), ("NULL", "is the word 'NULL'"),
        ("nan", "is the word 'nan'"), ("NaT", "is the word 'NaT'"), ("\u200bNone\ufeff", "is the word 'None'"),
    ],
)  # fmt: skip
def test_argument_without_a_value_has_a_reason(value: Any, reason: str) -> None:
    assert str(no_value_reason(value)).startswith(reason)


@pytest.mark.parametrize("value", ["Ada", "None of them", 0, False, [], {}, 5.5, "0", "Nat", "NAT", "Nan", "Null"])
def test_argument_with_a_value_has_none(value: Any) -> None:
    assert no_value_reason(value) is None


CELLS = st.text(max_size=4) | st.sampled_from(["nan", " NULL ", "None", b"Ada", 7, None, Grade.FIRST, 1.5, ["Ada"]])


@given(cells=st.lists(st.sampled_from(["Ada", " 7 points"]) | CELLS, max_size=4))
def test_texts_that_are_read_at_once_are_those_that_are_read_one_by_one(cells: list[Any]) -> None:
    texts = plain_texts(cells)
    one_by_one = [readable_text(cell) for cell in cells]
    assert texts in (None, one_by_one)
    if texts is None:
        pairs = zip(cells, one_by_one, strict=True)
        assert not all(type(cell) is str and text and text.isascii() for cell, text in pairs)
