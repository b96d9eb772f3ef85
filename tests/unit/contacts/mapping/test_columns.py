"""Column names for people: found without regard to case where that is unambiguous, and by id where no name fits."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpaas_provider.api.errors import CpaasInvalidRequestError
from cpaas_provider.contacts.mapping.columns import ContactColumns
from tests.unit.contacts.tables import table

COLUMNS = ContactColumns(
    table(
        c1=("Name", "TEXT"),
        c2=("Points", "NUMBER"),
        c3=("Plan", "SELECT"),
        c4=("plan", "SELECT"),
        c5=("Twice", "TEXT"),
        c6=("Twice", "TEXT"),
        c7=("ÉTÉ", "TEXT"),
        c8=("c1", "TEXT"),
    )
)


def refused(cells: Any) -> str:
    with pytest.raises(CpaasInvalidRequestError) as caught:
        COLUMNS.encode(cells)
    assert "Nothing was sent." in str(caught.value)
    return str(caught.value)


class TestEncode:
    @pytest.mark.parametrize(
        ("name", "column"),
        [
            ("Name", "c1"),
            ("name", "c1"),
            ("  NAME ", "c1"),
            ("été", "c7"),
            ("Plan", "c3"),
            ("plan", "c4"),
            ("c2", "c2"),
            ("c5", "c5"),
            ("c1", "c8"),
        ],
    )
    def test_column_is_found_by_name_or_id(self, name: str, column: str) -> None:
        value = 5 if column == "c2" else "x"
        assert COLUMNS.encode({name: value}) == {column: value}

    @pytest.mark.parametrize(
        ("name", "reason"),
        [
            ("Twice", "Twice: is the name of several columns; give the column's id"),
            ("PLAN", "PLAN: is the name of several columns; give the column's id"),
            ("Colour", "Colour: is no column of the contact table (it has: Name, Plan, Points, Twice, c1, plan, ÉTÉ)"),
        ],
    )
    def test_missing_column_is_an_error_that_lists_the_columns(self, name: str, reason: str) -> None:
        assert reason in refused({name: "x"})

    def test_error_names_all_faults_and_no_value(self) -> None:
        words = refused({"Colour": "secret-1", "Points": "secret-2", "Twice": "secret-3", "Name": "fine"})
        assert [name for name in ("Colour: ", "Points: ", "Twice: ") if name not in words] == []
        assert "secret" not in words
        assert "Name: " not in words

    def test_one_column_under_two_names_is_a_fault(self) -> None:
        assert "NAME: is given twice" in refused({"Name": "Ada", "NAME": "Bola"})

    @pytest.mark.parametrize("cells", [{}, None, "Name", [("Name", "Ada")], 5])
    def test_no_cells_at_all_is_a_fault(self, cells: Any) -> None:
        assert "cells" in refused(cells)

    def test_error_of_an_empty_table_names_that(self) -> None:
        with pytest.raises(CpaasInvalidRequestError, match="it has: none"):
            ContactColumns(table()).encode({"Name": "Ada"})

    @pytest.mark.parametrize(("empty_cell_value", "cell"), [("null", None), ("empty", "")])
    def test_none_clears_either_way(self, empty_cell_value: Any, cell: str | None) -> None:
        assert COLUMNS.encode({"Points": None}, empty_cell_value=empty_cell_value) == {"c2": cell}


class TestDecode:
    def test_cells_go_by_name_and_those_left_out_are_none(self) -> None:
        assert COLUMNS.decode({"c1": "Ada"})["Name"] == "Ada"
        assert COLUMNS.decode({"c1": "Ada"})["Points"] is None

    def test_column_with_a_shared_name_is_decoded_under_its_id(self) -> None:
        decoded = COLUMNS.decode({"c5": "one", "c6": "two"})
        assert (decoded["c5"], decoded["c6"]) == ("one", "two")
        assert "Twice" not in decoded

    def test_cell_of_an_unknown_column_is_decoded_under_its_id(self) -> None:
        assert COLUMNS.decode({"c99": "new"})["c99"] == "new"


VISIBLE = st.text(st.characters(exclude_categories=("C", "Z")), min_size=1)


@given(st.dictionaries(st.sampled_from(["Name", "ÉTÉ", "Plan", "plan"]), VISIBLE))
def test_decoded_cells_are_those_that_were_encoded(cells: dict[str, str]) -> None:
    if cells:
        cells = {name: value.strip() for name, value in cells.items()}
        decoded = COLUMNS.decode(COLUMNS.encode(cells))
        assert {name: value for name, value in decoded.items() if value is not None} == cells
