"""When a response to a creation is about another row, by its cells."""

from __future__ import annotations

from typing import Any

import pytest

from cpaas_provider.contacts.mapping.returned import is_other_row

SENT = {
    "key": "k1",
    "name": "Ada Lovelace",
    "points": 2.5,
    "born": "2026-01-31",
    "phone": "2348031234567",
    "tags": ["a", "b"],
}


@pytest.mark.parametrize(
    "returned",
    [
        SENT,
        {},
        dict.fromkeys(SENT),
        {**SENT, "points": "2.50", "born": "2026-01-31T00:00:00.000000+00:00", "phone": "+234 803 123 4567"},
        {**SENT, "tags": "b,a", "name": " ADA  LOVELACE "},
        {**SENT, "name": "changed by the service", "unsent": "x"},
        {"key": "K-1", "name": "A. Lovelace", "points": "1,200.50", "born": "31/01/2026", "phone": "08031234567"},
        {"phone": "08031234567"},
        {"born": "2026-02-01"},
    ],
)
def test_row_that_was_sent_is_no_other_row(returned: dict[str, Any]) -> None:
    assert not is_other_row(returned, SENT, ["key"])


@pytest.mark.parametrize(
    "returned",
    [
        {"key": "k2", "name": "Bola"},
        {"key": "k2", "name": "Bola", "points": 3, "born": "1999-01-01", "phone": "2348099999999", "tags": ["a", "b"]},
        {"name": "Bola", "points": 3, "tags": ["a", "b"]},
    ],
)
def test_row_with_other_cells_is_another_row(returned: dict[str, Any]) -> None:
    assert is_other_row(returned, SENT, ["key"])
