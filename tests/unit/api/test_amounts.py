"""Amounts of money."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpaas_provider.api import amounts

CENTS = st.decimals(min_value=0, max_value=10**9, places=4)


@pytest.mark.parametrize(
    ("amount", "words"),
    [
        (1e6, "1,000,000"), (99_993_400.5, "99,993,400.5"), (12, "12"), (12.0, "12"), (0.1, "0.1"), (0, "0"),
        (1e-7, "0.0000001"), (Decimal("2.50"), "2.5"), (1_234_567.891, "1,234,567.891"), (-1500.25, "-1,500.25"),
        (100, "100"), (None, "not known"),
    ],
)  # fmt: skip
def test_amount_is_shown_exactly_with_thousands_separators(amount: amounts.Amount | None, words: str) -> None:
    assert amounts.format_amount(amount) == words


def test_total_adds_amounts_as_written_and_skips_missing_ones() -> None:
    assert amounts.total([0.1] * 3) == 0.3
    assert amounts.total([0.1, None, 0.2]) == 0.3
    assert amounts.total([None]) is None
    assert amounts.total([]) is None


@given(st.lists(CENTS, min_size=1, max_size=50))
def test_total_of_floats_equals_the_decimal_sum(floats: list[Decimal]) -> None:
    assert amounts.total([float(amount) for amount in floats]) == float(sum(floats))


@given(CENTS, st.integers(1, 1000))
def test_parts_together_are_never_more_than_the_whole(amount: Decimal, of: int) -> None:
    assert amounts.divide(amount, of) * of <= amount


@pytest.mark.parametrize(
    ("number", "words"), [(0, "0 duplicates"), (1, "1 duplicate"), (2, "2 duplicates"), (12_345, "12,345 duplicates")]
)
def test_count_of_one_has_no_plural(number: int, words: str) -> None:
    assert amounts.counted(number, "duplicate") == words


def test_count_uses_an_irregular_plural() -> None:
    assert (amounts.counted(1, "entry", "entries"), amounts.counted(2, "entry", "entries")) == ("1 entry", "2 entries")


@pytest.mark.parametrize(("number", "words"), [(1.0, "1 request"), (2.5, "2.5 requests"), (50.0, "50 requests")])
def test_counted_rate_has_its_noun(number: float, words: str) -> None:
    assert amounts.counted(number, "request") == words
