"""The mutation tool: what it changes, and which tests it runs."""

from __future__ import annotations

import pytest

from tests.mutants.__main__ import PACKAGE, ROOT, TESTS, steps_of
from tests.mutants.changes import mutants_of

PATH = "provider/cpaas_provider/sending/campaign/guards/budget.py"


def changed(source: str) -> set[str]:
    """Return the lines that mutants write instead of others."""
    lines = set()
    for mutant in mutants_of(PATH, source.encode()):
        diff = mutant.diff(source.encode()).splitlines()
        lines.update(line[1:].strip() for line in diff if line.startswith("+"))
    return lines


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("x = a < b", {"x = a <= b"}),
        ("x = a not in b", {"x = a in b"}),
        ("x = a and b", {"x = a or b", "x = True and b", "x = a and True"}),
        ("x = a + b", {"x = a - b"}),
        ("x = not a", {"x = a"}),
        ("x = 5", {"x = 6", "x = 4"}),
        ("x = min(a, b)", {"x = max(a, b)"}),
        ("self.x = a", {"pass"}),
        ("x += a", {"pass"}),
        ("close(a)", {"pass"}),
        ("raise ValueError(f'{a + b} of 3')", {"pass"}),
        ("x = select(a).where(b, c)", {"x = select(a).where(c)", "x = select(a).where(b)"}),
        ("x = select(a).with_for_update()", {"x = select(a)"}),
        ("x = {'a': b, 'c': d}", {"x = {'c': d}", "x = {'a': b}"}),
        ("def f():\n    return a", {"return None"}),
        ("if a: b = c", {"if (not (a)): b = c"}),
        ("x: int | None = a", set()),
        ("log.info('%s', a + 1)", set()),
        ("'words'", set()),
    ],
)
def test_each_kind_of_line_has_its_mutants(source: str, expected: set[str]) -> None:
    assert changed(source) == expected


def test_mutant_of_a_line_after_other_alphabets_is_that_line() -> None:
    source = "name = 'Ọbí'; x = a < b\ny = 'é' if a == b else c\n"
    assert changed(source) == {"name = 'Ọbí'; x = a <= b", "y = 'é' if a != b else c"}


def test_nearest_tests_run_before_those_of_the_room() -> None:
    near, room = steps_of(PATH)
    assert near == ["tests/unit/sending/campaign/guards/test_budget.py", "tests/unit/sending/campaign/guards"]
    assert "tests/airflow/campaigns" in room


def test_files_and_tests_of_the_table_exist() -> None:
    for prefix, tests in TESTS.items():
        assert (ROOT / PACKAGE / prefix).exists()
        assert all((ROOT / test).exists() for test in tests)
