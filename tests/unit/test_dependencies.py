"""``pyproject.toml`` declares what is imported and nothing else, with the lowest versions that are tested."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from cpaas_provider._common.extras import describe_install
from tests.imports import ROOT, Import, distributions_of, imports_of

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PIN = re.compile(r"[a-z0-9.-]+==[^\s;]+")

TEST_TOOLS = {
    "asyncpg": "SQLAlchemy loads it for a database with +asyncpg in its URL",
    "apache-airflow-providers-postgres": "Airflow loads its hook for a connection",
    "build": "started as a program",
    "pytest-asyncio": "a plugin of pytest",
    "pytest-random-order": "a plugin of pytest",
    "pytest-timeout": "a plugin of pytest",
    "pytest-xdist": "a plugin of pytest",
    "schemathesis": "started as a program",
}
"""What tests need without importing it."""

EXTRA_MODULES = {
    "openlineage": {"tasks/lineage.py"},
    "parquet": {"sources/parquet.py", "sources/results_file.py"},
    "sql": {"sources/sql.py"},
}
"""The modules that need an extra. Airflow calls the first only where OpenLineage is; the others name their extra."""

PYTEST_PLUGIN = "provider/cpaas_sandbox/pytest_plugin/"
"""pytest loads it, and nothing else does. So pytest is there, and no dependency."""

BENCHMARK_PEERS = {"aiohttp", "apache-airflow-providers-http"}
"""What benchmarks compare with, from ``tests/benchmarks/campaign/peers.txt``."""


def undeclared(imports: Iterable[Import], declared: Iterable[str], optional: Iterable[str] = ()) -> list[str]:
    """Return the imports that no declared distribution brings.

    :param optional: distributions that may be imported where the module around it loads without them
    """
    always, sometimes = set(declared), {*declared, *optional}
    return [
        f"{imported.where} imports {imported.module}"
        for imported in imports
        if not distributions_of(imported.module) & (sometimes if imported.is_optional else always)
    ]


def unused(imports: Iterable[Import], declared: Iterable[str]) -> set[str]:
    """Return the declared distributions that nothing imports."""
    return set(declared).difference(*(distributions_of(imported.module) for imported in imports))


def requirements(texts: Iterable[str | Mapping[str, str]]) -> dict[str, Requirement]:
    """Return requirements by name, without the groups that a group includes."""
    parsed = (Requirement(text) for text in texts if isinstance(text, str))
    return {canonicalize_name(requirement.name): requirement for requirement in parsed}


def floor_of(requirement: Requirement) -> Version | None:
    """Return the lowest version, or ``None`` if the requirement says anything else than that."""
    specifiers = list(requirement.specifier)
    is_floor = len(specifiers) == 1 and specifiers[0].operator == ">="
    return Version(specifiers[0].version) if is_floor else None


def pins_of(file: str) -> dict[str, Version]:
    """Return the pinned versions of a constraints file, which holds nothing else."""
    lines = (ROOT / file).read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if not PIN.fullmatch(line)] == []
    pins = {name: Version(version) for name, version in (line.split("==") for line in lines)}
    assert len(pins) == len(lines)
    return pins


def unlike_floors(direct: Mapping[str, Requirement], pins: Mapping[str, Version]) -> list[str]:
    """Return the requirements that are pinned to another version than their lowest, or not at all."""
    return [
        f"{requirement}: {pins.get(name)}"
        for name, requirement in direct.items()
        if pins.get(name) != floor_of(requirement)
    ]


DEPENDENCIES = requirements(PROJECT["project"]["dependencies"])
EXTRAS = {name: requirements(texts) for name, texts in PROJECT["project"]["optional-dependencies"].items()}
OPTIONAL = {name: requirement for extra in EXTRAS.values() for name, requirement in extra.items()}
GROUPS = {name: requirements(texts) for name, texts in PROJECT["dependency-groups"].items()}
DIRECT = {**OPTIONAL, **DEPENDENCIES}


@pytest.fixture(scope="module")
def provider_imports() -> list[Import]:
    return imports_of(ROOT / "provider")


@pytest.fixture(scope="module")
def test_imports() -> list[Import]:
    return imports_of(ROOT / "tests")


class TestProvider:
    def test_every_import_is_declared(self, provider_imports: list[Import]) -> None:
        assert len(provider_imports) > 500
        of_plugin = [one for one in provider_imports if one.where.startswith(PYTEST_PLUGIN)]
        others = [one for one in provider_imports if one not in of_plugin]
        assert undeclared(others, DEPENDENCIES, OPTIONAL) == []
        assert undeclared(of_plugin, [*DEPENDENCIES, "pytest"]) == []

    def test_every_dependency_is_imported(self, provider_imports: list[Import]) -> None:
        assert unused(provider_imports, DIRECT) == set()

    def test_imports_of_an_extra_are_in_the_modules_that_need_it(self, provider_imports: list[Import]) -> None:
        importing: dict[str, set[str]] = {extra: set() for extra in EXTRAS}
        for imported in provider_imports:
            for extra, needed in EXTRAS.items():
                if distributions_of(imported.module) & needed.keys():
                    importing[extra].add(imported.where.partition(":")[0].removeprefix("provider/cpaas_provider/"))
        assert importing == EXTRA_MODULES

    def test_package_of_an_extra_is_no_dependency(self) -> None:
        assert OPTIONAL.keys() & DEPENDENCIES.keys() == set()

    def test_quickstart_names_every_extra(self) -> None:
        page = (ROOT / "docs/getting-started/quickstart.md").read_text(encoding="utf-8")
        assert [extra for extra in EXTRAS if f"`{describe_install(extra).split(' in ')[0]}`" not in page] == []

    def test_no_text_installs_the_package_by_its_name(self) -> None:
        # It is on no index, so pip would fail, or install a stranger's package.
        folders = ("provider", "docs", "example_dags", "deploy")
        pages = [*ROOT.glob("*.md"), *(file for folder in folders for file in (ROOT / folder).rglob("*"))]
        texts = [file for file in pages if file.suffix in (".py", ".md", ".yaml", ".toml") or "ontainer" in file.name]
        assert [file for file in texts if re.search(r"install '?airflow-provider-cpaas", file.read_text("utf-8"))] == []


class TestPlantedViolations:
    """Each check finds what it is for."""

    @pytest.mark.parametrize(
        "statement",
        [
            "import tenacity",
            "from tenacity import retry",
            "def use() -> None:\n    import tenacity",
            "async def use() -> None:\n    from tenacity import retry",
            "if TYPE_CHECKING:\n    from tenacity import retry",
            "import importlib\nretry = importlib.import_module('tenacity')",
            "from airflow.providers.standard.operators.empty import EmptyOperator",
            "from airflow.providers import standard",
        ],
    )
    def test_import_that_is_not_declared_is_found(self, tmp_path: Path, statement: str) -> None:
        (tmp_path / "planted.py").write_text(f"from pydantic import BaseModel\nimport json\n{statement}\n")
        assert len(undeclared(imports_of(tmp_path), DEPENDENCIES, OPTIONAL)) == 1

    @pytest.mark.parametrize("extra", sorted(EXTRAS))
    def test_extra_may_be_imported_only_where_the_module_loads_without_it(self, tmp_path: Path, extra: str) -> None:
        module = {"openlineage": "openlineage.client", "parquet": "pyarrow", "sql": "airflow.providers.common.sql"}[
            extra
        ]
        (tmp_path / "late.py").write_text(f"def use() -> None:\n    import {module}\n")
        assert undeclared(imports_of(tmp_path), DEPENDENCIES, OPTIONAL) == []
        (tmp_path / "early.py").write_text(f"import {module}\n")
        assert undeclared(imports_of(tmp_path), DEPENDENCIES, OPTIONAL) == [f"early.py:1 imports {module}"]

    def test_dependency_that_nothing_imports_is_found(self, provider_imports: list[Import]) -> None:
        assert unused(provider_imports, [*DIRECT, "tenacity"]) == {"tenacity"}

    @pytest.mark.parametrize("text", ["idna", "idna>=3.7,<4", "idna<4", "idna==3.7", "idna~=3.7", "idna>3.6"])
    def test_requirement_without_a_floor_or_with_an_upper_bound_is_found(self, text: str) -> None:
        assert floor_of(Requirement(text)) is None

    @pytest.mark.parametrize("pins", [{}, {"idna": Version("3.8")}, {"idna": Version("3.6")}])
    def test_pin_that_is_not_the_floor_is_found(self, pins: dict[str, Version]) -> None:
        assert unlike_floors({"idna": Requirement("idna>=3.7")}, pins)
        assert not unlike_floors({"idna": Requirement("idna>=3.7")}, {"idna": Version("3.7.0")})


class TestVersions:
    @pytest.mark.parametrize(
        ("name", "requirement"), [*DIRECT.items(), *(item for group in GROUPS.values() for item in group.items())]
    )
    def test_requirement_has_a_floor_and_no_upper_bound(self, name: str, requirement: Requirement) -> None:
        assert floor_of(requirement) is not None, name
        assert requirement.marker is None

    def test_lowest_pins_are_the_floors(self) -> None:
        assert unlike_floors(DIRECT, pins_of("constraints-floors.txt")) == []

    @pytest.mark.parametrize("file", ["constraints.txt", "constraints-prerelease.txt"])
    def test_other_pins_are_above_the_floors(self, file: str) -> None:
        pins = pins_of(file)
        # No pin of a pre-release comes with the extras that tests do not need.
        assert DEPENDENCIES.keys() - pins.keys() == set()
        floors = {name: floor_of(requirement) for name, requirement in DIRECT.items()}
        assert [name for name, floor in floors.items() if floor and name in pins and pins[name] < floor] == []


def example_dags() -> list[Path]:
    return sorted((ROOT / "example_dags").glob("**/*.py"))


class TestExampleDags:
    @pytest.mark.parametrize("path", example_dags(), ids=lambda path: path.stem)
    def test_imports_are_dependencies_or_providers_that_its_docstring_names(self, path: Path) -> None:
        docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        named = re.findall(r"apache-airflow-providers-[\w-]+", docstring)
        assert undeclared(imports_of(path), [*DEPENDENCIES, *named]) == []
        assert unused(imports_of(path), named) == set()


class TestTests:
    def test_every_import_is_declared(self, test_imports: list[Import]) -> None:
        development = {**GROUPS["test"], **GROUPS["docs"], **GROUPS["dev"]}
        found = undeclared(test_imports, [*DEPENDENCIES, *OPTIONAL, *GROUPS["test"]], [*development, *BENCHMARK_PEERS])
        assert found == []

    def test_every_package_of_the_test_group_is_used(self, test_imports: list[Import]) -> None:
        assert unused(test_imports, GROUPS["test"]) - OPTIONAL.keys() == TEST_TOOLS.keys()
