"""Bodies are read as Python's own reader does, though another one reads most of them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpaas_provider.delivery.receiver.http.request import read_json
from cpaas_provider.delivery.receiver.http.responses import RefusalError

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)
ODD = ('"\\ud800"', "1e400", "NaN", "[Infinity]", '{"a": 1, "a": 2}', str(2**200), "-0", '"\\u0000"', " [1 ] ")


@given(VALUES, st.booleans())
def test_json_is_read_as_python_reads_it(value: object, ascii_only: bool) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only)
    try:
        raw = text.encode()
    except UnicodeEncodeError:
        return
    assert repr(read_json(raw)) == repr((text, json.loads(text)))


@pytest.mark.parametrize("text", ODD)
def test_unusual_json_is_read_as_python_reads_it(text: str) -> None:
    assert repr(read_json(text.encode())) == repr((text, json.loads(text)))


def test_byte_order_mark_is_left_out() -> None:
    assert read_json(b'\xef\xbb\xbf{"status": "delivered"}') == ('{"status": "delivered"}', {"status": "delivered"})


def test_number_of_too_many_digits_is_read() -> None:
    assert read_json(b"9" * 5000) == ("9" * 5000, float("inf"))


@pytest.mark.parametrize("text", ["", "[1,]", "{'a': 1}", '"\t"', "1 2", "[" * 200_000, "01"])
def test_invalid_json_is_refused(text: str) -> None:
    with pytest.raises(RefusalError):
        read_json(text.encode())


def test_byte_order_mark_before_an_unknown_shape_is_left_out() -> None:
    assert read_json(b'\xef\xbb\xbf{"a": 1}') == ('{"a": 1}', {"a": 1})
