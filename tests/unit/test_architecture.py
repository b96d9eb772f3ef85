"""The layout of the packages: no import cycle, small folders, and an architecture page that is true."""

from __future__ import annotations

import importlib
import re
import subprocess
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import pytest

grimp = pytest.importorskip("grimp", reason="grimp comes with import-linter, which is installed for development")

if TYPE_CHECKING:
    from grimp import ImportGraph

PACKAGE = "cpaas_provider"
SANDBOX = "cpaas_sandbox"
ROOT = Path(__file__).parents[2]
PROVIDER = ROOT / "provider"
PAGE = ROOT / "docs" / "contributing" / "architecture.md"
PICTURE = PAGE.with_suffix(".svg")

MAX_ENTRIES = 14
LARGER_FOLDERS = {
    "cpaas_provider": (22, "one entry for each room of the layers, and the names of the package"),
    "cpaas_provider/api": (18, "one module for each step of a call"),
    "cpaas_provider/sending": (15, "single.py goes once a single send is a campaign of one batch"),
    "cpaas_provider/database": (16, "one entry for each kind of record, beside the engine and the tables"),
}
"""Folders that may show more entries, with the number and the reason. The table only shrinks."""

CYCLIC_MODULES: set[str] = set()
"""Modules of import cycles that are still to be cut. The table only shrinks."""

ROOMS = "|".join(sorted(path.name for path in (PROVIDER / PACKAGE).iterdir() if (path / "__init__.py").is_file()))
NAME = re.compile(rf"`((?:{ROOMS})(?:\.\w+)+)`")
FILE = re.compile(rf"`((?:{ROOMS})(?:/\w+)*/\w+\.py)`")


@pytest.fixture(scope="module")
def graph() -> ImportGraph:
    """Return the import graph, with the imports in functions and those under ``TYPE_CHECKING``."""
    return grimp.build_graph(PACKAGE, SANDBOX, exclude_type_checking_imports=False, cache_dir=None)


def page_names() -> list[str]:
    """Return the functions and classes that the page names, in its order."""
    return NAME.findall(PAGE.read_text(encoding="utf-8"))


def split(name: str) -> tuple[str, list[str]]:
    """Return the module of a dotted name, and the attributes after it."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        path = PROVIDER.joinpath(PACKAGE, *parts[:end])
        if path.with_suffix(".py").is_file() or (path / "__init__.py").is_file():
            return ".".join([PACKAGE, *parts[:end]]), parts[end:]
    raise AssertionError(f"{PAGE.name} names {name}, and there is no such module.")


@pytest.fixture(scope="module")
def cyclic(graph: ImportGraph) -> dict[str, str]:
    """Return the modules of all cycles, each with a shortest cycle."""
    found: dict[str, str] = {}
    for module in sorted(graph.modules):
        for imported in sorted(graph.find_modules_directly_imported_by(module)):
            if chain := graph.find_shortest_chain(importer=imported, imported=module):
                cycle = " -> ".join((module, *chain)).replace(f"{PACKAGE}.", "")
                found.setdefault(module.removeprefix(f"{PACKAGE}."), cycle)
    return found


class TestCycles:
    def test_no_module_is_in_an_import_cycle(self, cyclic: dict[str, str]) -> None:
        assert [cycle for module, cycle in cyclic.items() if module not in CYCLIC_MODULES] == []

    def test_table_names_only_modules_that_are_in_a_cycle(self, cyclic: dict[str, str]) -> None:
        assert CYCLIC_MODULES - cyclic.keys() == set()

    def test_imports_for_types_and_in_functions_count(self, graph: ImportGraph) -> None:
        assert graph.direct_import_exists(importer=f"{PACKAGE}.sensors", imported=f"{PACKAGE}.sensors.otp")
        assert graph.direct_import_exists(importer=f"{PACKAGE}.sensors.otp", imported=f"{PACKAGE}.hooks.cpaas")


@pytest.fixture(scope="module")
def entries() -> dict[str, int]:
    """Return how many entries each folder shows."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "."]
    listed = subprocess.run(command, cwd=PROVIDER, capture_output=True, text=True, check=True).stdout
    shown: defaultdict[str, set[str]] = defaultdict(set)
    for path in map(Path, listed.splitlines()):
        if (PROVIDER / path).is_file():
            for folder in path.parents:
                shown[folder.as_posix()].add(path.relative_to(folder).parts[0])
    return {folder: len(names) for folder, names in shown.items()}


class TestFolders:
    def test_no_folder_shows_more_entries_than_a_reader_takes_in(self, entries: dict[str, int]) -> None:
        allowed = {folder: most for folder, (most, _) in LARGER_FOLDERS.items()}
        assert {one: count for one, count in entries.items() if count > allowed.get(one, MAX_ENTRIES)} == {}

    def test_table_names_only_folders_that_need_it(self, entries: dict[str, int]) -> None:
        assert [one for one in LARGER_FOLDERS if entries.get(one, 0) <= MAX_ENTRIES] == []


@pytest.fixture(scope="module")
def boxes() -> list[str]:
    return [one.attrib["data-module"] for one in elements("rect") if "data-module" in one.attrib]


@pytest.fixture(scope="module")
def arrows() -> list[tuple[str, str]]:
    pairs = [one.attrib["data-imports"].split() for one in elements("path") if "data-imports" in one.attrib]
    return [(importer, imported) for importer, imported in pairs]


class TestPicture:
    """Boxes of the picture name a package or module in ``data-module``, arrows name importer and imported."""

    def test_every_box_is_a_package_or_module(self, boxes: list[str], graph: ImportGraph) -> None:
        assert len(boxes) >= 7
        assert [one for one in boxes if f"{PACKAGE}.{one}" not in graph.modules] == []

    def test_every_arrow_between_boxes_is_an_import(
        self, arrows: list[tuple[str, str]], boxes: list[str], graph: ImportGraph
    ) -> None:
        assert len(arrows) >= 6
        assert {name for arrow in arrows for name in arrow} <= set(boxes)
        assert [arrow for arrow in arrows if not imports(graph, *arrow)] == []

    def test_every_import_between_boxes_is_an_arrow(
        self, arrows: list[tuple[str, str]], boxes: list[str], graph: ImportGraph
    ) -> None:
        outer = [one for one in boxes if not any(one.startswith(f"{other}.") for other in boxes)]
        pairs = [(a, b) for a in outer for b in outer if a != b and b not in SHARED]
        assert [pair for pair in pairs if pair not in arrows and imports(graph, *pair)] == []


SHARED = {"api", "database"}
"""Boxes that packages on all sides import: the picture has arrows on the way of a message only."""


def elements(tag: str) -> list[ElementTree.Element]:
    """Return the elements of the picture."""
    return list(ElementTree.parse(PICTURE).iter(f"{{http://www.w3.org/2000/svg}}{tag}"))


def imports(graph: ImportGraph, importer: str, imported: str) -> bool:
    """Return whether a module of one box imports a module of another; a box inside the other is not part of it."""

    def modules(box: str, other: str) -> set[str]:
        name, apart = f"{PACKAGE}.{box}", f"{PACKAGE}.{other}"
        found = {name, *graph.find_descendants(name)}
        inside = {apart, *graph.find_descendants(apart)} if apart.startswith(f"{name}.") else set()
        return found - inside

    targets = modules(imported, importer)
    return any(graph.find_modules_directly_imported_by(one) & targets for one in modules(importer, imported))


class TestPage:
    def test_every_function_of_the_walk_exists(self) -> None:
        assert page_names()
        for name in page_names():
            module, attributes = split(name)
            found: Any = importlib.import_module(module)
            for attribute in attributes:
                assert hasattr(found, attribute), f"{PAGE.name} names {name}, and {module} has no {attribute}."
                found = getattr(found, attribute)

    def test_every_walk_goes_where_imports_go(self, graph: ImportGraph) -> None:
        walks = [NAME.findall(one) for one in re.split("^## ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)]
        assert len([walk for walk in walks if len(walk) > 5]) == 2
        for first, *rest in filter(None, walks):
            start = split(first)[0]
            for module in (split(name)[0] for name in rest):
                chain = graph.find_shortest_chain(importer=start, imported=module)
                assert module == start or chain, f"{PAGE.name} walks to {module}, which {start} does not import."

    def test_every_function_stands_on_the_page_once(self) -> None:
        names = page_names()
        assert sorted(names) == sorted(set(names))

    def test_every_file_exists(self) -> None:
        files = FILE.findall(PAGE.read_text(encoding="utf-8"))
        assert files
        assert [one for one in files if not (PROVIDER / PACKAGE / one).is_file()] == []
