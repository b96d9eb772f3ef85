"""What is missing is missing, whatever library it comes from."""

from __future__ import annotations

import math
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest

from cpaas_provider._common.values import is_blank, plain
from cpaas_provider.api.values import readable_text
from cpaas_provider.contacts.mapping.keys import key_text


class Name(str):
    """A text of a library, which is a subclass."""


def from_arrow() -> list[Any]:
    arrow = pytest.importorskip("pyarrow")
    types = [arrow.string(), arrow.int64(), arrow.float64(), arrow.timestamp("us"), arrow.list_(arrow.string())]
    return [arrow.NA, *(arrow.scalar(None, type=kind) for kind in types), arrow.scalar(float("nan")), arrow.scalar(" ")]


def of(library: str, name: str, **attributes: Any) -> Any:
    """Return a value of a type that a library defines. Neither pandas nor NumPy is installed for the tests."""
    return type(name, (), {"__module__": library, **attributes})()


def from_numpy() -> list[Any]:
    def scalar(name: str, kind: str, converted: Any) -> Any:
        return of("numpy", name, dtype=SimpleNamespace(kind=kind), tolist=lambda _: converted)

    return [
        *(scalar("float32", "f", math.nan), scalar("datetime64", "M", None), scalar("str_", "U", " ")),
        # A long double converts to itself, and is a number.
        scalar("ndarray", "f", of("numpy", "longdouble", dtype=None, __float__=lambda _: math.nan)),
        of("numpy.ma", "MaskedConstant", dtype=SimpleNamespace(kind="f"), tolist=lambda _: None),
    ]


def from_pandas() -> list[Any]:
    return [of("pandas._libs.missing", "NAType"), of("pandas._libs.tslibs.nattype", "NaTType")]


def from_python() -> list[Any]:
    return [None, "", " \t", "\u200b\xa0", float("nan"), Decimal("NaN"), Decimal("sNaN"), Name(" ")]


LIBRARIES = [from_python, from_arrow, from_numpy, from_pandas]


@pytest.mark.parametrize("library", LIBRARIES)
def test_missing_value_of_a_library_is_blank_everywhere(library: Any) -> None:
    for value in library():
        assert is_blank(value), repr(value)
        assert readable_text(value) is None
        assert key_text(value) is None


def test_library_scalars_are_converted_to_python_values() -> None:
    arrow = pytest.importorskip("pyarrow")
    assert [plain(arrow.scalar(value)) for value in (5, "Ada", 2.5)] == [5, "Ada", 2.5]
    assert readable_text(arrow.scalar("Ada")) == "Ada"


@pytest.mark.parametrize("value", ["x", "nan", "None", 0, 0.0, False, Decimal(0), [], {}, b"", Name("x")])
def test_value_is_not_blank(value: Any) -> None:
    assert not is_blank(value)
