"""How a DAG author says what fills a column: short forms, fields and their bounds, templates."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cpaas_provider.contacts.mapping.rules import CellTemplate, ColumnRule, parse_mapping


def refused(columns: Any) -> str:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - its words are what the tests look at
        parse_mapping(columns)
    return str(caught.value)


class TestParseMapping:
    def test_none_leaves_it_to_the_source(self) -> None:
        assert parse_mapping(None) == {}

    def test_names_alone_are_the_source_columns(self) -> None:
        assert parse_mapping(["Name", "Points"]) == {
            "Name": ColumnRule(source="Name"),
            "Points": ColumnRule(source="Points"),
        }

    def test_mapping_accepts_names_rules_and_fields(self) -> None:
        rule = ColumnRule(template="{first} {last}")
        given = {"Phone": "msisdn", "Name": rule, "Born": {"source": "dob", "date_format": "%d.%m.%Y"}}
        assert parse_mapping(given) == {
            "Phone": ColumnRule(source="msisdn"),
            "Name": rule,
            "Born": ColumnRule(source="dob", date_format="%d.%m.%Y"),
        }

    @pytest.mark.parametrize("given", [{"decimal": ","}, {}, ColumnRule(decimal=",")])
    def test_without_a_source_the_column_of_the_same_name_is_read(self, given: Any) -> None:
        assert parse_mapping({"Points": given})["Points"].source == "Points"

    @pytest.mark.parametrize(
        ("columns", "words"),
        [
            ([], "columns must not be empty"),
            ({}, "columns must not be empty"),
            ("Name", "columns must be a list of column names"),
            (5, "columns must be a list of column names"),
            (["Name", "Name"], "Name: is given twice"),
            (["Name", 5], "5: a column's name must be text"),
            ([" "], "a column's name must be text"),
            ({"Name": 5}, "Name: must be a source column's name, a ColumnRule or a mapping of its fields"),
            ({"Name": ""}, "Name: source must be text"),
            ({"Name": {"sauce": "name"}}, "Name: sauce: no such field (there are: source, constant,"),
            ({"Name": {"source": "a", "constant": 5}}, "Name: source and constant exclude each other"),
            ({"Name": {"constant": " "}}, "Name: constant must not be blank"),
            ({"Name": {"constant": {"a": 1}}}, "Name: constant must be text, a number or a list of texts"),
            ({"Name": {"constant": []}}, "Name: constant must be text, a number or a list of texts"),
            ({"Born": {"date_format": "%d.%m.%y"}}, "Born: date_format must not use %y, which guesses the century"),
            ({"Born": {"date_format": "%d.%m"}}, "Born: date_format must name year, month and day once each"),
            ({"Born": {"date_format": "%d.%m.%Y %m"}}, "Born: date_format must name year, month and day once each"),
            ({"Born": {"date_format": "%m %b %d %Y"}}, "Born: date_format must name year, month and day once each"),
            ({"Born": {"date_format": "%x"}}, "Born: date_format must use none but %Y %m %d"),
            ({"Born": {"date_format": "%d.%m.%Y%"}}, "Born: date_format must use none but %Y %m %d"),
            ({"Born": {"excel_serial": "yes"}}, "Born: excel_serial must be true or false"),
            ({"Points": {"decimal": ";"}}, "Points: decimal must be '.' or ','"),
            ({"Points": {"decimal": None}}, "Points: decimal must be '.' or ','"),
            ({"Points": {"thousands": "0"}}, "Points: thousands must be"),
            ({"Points": {"thousands": "."}}, "Points: thousands and decimal must differ"),
            ({"Phone": {"region": "Nigeria"}}, "Phone: region must be two letters"),
            ({"Tags": {"separator": ""}}, "Tags: separator must be 1 to 10 characters"),
            ({"Tags": {"separator": "and"}}, "Tags: separator must be 1 to 10 characters that are no letters"),
            ({"Name": {"keep_when_blank": 1}}, "Name: keep_when_blank must be true or false"),
        ],
    )
    def test_what_is_wrong_is_named_by_column_and_field(self, columns: Any, words: str) -> None:
        assert words in refused(columns)

    def test_all_faults_are_named_at_once(self) -> None:
        words = refused({"A": 5, "B": {"decimal": "x"}, "C": "fine"})
        assert ("A: " in words, "B: " in words, "C: " in words) == (True, True, False)


@pytest.mark.parametrize(
    "rule",
    [
        ColumnRule(source="a"),
        ColumnRule(constant=["a", "b"], keep_when_blank=True),
        ColumnRule(template="{a}{{", separator="; "),
        ColumnRule(source="a", date_format="%Y-%d-%m", excel_serial=True),
        ColumnRule(source="a", decimal=",", thousands=".", region="NG"),
    ],
)
def test_rule_is_restored_from_json(rule: ColumnRule) -> None:
    assert ColumnRule.from_dict(json.loads(json.dumps(rule.as_dict()))) == rule


class TestTemplate:
    @pytest.mark.parametrize(
        ("template", "text"),
        [
            ("{first} {last}", "Ada Okafor"),
            (" {first}-{first} ", "Ada-Ada"),
            ("{{{first}}}", "{Ada}"),
            ("https://example.com/{id}?x=%s", "https://example.com/7?x=%s"),
            ("{evil}", "{first} {0} {__class__}"),
            ("{with blank}", "yes"),
            ("{__class__}", "a column's name like any other"),
        ],
    )
    def test_fields_are_filled_by_name(self, template: str, text: str) -> None:
        row = {
            "first": "Ada",
            "last": "Okafor",
            "id": 7,
            "evil": "{first} {0} {__class__}",
            "with blank": "yes",
            "__class__": "a column's name like any other",
        }
        assert CellTemplate(template).fill(row, str) == text

    @pytest.mark.parametrize(
        ("template", "reason"),
        [
            ("{a.b}", "must name source columns only"),
            ("{a.__class__.__mro__}", "must name source columns only"),
            ("{a[0]}", "must name source columns only"),
            ("{a[__globals__]}", "must name source columns only"),
            ("{a!r}", "must not use conversions or formats"),
            ("{a:>10}", "must not use conversions or formats"),
            ("{a:{b}}", "must not use conversions or formats"),
            ("{a:1000000000}", "must not use conversions or formats"),
            ("{}", "has a field without a name"),
            ("{ }", "has a field without a name"),
            ("plain", "names no source column"),
            ("{{a}}", "names no source column"),
            ("{a", "has a brace without its counterpart"),
            ("a}", "has a brace without its counterpart"),
            ("{a}}", "has a brace without its counterpart"),
        ],
    )
    def test_template_field_that_is_not_a_plain_name_is_refused(self, template: str, reason: str) -> None:
        with pytest.raises(ValueError, match=reason):
            CellTemplate(template)
        assert f"Name: template {reason}" in refused({"Name": {"template": template}})

    def test_missing_column_of_a_template_is_an_error(self) -> None:
        with pytest.raises(KeyError):
            CellTemplate("{0}").fill({"a": "b"}, str)
