"""The results file of a bulk lookup as a source: only numbers that were found, and of them only those asked for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cpaas_provider.sources import PhoneLookupSource, as_source
from cpaas_provider.sources.phone_lookups import LOOKUP_COLUMNS

FOUND = dict.fromkeys(LOOKUP_COLUMNS) | {"outcome": "found", "operator": "MTN", "country": "NG", "dnd": False}
LINES = [
    {**FOUND, "row": 1, "phone": "+1", "name": "Ada"},
    {**FOUND, "row": 2, "phone": "+2", "name": "Obi", "dnd": True},
    {**FOUND, "row": 3, "phone": "+3", "name": "Uma", "dnd": None},
    {**FOUND, "row": 4, "phone": "+4", "name": "Eze", "country": "GH", "operator": "Vodafone"},
    {**FOUND, "row": 5, "phone": "+5", "name": "Ife", "country": None, "operator": None},
    {**FOUND, "row": 6, "phone": "+6", "name": "Ngo", "outcome": "lookup_failed"},
    {**FOUND, "row": 7, "phone": None, "name": None, "outcome": "invalid_row"},
]


@pytest.fixture
def results(tmp_path: Path) -> Path:
    file = tmp_path / "lookups.jsonl"
    file.write_text("".join(f"{json.dumps(line)}\n" for line in LINES))
    return file


@pytest.mark.parametrize(
    ("given", "phones"),
    [
        ({}, "145"),
        ({"dnd": True}, "2"),
        ({"dnd": None}, "12345"),
        ({"countries": ["NG"]}, "1"),
        ({"countries": ["NG", "GH"]}, "14"),
        ({"operators": {"Vodafone"}}, "4"),
        ({"countries": [], "dnd": None}, ""),
    ],
)
def test_filters_select_the_rows(results: Path, given: dict[str, Any], phones: str) -> None:
    with PhoneLookupSource(results, **given).open() as table:
        rows = list(table.rows(["phone", "name"]))
    assert [row.values[0] for row in rows] == [f"+{one}" for one in phones]
    assert all(len(row.values) == 2 for row in rows)


def test_phone_lookup_source_can_be_read_twice_and_has_a_description(results: Path) -> None:
    source = as_source(PhoneLookupSource(str(results)))
    for _ in range(2):
        with source.open() as table:
            assert len(list(table.rows(["phone"]))) == 3
    assert str(source) == f"phone lookups in {results}"
    assert str(PhoneLookupSource("{{ params.lookups }}")) == "phone lookups in {{ params.lookups }}"


@pytest.mark.parametrize("given", [{"countries": "NG"}, {"operators": "MTN"}, {"dnd": "no"}, {"results_path": None}])
def test_invalid_argument_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(given))} must be"):
        PhoneLookupSource(**{"results_path": "lookups.jsonl", **given})
