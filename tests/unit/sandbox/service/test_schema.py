"""The reader of schemas agrees with JSON Schema itself, and its document is a valid one."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from cpaas_provider.sandbox.core.errors import FieldError
from cpaas_provider.sandbox.service import cells, requests
from cpaas_provider.sandbox.service.cells import COLUMN_TYPES, Column
from cpaas_provider.sandbox.service.handlers.text import measure, renderer
from cpaas_provider.sandbox.service.schema import Schema, compile_schema

SCHEMAS: dict[str, Schema] = {
    "buy_airtime": requests.BUY_AIRTIME,
    "request_otp": requests.REQUEST_OTP,
    "verify_otp": requests.VERIFY_OTP,
    "lookup_phone": requests.LOOKUP_PHONE,
    "send_sms": requests.send_sms(["t"]),
    "send_email": requests.send_email(["t"]),
    "send_sms without templates": requests.send_sms([]),
    "rows": requests.row_columns(
        {type_: cells.cell_schema(Column(type_, type_, type_), "number") for type_ in COLUMN_TYPES}
    ),
    "rows with options": requests.row_columns(
        {"a": cells.cell_schema(Column("a", "A", "MULTI SELECT", ("x", "y")), "number_or_string")}
    ),
}

NUMBERS = ["2348030000001", "2348030000001\n", "2348030000001,2348030000002", "12", "-3.5", "1234"]
PLACES = ["http://a.b/", "http://[::1]:1/x", "ftp://a", "a@b.co", "a@b.co,c@d.ef"]
WORDS = ["", "x", "y", "t", "MTN", "sms", "Acme", "2024-02-29", "2023-02-30"]
TEXTS = st.sampled_from([*NUMBERS, *PLACES, *WORDS])
LEAVES = st.none() | st.booleans() | st.integers(-5, 100) | st.floats(0, 100) | TEXTS
VALUES = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3))


def names_in(schema: Any) -> set[str]:
    if isinstance(schema, list):
        return set().union(*map(names_in, schema))
    if not isinstance(schema, dict):
        return set()
    return set(schema.get("properties", {})).union(*map(names_in, schema.values()))


def accepts(schema: Schema, value: Any) -> bool:
    errors: list[FieldError] = []
    compile_schema(schema)(value, "", errors)
    return not errors


@pytest.mark.parametrize("name", SCHEMAS)
@given(data=st.data())
def test_it_accepts_what_json_schema_accepts(name: str, data: st.DataObject) -> None:
    schema = SCHEMAS[name]
    Draft202012Validator.check_schema(schema)
    keys = st.sampled_from(sorted(names_in(schema) | {"other"}))
    bodies = st.dictionaries(keys, VALUES | st.dictionaries(keys, VALUES, max_size=3), max_size=8)
    body = data.draw(bodies | VALUES)
    reference = Draft202012Validator(schema, format_checker=Draft202012Validator.FORMAT_CHECKER)
    # Python's "$" lets a final newline pass, ECMA's does not: the reader goes with the latter
    if not re.search(r"\\n", repr(body)):
        assert accepts(schema, body) == reference.is_valid(body)


def test_a_final_newline_is_no_part_of_a_number() -> None:
    assert accepts(requests.LOOKUP_PHONE, {"phone": "2348030000001"})
    assert not accepts(requests.LOOKUP_PHONE, {"phone": "2348030000001\n"})


@given(st.text(max_size=400))
def test_a_measure_adds_up(text: str) -> None:
    size = measure(text)
    assert size.pages >= 1
    assert (size.pages == 1) is (size.length <= (160 if size.encoding == "GSM-7" else 70))
    assert size.length >= len(text)


@given(st.text(max_size=80), st.dictionaries(st.text(min_size=1, max_size=8), st.text(max_size=8), max_size=3))
@pytest.mark.parametrize("placeholder", ["{name}", "{{name}}", "%name%", "<name>", "[[name]]"])
def test_text_without_placeholders_is_left_alone(placeholder: str, text: str, words: dict[str, str]) -> None:
    plain = text.translate(dict.fromkeys(map(ord, "{}%<>[]")))
    assert renderer(plain, placeholder)(words) == plain
    marked = placeholder.replace("name", "who")
    assert renderer(f"{plain}{marked}{plain}", placeholder)({"who": "Ada {who}"}) == f"{plain}Ada {{who}}{plain}"
    assert renderer(f"{plain}{marked}", placeholder)({}) == f"{plain}{marked}"
