"""Every regular expression of the provider takes time in proportion to its text, whoever wrote the text."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

import cpaas_provider
import cpaas_sandbox
from tests.growth import LINEAR, growth

UNITS = (
    "a", "a.", "a@", "a@a.", "@", "1", "1 ", "1.", "1, ", "1-", "0", "00 ", "+1", "(0)", ".", "/", "a/", "%25", "%2e",
    " ", "\t", "\n", "\r\n", "é", "{", "{a", '"', "'", "\\", "-", "_", ":", ";", ",", "http://", "https://a", "same ",
    "sent ", "2026-01-01 ", "1e", "?", "#", "[", "<", "&a=", "~", "x-", "b64=",
)  # fmt: skip
ENDS = ("", "!", "@", "\n", ".")
LENGTH = 3_000
BOUNDED = {
    # A message of an error, which has 300 characters at most.
    "cpaas_provider.sending.campaign.guards.circuit_breaker._WITH_DIGITS",
    # 200 characters before a recipient.
    "cpaas_provider.api.responses.error_items._COMPARISON",
    # 100 characters before a word.
    "cpaas_provider.api.responses.wording._DENIAL_BEFORE",
    # A text in a DAG.
    "cpaas_provider.notifications._runtime.run._JINJA",
    # A setting.
    "cpaas_provider.database.url._UP_TO_HOST",
}
NO_PROGRAMS = re.compile(r"__main__$|\.migrations\.|\.preloaded$")


class Expression(NamedTuple):
    """A compiled expression.

    :param is_searched: whether its module looks for it within a text, and does not only compare whole texts with it
    """

    pattern: re.Pattern[Any]
    is_searched: bool


def expressions() -> dict[str, Expression]:
    """Return the compiled expressions of all modules, by where they stand."""
    found: dict[str, Expression] = {}
    modules = [
        module.name
        for package in (cpaas_provider, cpaas_sandbox)
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    ]
    for module in modules:
        if NO_PROGRAMS.search(module):
            continue
        loaded = importlib.import_module(module)
        for name, value in vars(loaded).items():
            if isinstance(value, re.Pattern):
                source = inspect.getsource(loaded)
                is_compared = re.search(rf"\b{name}\.(fullmatch|match)\(", source)
                is_searched = re.search(rf"\b{name}\.(sub|search|finditer|findall|split)\(", source)
                found[f"{module}.{name}"] = Expression(value, bool(is_searched) or not is_compared)
    return found


EXPRESSIONS = expressions()


def way(expression: Expression) -> Callable[[str], object]:
    """Return what the code does with an expression."""
    pattern, is_searched = expression
    if isinstance(pattern.pattern, bytes):
        return lambda text: pattern.search(text.encode())
    return (lambda text: pattern.sub("", text)) if is_searched else pattern.fullmatch


def slowest(expression: Expression) -> tuple[float, str, str]:
    """Return the greatest growth, and the input that causes it."""
    work = way(expression)
    return max((growth(work, unit, LENGTH, end), unit, end) for unit in UNITS for end in ENDS)


def test_expressions_are_found() -> None:
    assert len(EXPRESSIONS) > 50
    assert EXPRESSIONS.keys() >= BOUNDED


@pytest.mark.parametrize("name", sorted(EXPRESSIONS.keys() - BOUNDED))
def test_expression_takes_time_in_proportion_to_its_text(name: str) -> None:
    # What a busy machine slows down once, it does not slow down three times.
    for _ in range(3):
        ratio, unit, end = slowest(EXPRESSIONS[name])
        if ratio < LINEAR:
            return
    pytest.fail(f"{name}: four times as much of {unit!r} and {end!r} takes {ratio:.1f} times as long.")


def test_quadratic_expression_is_noticed() -> None:
    quadratic = re.compile(r"\S*\d\S*")
    assert growth(lambda text: quadratic.sub("", text), "a", LENGTH) > LINEAR
