"""Source rows as contact cells: what a mapping refuses before the first row, and what it makes of each."""

from __future__ import annotations

import copy
import datetime as dt
import unicodedata
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpaas_provider.api.errors import CpaasInvalidRequestError
from cpaas_provider.api.recipients.msisdn import INTERNATIONAL, NumberReader
from cpaas_provider.contacts.mapping.rows import InvalidCell, InvalidRowError, RowMapping
from cpaas_provider.contacts.mapping.rules import ColumnRule, parse_mapping
from tests.unit.contacts.tables import table

LIST = table(
    c1=("Name", "TEXT"),
    c2=("Points", "NUMBER"),
    c3=("Born", "DATE"),
    c4=("Phone", "PHONE NUMBER"),
    c5=("Email", "EMAIL"),
    c6=("Website", "URL"),
    c7=("Plan", "SELECT"),
    c8=("Tags", "Multi Select"),
    c9=("plan", "SELECT"),
)


def bind(
    columns: Any,
    source_columns: Any = ("id", "name", "points", "dob"),
    *,
    key: tuple[str, ...] = ("id",),
    region: str | None = "NG",
    clear: Any = "null",
) -> RowMapping:
    return RowMapping(
        parse_mapping(columns), LIST, source_columns, numbers=NumberReader(region), empty_cell_value=clear, key=key
    )


def refused(*args: Any, **options: Any) -> str:
    with pytest.raises(CpaasInvalidRequestError) as caught:
        bind(*args, **options)
    assert "Nothing was sent." in str(caught.value)
    return str(caught.value)


class TestBind:
    def test_columns_are_known_by_id_in_the_order_given(self) -> None:
        mapping = bind({"points": "points", "NAME": "name", "c3": "dob"})
        assert list(mapping.cells({"points": 1, "name": "Ada", "dob": "2026-01-31"})) == ["c2", "c1", "c3"]
        assert dict(mapping.column_sources) == {"Points": ("points",), "Name": ("name",), "Born": ("dob",)}
        assert mapping.source_columns == ("id", "points", "name", "dob")

    def test_without_columns_those_of_the_same_name_are_written(self) -> None:
        mapping = bind(None, ["id", "name", "POINTS", "c3", "colour"])
        assert list(mapping.cells({"name": "Ada", "POINTS": 1, "c3": "2026-01-31"})) == ["c1", "c2", "c3"]

    @pytest.mark.parametrize(
        ("columns", "source", "words"),
        [
            ({"Colour": "name"}, ["id", "name"], "Colour: is no column of the contact table (it has: Born, Email,"),
            ({"PLAN": "name"}, ["id", "name"], "PLAN: is the name of several columns; give the column's id"),
            ({"Name": "name", "name": "id"}, ["id", "name"], "name: is given twice"),
            ({"Name": "nmae"}, ["id", "name"], "Name: the source has no column 'nmae'"),
            ({"Name": {"template": "{a} {name} {b}"}}, ["id", "name"], "Name: the source has no column 'a', 'b'"),
            ({"Points": {"constant": "many"}}, ["id"], "Points: its constant must be a number"),
            ({"Name": {"source": "name", "decimal": ","}}, ["id", "name"], "decimal cannot be used for a column of"),
            ({"Tags": {"source": "name", "region": "NG"}}, ["id", "name"], "of type MULTI SELECT"),
            ({"Phone": {"source": "name", "region": "XX"}}, ["id", "name"], "Phone: the region of its numbers"),
            (None, ["id", "colour"], "No column of the source has the name of a column of the contact table"),
            (None, ["id", "Name", "NAME"], "NAME: is given twice"),
            (None, ["id", "PLAN"], "PLAN: is the name of several columns"),
            (None, None, "The source does not say which columns it has: give columns"),
        ],
    )
    def test_mapping_that_does_not_fit_the_table_or_the_source_is_refused(
        self, columns: Any, source: Any, words: str
    ) -> None:
        assert words in refused(columns, source)

    @pytest.mark.parametrize(
        ("key", "words"),
        [
            ((), "The key names no source column"),
            (("nr",), "key: the source has no column 'nr'"),
            (("id", "id"), "key: names a column twice"),
        ],
    )
    def test_invalid_key_is_refused(self, key: tuple[str, ...], words: str) -> None:
        assert words in refused(["Name"], ["id", "Name"], key=key)

    def test_all_faults_of_a_mapping_are_named_at_once(self) -> None:
        words = refused({"Colour": "a", "PLAN": "b", "Name": "nmae", "Points": "points"}, key=("nr",))
        assert [name for name in ("key: ", "Colour: ", "PLAN: ", "Name: ") if name not in words] == []
        assert "Points: " not in words

    def test_source_without_known_columns_is_checked_row_by_row(self) -> None:
        mapping = bind({"Name": "name", "Points": {"source": "points", "keep_when_blank": True}}, None)
        with pytest.raises(InvalidRowError) as caught:
            mapping.cells({"id": "1"})
        assert caught.value.cells == (InvalidCell("Name", "the row has no column 'name'"),)
        assert mapping.cells({"name": "Ada"}) == {"c1": "Ada"}


class TestCells:
    def test_every_type_by_its_rule(self) -> None:
        mapping = bind(
            {
                "Name": {"template": "{first} {last}"},
                "Points": {"source": "points", "decimal": ",", "thousands": "."},
                "Born": {"source": "dob", "date_format": "%d.%m.%Y"},
                "Phone": {"source": "tel", "region": "DE"},
                "Email": "mail",
                "Website": {"template": "https://example.com/{id}"},
                "c7": {"constant": "gold"},
                "Tags": {"source": "tags", "separator": "|"},
            },
            None,
        )
        row = {"id": 7, "first": "Ada", "last": " Okafor ", "points": "1.234,50", "dob": "31.01.1990"}
        row |= {"tel": "030 1234567", "mail": "ada@EXAMPLE.com", "tags": "b|a, c|b"}
        assert mapping.cells(row) == {
            "c1": "Ada Okafor",
            "c2": 1234.5,
            "c3": "1990-01-31",
            "c4": "49301234567",
            "c5": "ada@example.com",
            "c6": "https://example.com/7",
            "c7": "gold",
            "c8": ["b", "a, c"],
        }

    @pytest.mark.parametrize(("clear", "cell"), [("null", None), ("empty", "")])
    def test_blank_value_clears_the_cell_or_leaves_it_out(self, clear: str, cell: Any) -> None:
        mapping = bind({"Name": "name", "Points": {"source": "points", "keep_when_blank": True}}, clear=clear)
        assert mapping.cells({"name": " ", "points": None}) == {"c1": cell}
        assert mapping.cells({"name": "Ada", "points": 0}) == {"c1": "Ada", "c2": 0}

    def test_template_is_blank_if_all_its_columns_are(self) -> None:
        mapping = bind({"Website": {"template": "https://example.com/{a}{b}"}}, None)
        assert mapping.cells({"a": None, "b": " "}) == {"c6": None}
        assert mapping.cells({"a": None, "b": 5.0}) == {"c6": "https://example.com/5"}

    def test_constant_list_is_not_shared_between_rows(self) -> None:
        mapping = bind({"Tags": {"constant": ["a", "b"]}})
        mapping.cells({})["c8"].append("c")
        assert mapping.cells({}) == {"c8": ["a", "b"]}

    def test_all_cells_that_do_not_fit_are_named_without_their_values(self) -> None:
        mapping = bind({"Name": "name", "Points": "points", "Born": "dob"})
        with pytest.raises(InvalidRowError) as caught:
            mapping.cells({"name": "secret\0", "points": "secret-1", "dob": "31.01.1990"})
        assert caught.value.cells == (
            InvalidCell("Name", "contains NUL characters"),
            InvalidCell("Points", "must be a number such as 1234.5"),
            InvalidCell("Born", "must be a date such as 2026-01-31"),
        )
        assert str(caught.value).startswith("Name: contains NUL characters; Points: must be")
        assert "secret" not in str(caught.value)


class TestKey:
    @pytest.mark.parametrize(
        "values",
        [
            ("4711", " 4711 ", 4711, 4711.0, Decimal("4711"), Decimal("4711.00"), Decimal("4.711E+3")),
            ("-5", -5, -5.0, Decimal("-5")),
            ("0", 0, 0.0, -0.0, Decimal("-0.00")),
            ("1.5", 1.5, Decimal("1.5"), Decimal("1.500")),
            ("2026-01-31", dt.date(2026, 1, 31)),
            ("Zo\u00eb", "Zoe\u0308", "\ufeffZo\u00eb\u00a0"),
        ],
    )
    def test_key_is_the_same_from_every_kind_of_source(self, values: tuple[Any, ...]) -> None:
        mapping = bind(["Name"], None)
        assert {mapping.key_of({"id": value}) for value in values} == {(values[0],)}

    @pytest.mark.parametrize("values", [("007", 7), ("1.0", 1.0), ("a", "A"), ("1,000", 1000), ("\u0665", 5)])
    def test_texts_that_look_alike_are_two_keys(self, values: tuple[Any, Any]) -> None:
        one, other = (bind(["Name"], None).key_of({"id": value}) for value in values)
        assert one != other

    @given(st.integers(-(2**53) + 1, 2**53 - 1))
    def test_whole_numbers_of_any_type_are_one_key(self, value: int) -> None:
        mapping = bind(["Name"], None)
        forms = (value, str(value), f" {value}\n", float(value), Decimal(value), Decimal(value).scaleb(2).scaleb(-2))
        assert {mapping.key_of({"id": form}) for form in forms} == {(str(value),)}

    @given(st.text(min_size=1, max_size=40))
    def test_reading_a_key_again_does_not_change_it(self, value: str) -> None:
        mapping = bind(["Name"], None)
        try:
            key = mapping.key_of({"id": value})
        except InvalidRowError:
            return
        if key is not None:
            assert mapping.key_of({"id": key[0]}) == key
            assert mapping.key_of({"id": unicodedata.normalize("NFD", value)}) == key

    @pytest.mark.parametrize("value", [None, "", " ", "\u00a0", float("nan"), Decimal("NaN")])
    def test_key_with_a_blank_part_is_none(self, value: Any) -> None:
        mapping = bind(["Name"], None, key=("id", "country"))
        assert mapping.key_of({"id": "7", "country": value}) is None
        assert mapping.key_of({"id": value, "country": "NG"}) is None
        assert mapping.key_of({"id": "7"}) is None
        assert mapping.key_of({"id": "7", "country": "NG"}) == ("7", "NG")

    @pytest.mark.parametrize(
        ("value", "reason"),
        [
            (True, "must be text, a number or a date to be a key"),
            (["7"], "must be text, a number or a date to be a key"),
            (b"7", "must be text, a number or a date to be a key"),
            (1e17, "which may have lost digits"),
            (float("inf"), "which may have lost digits"),
            ("7" * 513, "too long for a key"),
            (10**5_000, "too long for a key"),
            (Decimal("1E+999999999"), "too long for a key"),
            ("a\0b", "contains NUL"),
            ("a\nb", "contains control characters"),
            ("a\ud83d", "half a character"),
        ],
        ids=range(11),
    )
    def test_what_cannot_be_a_key_is_refused(self, value: Any, reason: str) -> None:
        with pytest.raises(InvalidRowError, match=reason) as caught:
            bind(["Name"], None).key_of({"id": value})
        assert [cell.column for cell in caught.value.cells] == ["id"]


class TestRawValues:
    mapping = bind({"Name": {"template": "{name} {points}"}, "Points": "points", "c7": {"constant": "x"}})

    def raw(self, value: Any) -> str:
        return repr(self.mapping.raw_values({"name": value, "points": 1}))

    def test_raw_values_hold_each_source_column_once_without_the_key(self) -> None:
        assert self.mapping.raw_values({"id": 7, "name": "Ada", "points": "5", "other": "x"}) == ("Ada", "5")

    def test_values_of_different_types_differ(self) -> None:
        values = [1, True, "1", 1.0, Decimal(1), Decimal("1.0"), None, "None", [1], ["1"], b"1", (), {}, {"1": 1}]
        values += [dt.date(2026, 1, 31), dt.datetime(2026, 1, 31), "2026-01-31", "('date', '2026-01-31')"]
        assert len({self.raw(value) for value in values}) == len(values)

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            ({"b", "a", "c"}, {"c", "a", "b"}),
            ({"a": 1, "b": [2]}, {"b": [2], "a": 1}),
            ([dt.date(2026, 1, 31)], (dt.date(2026, 1, 31),)),
            (float("nan"), float("nan")),
        ],
    )
    def test_equal_values_have_the_same_raw_form(self, one: Any, other: Any) -> None:
        assert self.raw(one) == self.raw(other)

    def test_missing_column_differs_from_none(self) -> None:
        assert repr(self.mapping.raw_values({"points": 1})) != self.raw(None)

    def test_raw_form_of_a_value_nested_without_end_is_cut(self) -> None:
        deep: list[Any] = []
        deep.append(deep)
        assert self.raw(deep).count("'list'") == 21

    def test_mapping_of_constants_has_no_raw_values(self) -> None:
        assert bind({"Name": {"constant": "x"}}).raw_values({"name": "Ada"}) == ()


class TestSignatures:
    def test_changed_type_is_named_with_both_types(self) -> None:
        old = bind({"Name": "name", "Points": "points"}).type_signature
        now = table(c1=("Full name", "EMAIL"), c2=("Points", " number "), c3=("Born", "DATE"))
        mapping = RowMapping(
            parse_mapping({"c1": "name", "c2": "points", "c3": "dob"}),
            now,
            None,
            numbers=INTERNATIONAL,
            empty_cell_value="null",
            key=("id",),
        )
        assert mapping.changed_types(old) == ["Full name was TEXT and is now EMAIL"]
        assert mapping.changed_types(mapping.type_signature) == []

    def test_order_of_columns_does_not_change_the_signatures(self) -> None:
        one, other = bind({"Name": "name", "Points": "points"}), bind({"Points": "points", "Name": "name"})
        assert one.type_signature == other.type_signature
        assert one.rules_signature == other.rules_signature

    @pytest.mark.parametrize("old", ["", "null", "[1]", "{}x"])
    def test_invalid_signature_is_refused(self, old: str) -> None:
        with pytest.raises(ValueError, match="cannot be read"):
            bind({"Name": "name"}).changed_types(old)

    def test_rules_signature_changes_with_each_rule_that_changes_cells(self) -> None:
        born = {"Born": ColumnRule(source="dob")}
        signatures = [
            bind(born),
            bind({"Born": ColumnRule(source="dob", date_format="%d.%m.%Y")}),
            bind({"Born": ColumnRule(source="points")}),
            bind(born, region="DE"),
            bind(born, clear="empty"),
            bind({"Born": ColumnRule(constant="2026-01-31")}),
        ]
        assert len({mapping.rules_signature for mapping in signatures}) == len(signatures)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.dates() | st.datetimes()
    | st.decimals() | st.fractions() | st.timedeltas() | st.complex_numbers() | st.uuids() | st.times(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(), inner, max_size=2),
    max_leaves=3,
)  # fmt: skip
EVERY = bind(
    {
        **{name: name for name in ("Points", "Born", "Phone", "Email", "Website", "Tags")},
        "Name": {"template": "{Points} {Born}"},
        "c7": "Name",
    },
    None,
)


@given(st.fixed_dictionaries(dict.fromkeys(EVERY.source_columns, ANYTHING)))
def test_any_row_is_read_or_refused(row: dict[str, Any]) -> None:
    refused: set[str] = set()
    for read in (EVERY.key_of, EVERY.cells):
        try:
            found = read(row)
        except InvalidRowError as error:
            refused.update(cell.column for cell in error.cells)
        else:
            assert found is None or len(found) in (len(EVERY.column_sources), 1)
    assert refused <= {"id", *EVERY.column_sources}
    assert repr(EVERY.raw_values(row)) == repr(EVERY.raw_values(copy.deepcopy(row)))
