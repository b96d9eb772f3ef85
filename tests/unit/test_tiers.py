"""What the fast tests leave out is slow, and nothing that is promised is left out."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias, TypeGuard

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpaas_provider import operators, sensors
from tests import tiers
from tests.promises import BOTH_DATABASES, PARTS, PROMISES, TASKS

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
NAMED = sorted({test for tests in PROMISES.values() for test in tests} | {*BOTH_DATABASES} | {*TASKS.values()})
HELPERS = "tests.airflow."


def short(test: str) -> str:
    return test.rpartition("/")[2].replace("::", ".")


class TestPlaces:
    @pytest.mark.parametrize(
        ("path", "tier"),
        [
            ("tests/system/test_demo.py", "system"),
            ("tests/system/killing/oracle.py", "system"),
            ("tests/airflow/cli/test_commands.py", "slow"),
            ("tests/airflow/cli/test_journal.py", None),
            ("tests/unit/database/test_processes_at_once.py", "slow"),
            ("tests/unit/database/test_leases.py", None),
            ("tests/unit/test_new.py", None),
        ],
    )
    def test_tier_of_a_file_follows_from_its_path(self, path: str, tier: str | None) -> None:
        assert tiers.tier_of(path) == tier

    @pytest.mark.parametrize(
        "path", [*(place for places in tiers.PLACES.values() for place in places), *tiers.MACHINES, *tiers.VERSIONED]
    )
    def test_every_place_exists(self, path: str) -> None:
        place = tiers.ROOT / path
        assert any(place.parent.glob(f"{place.name}*")), "no file has a path that begins like this"

    def test_no_test_marks_itself(self) -> None:
        by_hand = re.compile(r"\bmark\.(slow|system|generated|torture)\b")
        files = (tiers.ROOT / "tests").rglob("test_*.py")
        assert [file.name for file in files if by_hand.search(file.read_text(encoding="utf-8"))] == []


class TestReading:
    """Which files are read for a tier: no other than may hold a test of it."""

    @pytest.mark.parametrize(
        ("expression", "path", "read"),
        [
            ("not slow and not system", "tests/unit/database/test_leases.py", True),
            ("not slow and not system", "tests/airflow/cli/test_commands.py", False),
            ("not slow and not system", "tests/system/test_demo.py", False),
            ("(slow or generated) and not torture", "tests/airflow/cli/test_commands.py", True),
            ("(slow or generated) and not torture", "tests/unit/sending/test_model.py", True),
            ("(slow or generated) and not torture", "tests/unit/sources/test_csv_round_trip.py", True),
            ("(slow or generated) and not torture", "tests/unit/database/test_leases.py", False),
            ("system", "tests/system/test_demo.py", True),
            ("system", "tests/unit/sources/test_csv_round_trip.py", False),
            ("versioned and not slow and not system", "tests/unit/database/test_leases.py", True),
            ("versioned and not slow and not system", "tests/unit/sending/test_engine.py", False),
            ("versioned and not slow and not system", "tests/unit/database/test_processes_at_once.py", False),
            ("torture", "tests/unit/database/test_leases.py", True),
            ("torture", "tests/airflow/cli/test_commands.py", True),
            ("torture", "tests/system/test_demo.py", False),
            ("", "tests/system/test_demo.py", True),
            ("hypothesis and not slow", "tests/unit/database/test_leases.py", True),
            ("slow and", "tests/unit/database/test_leases.py", True),
        ],
    )
    def test_file_is_read_where_it_may_hold_what_is_selected(self, expression: str, path: str, read: bool) -> None:
        assert tiers.may_select(expression, path) is read

    def test_no_file_is_read_for_no_tier(self) -> None:
        expressions = ("not slow and not system", "(slow or generated) and not torture", "system")
        files = [file.relative_to(tiers.ROOT).as_posix() for file in (tiers.ROOT / "tests").rglob("test_*.py")]
        assert [path for path in files if not any(tiers.may_select(each, path) for each in expressions)] == []

    @given(st.none())
    def test_test_with_generated_input_is_marked_before_any_is_selected(
        self, request: pytest.FixtureRequest, generated: None
    ) -> None:
        assert request.node.get_closest_marker("generated")

    def test_generated_test_in_a_file_that_does_not_show_it_is_refused(self) -> None:
        generated = given(st.none())(lambda _: None)
        item = Item("tests/unit/database/test_leases.py::test_a", obj=generated)
        with pytest.raises(AssertionError, match=r"test_leases\.py does not name hypothesis"):
            tiers.mark([item])  # type: ignore[list-item]  # collecting for it would take seconds


@dataclass
class Item:
    """What ``mark`` uses of a collected test."""

    nodeid: str
    marks: list[str] = field(default_factory=list)
    obj: object = None

    @property
    def path(self) -> Path:
        return tiers.ROOT / self.nodeid.partition("::")[0]

    def add_marker(self, mark: str) -> None:
        self.marks.append(mark)


def test_lowest_versions_run_one_case_of_each_function_and_database() -> None:
    of_database = "tests/unit/database/test_leases.py::test_a"
    names = ["sqlite-1", "postgres-1", "sqlite-2", "postgres-2"]
    cases = [Item(f"{of_database}[{name}]") for name in names]
    others = [Item("tests/unit/hooks/test_a.py::test_b[1]"), Item("tests/unit/hooks/test_a.py::test_b[2]")]
    elsewhere = Item("tests/unit/docs/test_site.py::test_c")
    tiers.mark([*cases, *others, elsewhere])  # type: ignore[list-item]  # collecting for it would take seconds
    assert ["versioned" in item.marks for item in cases] == [True, True, False, False]
    assert ["versioned" in item.marks for item in others] == [True, False]
    assert elsewhere.marks == ["slow"]


def test_lowest_versions_run_every_second_function_of_real_tasks_and_one_for_each_operator() -> None:
    path, _, of_task = TASKS["FindOtpsOperator"].partition("::")
    names = ["test_a[1]", "test_a[2]", "test_b[1]", "test_c", "test_d", "test_e", of_task]
    items = [Item(f"{path}::{name}") for name in names]
    tiers.mark(items)  # type: ignore[arg-type]  # as above
    found = [item.nodeid.partition("::")[2] for item in items if "versioned" in item.marks]
    assert found == ["test_a[1]", "test_c", "test_e", of_task]


def torture_only(path: str, *names: str) -> list[str]:
    items = [Item(f"{path}::{name}") for name in names]
    tiers.mark(items)  # type: ignore[arg-type]  # as above
    return [item.nodeid.partition("::")[2] for item in items if "torture" in item.marks]


def test_cases_of_a_function_run_on_one_database_in_turn_and_a_function_without_cases_on_both() -> None:
    cases = [f"test_a[{database}-{case}]" for case in "123" for database in ("sqlite", "postgres")]
    alone = ["test_b[sqlite]", "test_b[postgres]", "test_c", "test_d[1]", "test_d[2]"]
    found = torture_only("tests/unit/database/test_leases.py", *cases, *alone)
    assert found == ["test_a[sqlite-1]", "test_a[postgres-2]", "test_a[sqlite-3]"]
    slow = torture_only("tests/unit/database/test_processes_at_once.py", *cases, *alone)
    assert slow == found
    assert torture_only("tests/system/test_contacts_killed.py", *cases) == []


def test_real_task_runs_on_one_database_in_turn() -> None:
    names = [f"Test::test_{name}[{database}]" for name in "ab" for database in ("sqlite", "postgres")]
    found = torture_only("tests/airflow/test_new.py", *names)
    assert found == ["Test::test_a[sqlite]", "Test::test_b[postgres]"]


@dataclass
class CallSpec:
    indices: dict[str, int]
    params: dict[str, object]


def test_function_runs_on_both_databases_where_that_is_promised() -> None:
    path, _, promised = BOTH_DATABASES[-1].partition("::")
    names = [f"{name}[{database}]" for name in (promised, "test_new") for database in ("postgres", "sqlite")]
    assert torture_only(path, *names) == ["test_new[sqlite]"]


def test_real_task_with_crossed_tables_runs_each_line_once() -> None:
    items = []
    for first, second in itertools.product("abc", "xy"):
        item: Any = Item(f"tests/airflow/test_new.py::test_a[{first}-{second}]")
        item.callspec = CallSpec(
            {"first": "abc".index(first), "second": "xy".index(second)}, {"first": first, "second": second}
        )
        items.append(item)
    tiers.mark(items)
    assert [item.nodeid[-4:-1] for item in items if "torture" not in item.marks] == ["a-x", "b-y", "c-x"]


class TestCheck:
    def check(
        self, recorded: Mapping[str, float], *again: Mapping[str, float]
    ) -> tuple[list[str], list[Sequence[str]]]:
        """Return the tests reported, and those of each run alone."""
        runs: list[Sequence[str]] = []

        def rerun(tests: Sequence[str]) -> Mapping[str, float]:
            runs.append(tests)
            return again[len(runs) - 1]

        return tiers.check(recorded, rerun), runs

    def test_fast_tests_are_not_run_again(self) -> None:
        assert self.check({"a": 0.1, "b": tiers.MOST_SECONDS}) == ([], [])

    def test_test_that_is_slow_every_time_is_reported(self) -> None:
        assert self.check({"a": 2, "b": 0.1}, {"a": 3}, {"a": 2}) == (["a"], [["a"], ["a"]])

    def test_test_that_was_slow_once_is_not_reported(self) -> None:
        assert self.check({"a": 9}, {"a": 0.2}) == ([], [["a"]])

    def test_test_that_was_slow_twice_is_not_reported(self) -> None:
        assert self.check({"a": 9, "b": 9}, {"a": 8, "b": 0.2}, {"a": 0.2}) == ([], [["a", "b"], ["a"]])

    def test_slowest_test_comes_first(self) -> None:
        again = {"a": 5.0, "b": 7.0}
        assert self.check({"a": 9, "b": 9}, again, again)[0] == ["b", "a"]

    def test_test_that_cannot_be_run_again_stays_slow(self) -> None:
        assert self.check({"a": 2}, {}, {})[0] == ["a"]


class TestPromises:
    def test_each_promise_has_a_test(self) -> None:
        assert [line for line, tests in PROMISES.items() if not tests] == []

    def test_none_takes_the_place_of_another(self) -> None:
        assert sum(len(part) for part in PARTS.values()) == len(PROMISES)

    @pytest.mark.parametrize("test", NAMED, ids=short)
    def test_each_test_exists_and_is_fast(self, test: str) -> None:
        path, _, name = test.partition("::")
        assert tiers.tier_of(path) is None, f"{path} is not of the fast tier"
        found = named_in(path).get(name)
        assert found, f"there is no {name} in {path}"
        decorators = [decorator for node in found for decorator in node.decorator_list]
        for_all = [node for node in parsed(path).body if "pytestmark" in ast.unparse(node).partition("=")[0]]
        assert not {"skip", "skipif", "xfail"} & {mark for node in (*decorators, *for_all) for mark in marks(node)}

    @pytest.mark.parametrize("test", BOTH_DATABASES, ids=short)
    def test_each_database_is_tested(self, test: str) -> None:
        path, _, name = test.partition("::")
        used = fixtures(path, named_in(path)[name][-1])
        assert ["sqlite", "postgres"] in [parameters(one) for one in used.values()]


class TestTasks:
    def test_every_operator_and_sensor_is_there(self) -> None:
        assert set(TASKS) == {*operators.__all__, *sensors.__all__}

    @pytest.mark.parametrize(("kind", "test"), TASKS.items(), ids=TASKS)
    def test_each_runs_as_a_real_task_instance(self, kind: str, test: str) -> None:
        path, _, name = test.partition("::")
        assert path.startswith("tests/airflow/")
        calls = calls_of(path)
        assert kind in calls, f"{path} makes no {kind}"
        assert calls & {"Run", "run_dag"}, f"{path} runs no task instance"
        assert "sandbox_process" in fixtures(path, named_in(path)[name][-1])

    def test_lowest_versions_run_each(self) -> None:
        # What `partitions` returns is an argument of campaigns.
        assert {kind for kind, test in TASKS.items() if not test.startswith(tiers.VERSIONED)} == {"partitions"}


# -- what stands in a file ---------------------------------------------------------------------------------------------


@cache
def parsed(path: str) -> ast.Module:
    """Return a file's syntax, nothing where there is none."""
    file = tiers.ROOT / path
    return ast.parse(file.read_text(encoding="utf-8") if file.is_file() else "")


@cache
def named_in(path: str) -> dict[str, tuple[Function | ast.ClassDef, ...]]:
    """Return the tests of a file by ``function`` or ``Class::function``: each with the class around it before it."""
    found: dict[str, tuple[Function | ast.ClassDef, ...]] = {}
    for node in parsed(path).body:
        if isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
            found |= {f"{node.name}::{one.name}": (node, one) for one in node.body if is_test(one)}
        elif is_test(node):
            found[node.name] = (node,)
    return found


def is_test(node: ast.AST) -> TypeGuard[Function]:
    return isinstance(node, Function) and node.name.startswith("test_")


def marks(node: ast.AST) -> Iterator[str]:
    """Return the names after ``pytest.mark``."""
    for one in ast.walk(node):
        if isinstance(one, ast.Attribute) and isinstance(one.value, ast.Attribute) and one.value.attr == "mark":
            yield one.attr


def fixtures(path: str, test: ast.AST) -> dict[str, Function]:
    """Return all fixtures a test comes to use, as its arguments or theirs."""
    assert isinstance(test, Function)
    found: dict[str, Function] = {}
    wanted = [argument.arg for argument in test.args.args]
    while wanted:
        name = wanted.pop()
        if name not in found and (there := fixture(path, name)):
            found[name] = there
            wanted += [argument.arg for argument in there.args.args]
    return found


def fixture(path: str, name: str) -> Function | None:
    """Return what a file's tests get by a name: a fixture of the file, or of the nearest ``conftest.py``."""
    folder, _, _ = path.rpartition("/")
    if found := fixtures_in(path).get(name):
        return found
    if path.endswith("/conftest.py"):
        folder, _, _ = folder.rpartition("/")
    return fixture(f"{folder}/conftest.py", name) if folder else None


@cache
def fixtures_in(path: str) -> dict[str, Function]:
    """Return the fixtures of a file, those of its classes and those it imports among them."""
    found: dict[str, Function] = {}
    for node in parsed(path).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tests."):
            there = fixtures_in(module_file(node))
            found |= {alias.name: there[alias.name] for alias in node.names if alias.name in there}
        for one in node.body if isinstance(node, ast.ClassDef) else [node]:
            if isinstance(one, Function) and any("fixture" in ast.unparse(each) for each in one.decorator_list):
                found[one.name] = one
    return found


def parameters(function: Function) -> list[str]:
    """Return what a fixture is given by its decorator, one after the other."""
    for decorator in function.decorator_list:
        for keyword in decorator.keywords if isinstance(decorator, ast.Call) else ():
            if keyword.arg == "params":
                return [ast.unparse(one).strip("'") for one in ast.iter_child_nodes(keyword.value)][:-1]
    return []


@cache
def calls_of(path: str) -> frozenset[str]:
    """Return the names a file calls, and those that functions call which it has from the helpers of its room."""
    found = set(calls_in(parsed(path)))
    for node in parsed(path).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(HELPERS):
            names = {alias.name for alias in node.names}
            for one in parsed(module_file(node)).body:
                if isinstance(one, Function) and one.name in names:
                    found.update(calls_in(one))
    return frozenset(found)


def calls_in(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = node.func
            if isinstance(called, ast.Attribute):
                yield called.attr
                # Of a mapped task.
                called = called.value if called.attr == "partial" else called
            if isinstance(called, ast.Name):
                yield called.id


def module_file(node: ast.ImportFrom) -> str:
    return f"{(node.module or '').replace('.', '/')}.py"
