"""Typed cells: what each of the eight column types takes, and how it goes on the wire."""

from __future__ import annotations

import datetime as dt
import json
import math
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpaas_provider.contacts.mapping.cells import encode_cell
from tests.reading import NIGERIAN
from tests.unit.contacts.mapping.good_cells import GOOD


class NaTType:
    """What pandas has for a missing time: it is unequal to itself."""

    def __eq__(self, other: object) -> bool:
        return False

    __hash__ = None  # type: ignore[assignment]  # as that of pandas


BLANK: list[Any] = [
    None,
    "",
    "  ",
    "\t\n",
    "\u00a0",
    "\u200b\ufeff",
    math.nan,
    Decimal("NaN"),
    Decimal("sNaN"),
    NaTType(),
]

DAMAGED = [
    ("a\0b", "contains NUL characters"),
    ("a\x07b", "contains control characters"),
    ("a\x85b", "contains control characters"),
    ("a\ud83d", r"half a character"),
    ("x" * 65_537, "is longer than 65536 bytes"),
    ("é" * 32_769, "is longer than 65536 bytes"),
]
NUMBERS = "must be a number such as 1234.5"
BAD: dict[str, list[tuple[Any, str]]] = {
    "TEXT": [(value, "must be text") for value in ({"a": 1}, ["a"], ("a",), {"a"}, b"bytes", object())]
    + DAMAGED
    + [(10**5_000, "has too many digits"), (math.inf, "must be a finite number"), (Decimal("1E+99999999"), "digits")],
    "NUMBER": [
        (value, NUMBERS)
        for value in (
            *("many", "1,5", "1,000", "1 000", "1_000", "1e5", "1E5", "0x10", "nan", "inf", "-inf", "1.2.3", "5.", "."),
            *("5%", "$5", "(5)", "5-", "--5", "½", "٥²", "\uff11\uff12\uff0c\uff15", "1\n2", "9" * 101, "True"),
            *(True, False, [1], {}, b"5", dt.date(2026, 1, 31)),
        )
    ]
    + [(value, "must be a finite number") for value in (math.inf, -math.inf, Decimal("Infinity"))]
    + [
        (value, "is beyond 2\\*\\*53 - 1")
        for value in (2**53, -(2**53), 1e300, "9007199254740992", "1" * 100, Decimal("1E+999999999"), 10**5_000)
    ]
    + [
        (value, "has more digits than a JSON number holds")
        for value in ("0.1234567890123456789", Decimal("3.33333333333333333333"), Decimal("1E-999999999"))
    ],
    "DATE": [
        (value, "must be a date such as 2026-01-31")
        for value in (
            *("31.01.2026", "01/02/2026", "2026-1-5", "2026-02-30", "2025-02-29", "1900-02-29", "0000-01-01", "today"),
            *(
                "2026-01",
                "2026-W05-6",
                "2026-01-31T25:00",
                "2026-01-31T24:00",
                "2026-01-31 noon",
                "2026-01-31 UTC",
                "45000",
                "x" * 101,
            ),
            *(20260131, 45_000, 45_000.5, True, ["2026-01-31"], b"2026-01-31", dt.time(8)),
        )
    ],
    "PHONE NUMBER": [
        ("0803", "is not a phone number"),
        ("2.348E+12", "lost its last digits"),
        ("None", "is the word"),
        ("+234 803 123 4567" + " " * 300, "is too long for a phone number"),
        (True, "is not a phone number|must be text"),
        (-5, "is not a phone number"),
        (10**5_000, "is not a phone number"),
        (Decimal("1E+999999999"), "must be text or a whole number"),
        (math.inf, "must be text or a whole number"),
        (["0803 123 4567"], "must be text"),
        ("+234 803 123 4567 / +234 803 123 4568", "is followed by a second number"),
    ],
    "EMAIL": [
        ("ada", "is not an email address"),
        ("a" * 1_001 + "@example.com", "is not an email address"),
        ("ada@example.com, bola@example.com", "is not an email address"),
        ("ada\0@example.com", "is not an email address"),
        (5, "must be text"),
    ],
    "URL": [
        (value, "must be a URL such as")
        for value in (
            *("example.com", "ftp://example.com", "https://", "https:example.com", "https:///example.com", "http://["),
            *("https://a b.com", "javascript:alert(1)", "https://a..b", "https://-", "https://a:0", "https://a:99999"),
            *(
                "https://a:x",
                "https://" + "a" * 64 + ".com",
                "https://a\u3000b.com",
                5,
                b"",
            ),
        )
    ]
    + [(f"https://{user}@example.com", "without user name and password") for user in ("ada:secret", "good.com\\")]
    + [("https://example.com/\0", "NUL"), ("https://example.com/" + "x" * 65_536, "is longer than")],
    "SELECT": [(value, "must be one option, as text") for value in (True, ["a"], {"a": 1}, b"a", math.inf)]
    + [("a\nb", "contains control characters"), ("a\u2028b", "contains control characters"), *DAMAGED],
    "MULTI SELECT": [(value, "must be one option, as text") for value in ([["a"]], [True], ["a", b"b"], {frozenset()})]
    + [(value, "must be a list of options") for value in (5, {"a": 1}, True, b"a,b")]
    + [(["x" * 40_000, "y" * 40_000], "is longer than"), ("a\nb", "contains control characters")],
}


def encode(column_type: str, value: Any, **options: Any) -> Any:
    return encode_cell(column_type, value, numbers=NIGERIAN, **options)


def cases(table: dict[str, list[tuple[Any, Any]]]) -> list[Any]:
    """Return the cases of a table; some of their values have no text by which a test could go."""
    return [
        pytest.param(kind, *pair, id=f"{kind}-{n}") for kind, pairs in table.items() for n, pair in enumerate(pairs)
    ]


@pytest.mark.parametrize(("column_type", "value", "cell"), cases(GOOD))
def test_valid_value_is_encoded(column_type: str, value: Any, cell: Any) -> None:
    encoded = encode(column_type, value)
    assert (encoded, type(encoded)) == (cell, type(cell))


@pytest.mark.parametrize(("column_type", "value", "reason"), cases(BAD))
def test_invalid_value_is_refused(column_type: str, value: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        encode(column_type, value)


@pytest.mark.parametrize("column_type", [*GOOD, "GEO POINT"])
@pytest.mark.parametrize(("empty_cell_value", "cell"), [("null", None), ("empty", "")])
@pytest.mark.parametrize("value", BLANK, ids=range(len(BLANK)))
def test_blank_value_clears_a_cell_of_any_type(
    column_type: str, value: Any, empty_cell_value: str, cell: str | None
) -> None:
    assert encode(column_type, value, empty_cell_value=empty_cell_value) == cell


@pytest.mark.parametrize("value", [[], (), set(), [None, ""], ",", " , ", "[]"])
def test_no_option_clears_a_multi_select(value: Any) -> None:
    assert encode("MULTI SELECT", value) is None


@pytest.mark.parametrize("column_type", [" multi select ", "Multi Select"])
def test_types_count_without_regard_to_case(column_type: str) -> None:
    assert encode(column_type, "a,b") == ["a", "b"]


@pytest.mark.parametrize("value", ["x", 5, [1], {"a": None}])
def test_unknown_column_type_accepts_any_json_value(value: Any) -> None:
    assert encode("GEO POINT", value) == value


@pytest.mark.parametrize(
    "value", [object(), {1: 2}, {"a"}, (1,), math.inf, [math.nan], ["\ud83d"], b"x", "a\0"], ids=range(9)
)
def test_unknown_column_type_refuses_a_value_that_is_not_json(value: Any) -> None:
    with pytest.raises(ValueError, match=r"must be a JSON value|contains NUL"):
        encode("GEO POINT", value)


def test_unknown_column_type_refuses_a_value_nested_too_deep() -> None:
    deep: Any = "x"
    for _ in range(21):
        deep = [deep]
    assert encode("GEO POINT", deep[0]) == deep[0]
    with pytest.raises(ValueError, match="is nested more than 20 levels deep"):
        encode("GEO POINT", deep)


def test_local_part_of_an_address_retains_its_script() -> None:
    # Unlike a domain it has no other form; whether it can be stored is for the service to tell.
    assert encode("EMAIL", "z\u00f6e@EXAMPLE.com") == "z\u00f6e@example.com"


def test_national_number_needs_a_default_region() -> None:
    with pytest.raises(ValueError, match="default_region"):
        encode_cell("PHONE NUMBER", "0803 123 4567")


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.dates() | st.decimals(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


ADDRESSES = st.builds(
    "{}{}{}{}".format,
    st.sampled_from(["https://", "ada@", "@", ""]),
    st.text(),
    st.sampled_from([".com", "/", "@", ""]),
    st.text(),
)
PHONES = st.from_regex(r"[+0]?[0-9 ().-]{5,20}", fullmatch=True)
WRITTEN = ADDRESSES | PHONES | st.from_regex(r"[-+]?[0-9., eE]{1,30}", fullmatch=True) | st.text(min_size=6)


@given(st.sampled_from(sorted(GOOD)), ANYTHING | WRITTEN)
def test_any_value_becomes_json_or_is_refused(column_type: str, value: Any) -> None:
    try:
        cell = encode(column_type, value)
    except ValueError as error:
        words = str(error)
        assert len(words.splitlines()) == 1
        assert len(words) < 120
    else:
        assert json.loads(json.dumps(cell, allow_nan=False)) == cell
        json.dumps(cell, ensure_ascii=False).encode()


@given(st.sampled_from(sorted(GOOD)), WRITTEN.filter(lambda text: len(text.strip()) > 5))
def test_no_reason_holds_the_value(column_type: str, value: str) -> None:
    reason = ""
    try:
        encode(column_type, value)
    except ValueError as error:
        reason = str(error)
    assert value.strip() not in reason


@given(st.sampled_from(sorted(GOOD)), ANYTHING | WRITTEN)
def test_encoding_a_cell_again_does_not_change_it(column_type: str, value: Any) -> None:
    try:
        cell = encode(column_type, value)
    except ValueError:
        return
    # Digits alone may be a national number of another region.
    assert encode(column_type, f"+{cell}" if column_type == "PHONE NUMBER" and cell else cell) == cell
