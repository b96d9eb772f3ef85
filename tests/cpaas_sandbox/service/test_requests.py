"""What a request's type accepts is what its JSON Schema describes."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from pydantic import TypeAdapter, ValidationError

from cpaas_sandbox.core.context import Column
from cpaas_sandbox.service import requests
from cpaas_sandbox.service.handlers.text import measure, renderer
from cpaas_sandbox.service.requests import COLUMN_TYPES, Schema

TYPES: dict[str, Any] = {
    "buy_airtime": requests.BuyAirtime,
    "request_otp": requests.RequestOtp,
    "verify_otp": requests.VerifyOtp,
    "lookup_phone": requests.LookupPhone,
    "send_sms": requests.SendSms,
    "send_email": requests.SendEmail,
    "send_sms without templates": requests.SendSms,
    "rows": requests.row_body([Column(type_, type_, type_) for type_ in COLUMN_TYPES], "number"),
    "rows with options": requests.row_body([Column("a", "A", "MULTI SELECT", ("x", "y"))], "number"),
    "rows with digits": requests.row_body([Column("a", "A", "NUMBER")], "number_or_string"),
}
TEMPLATES = {"send_sms": ["t"], "send_email": ["t"], "send_sms without templates": []}
ADAPTERS: dict[str, TypeAdapter[Any]] = {name: TypeAdapter(kind) for name, kind in TYPES.items()}

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


def described(name: str) -> Schema:
    schema = ADAPTERS[name].json_schema()
    return requests.describe_text(schema, TEMPLATES[name]) if name in TEMPLATES else schema


def accepts(name: str, value: Any) -> bool:
    try:
        ADAPTERS[name].validate_python(value, strict=True)
    except ValidationError:
        return False
    return name not in TEMPLATES or not requests.text_errors(value, TEMPLATES[name])


@pytest.mark.parametrize("name", TYPES)
@given(data=st.data())
def test_type_accepts_what_its_schema_describes(name: str, data: st.DataObject) -> None:
    schema = described(name)
    Draft202012Validator.check_schema(schema)
    keys = st.sampled_from(sorted(names_in(schema) | {"other"}))
    bodies = st.dictionaries(keys, VALUES | st.dictionaries(keys, VALUES, max_size=3), max_size=8)
    body = data.draw(bodies | VALUES)
    reference = Draft202012Validator(schema, format_checker=Draft202012Validator.FORMAT_CHECKER)
    # Python's "$" lets a final newline pass, ECMA's does not: the types go with the latter
    if not re.search(r"\\n", repr(body)):
        assert accepts(name, body) == reference.is_valid(body)


def test_number_with_a_final_newline_is_refused() -> None:
    assert accepts("lookup_phone", {"phone": "2348030000001"})
    assert not accepts("lookup_phone", {"phone": "2348030000001\n"})


@given(st.text(max_size=400))
def test_measured_length_and_pages_agree(text: str) -> None:
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
