"""Rows that are already there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from airflow.sdk import task

from cpaas_provider.sources import ListSource
from cpaas_provider.sources.base import InvalidRow, Row
from tests.unit.sources.reading import columns, read, values


def test_mappings_give_what_is_asked_for() -> None:
    source = ListSource([{"phone": "1", "name": "Ada"}, {"name": "Bo"}])
    assert read(source, "name", "phone") == [Row(1, ("Ada", "1")), Row(2, ("Bo", None))]
    assert columns(source) is None


def test_a_bare_value_stands_in_the_first_column() -> None:
    assert values(ListSource(["+1", 2348030000000, 5.0]), "phone", "name") == [
        ("+1", None),
        (2348030000000, None),
        (5.0, None),
    ]
    assert values(ListSource(["+1"])) == [()]


def test_what_is_neither_is_set_aside() -> None:
    found = read(ListSource([["+1"], None, True, "+2"]), "phone")
    assert [type(row) for row in found] == [InvalidRow, InvalidRow, InvalidRow, Row]
    assert [row.number for row in found] == [1, 2, 3, 4]
    assert found[0] == InvalidRow(1, "is of type list, not a mapping, a number or a text")


def test_it_is_read_as_often_as_wanted() -> None:
    source = ListSource(("+1", "+2"))
    assert read(source, "phone") == read(source, "phone")


def test_a_sequence_that_is_fetched_piece_by_piece_is_not_asked_for_its_length() -> None:
    class Lazy(Sequence[Any]):
        def __len__(self) -> int:
            raise AssertionError("asks a server")

        def __getitem__(self, index: Any) -> Any:
            return ["+1", "+2"][index]

    source = ListSource(Lazy())
    assert values(source, "phone") == [("+1",), ("+2",)]
    assert str(source) == "list of items"


def test_what_can_be_read_only_once_is_refused() -> None:
    def once() -> Iterator[str]:
        yield "+1"

    with pytest.raises(ValueError, match="more than once"):
        ListSource(once())


@pytest.mark.parametrize("value", ["+1,+2", b"+1", {"phone": "+1"}, 5, None])
def test_what_is_no_list_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="takes a list of rows") as refused:
        ListSource(value)
    assert "+1" not in str(refused.value)


def test_a_task_s_output_is_refused() -> None:
    @task
    def upstream() -> list[str]:
        return []

    with pytest.raises(ValueError, match="to the operator itself"):
        ListSource(upstream())
