"""Rows that are already there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from airflow.sdk import task

from cpaas_provider.sources import ListSource
from cpaas_provider.sources.base import InvalidRow, Row
from tests.unit.sources.reading import columns, read, values


def test_mappings_give_requested_values() -> None:
    source = ListSource([{"phone": "1", "name": "Ada"}, {"name": "Bo"}])
    assert read(source, "name", "phone") == [Row(1, ("Ada", "1")), Row(2, ("Bo", None))]
    assert columns(source) is None


def test_bare_value_fills_the_first_column() -> None:
    assert values(ListSource(["+1", 2348030000000, 5.0]), "phone", "name") == [
        ("+1", None),
        (2348030000000, None),
        (5.0, None),
    ]
    assert values(ListSource(["+1"])) == [()]


def test_item_that_is_neither_mapping_nor_value_is_invalid() -> None:
    found = read(ListSource([["+1"], None, True, "+2"]), "phone")
    assert [type(row) for row in found] == [InvalidRow, InvalidRow, InvalidRow, Row]
    assert [row.number for row in found] == [1, 2, 3, 4]
    assert found[0] == InvalidRow(1, "is of type list, not a mapping, a number or a text")


def test_source_can_be_read_twice() -> None:
    source = ListSource(("+1", "+2"))
    assert read(source, "phone") == read(source, "phone")


def test_length_of_a_lazy_sequence_is_not_requested() -> None:
    class Lazy(Sequence[Any]):
        def __len__(self) -> int:
            raise AssertionError("asks a server")

        def __getitem__(self, index: Any) -> Any:
            return ["+1", "+2"][index]

    source = ListSource(Lazy())
    assert values(source, "phone") == [("+1",), ("+2",)]
    assert str(source) == "list of items"


def test_generator_is_refused() -> None:
    def once() -> Iterator[str]:
        yield "+1"

    with pytest.raises(ValueError, match="more than once"):
        ListSource(once())


@pytest.mark.parametrize("value", ["+1,+2", b"+1", {"phone": "+1"}, 5, None])
def test_value_that_is_no_list_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="takes a list of rows") as refused:
        ListSource(value)
    assert "+1" not in str(refused.value)


def test_task_output_is_refused_with_advice() -> None:
    @task
    def upstream() -> list[str]:
        return []

    with pytest.raises(ValueError, match="to the operator itself"):
        ListSource(upstream())
