"""Numbers with what they count."""

from __future__ import annotations

import pytest

from cpaas_provider.api.counting import counted


@pytest.mark.parametrize(
    ("number", "words"), [(0, "0 duplicates"), (1, "1 duplicate"), (2, "2 duplicates"), (12_345, "12,345 duplicates")]
)
def test_one_is_one_and_not_ones(number: int, words: str) -> None:
    assert counted(number, "duplicate") == words


def test_another_plural() -> None:
    assert (counted(1, "entry", "entries"), counted(2, "entry", "entries")) == ("1 entry", "2 entries")
