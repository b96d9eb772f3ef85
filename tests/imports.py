"""What files import from other distributions, and which distribution a module comes from."""

from __future__ import annotations

import ast
import functools
import sys
from collections.abc import Mapping
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import NamedTuple

from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
OURS = {"cpaas_provider", "cpaas_sandbox", "airflow_provider_cpaas", "tests", "cpaas_docs", "dags"}
CALLS = {"import_module", "importorskip"}


class Import(NamedTuple):
    """An import statement, or a call that imports.

    :param is_optional: whether the module around it loads without this import: it is in a function, or for types only
    :param is_for_types: whether only type checkers follow it
    """

    module: str
    where: str
    is_optional: bool
    is_for_types: bool


class _Collector(ast.NodeVisitor):
    def __init__(self, where: str) -> None:
        self.imports: list[Import] = []
        self._where = where
        self._is_optional = self._is_for_types = False

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._add(alias.name, node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if not node.level and node.module:
            # "from airflow.providers import x" is about airflow.providers.x.
            for alias in node.names:
                self._add(f"{node.module}.{alias.name}", node)

    def visit_Call(self, node: ast.Call) -> None:
        called = getattr(node.func, "attr", getattr(node.func, "id", None))
        if called in CALLS and node.args and isinstance(node.args[0], ast.Constant):
            self._add(str(node.args[0].value), node, is_optional=called == "importorskip")
        self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        if "TYPE_CHECKING" in ast.unparse(node.test):
            self._is_for_types = True
            self._visit_optional(node)
            self._is_for_types = False
        else:
            self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._visit_optional(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._visit_optional(node)

    def _visit_optional(self, node: ast.AST) -> None:
        before, self._is_optional = self._is_optional, True
        self.generic_visit(node)
        self._is_optional = before

    def _add(self, module: str, node: ast.stmt | ast.expr, is_optional: bool = False) -> None:
        top = module.partition(".")[0]
        if top not in sys.stdlib_module_names and top not in OURS:
            where, is_optional = f"{self._where}:{node.lineno}", is_optional or self._is_optional
            self.imports.append(Import(module, where, is_optional, self._is_for_types))


def imports_of(*paths: Path) -> list[Import]:
    """Return the imports of other distributions in files, and in all files of folders."""
    collected = []
    for path in paths:
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            collector = _Collector(str(file.relative_to(ROOT) if file.is_relative_to(ROOT) else file.name))
            collector.visit(ast.parse(file.read_text(encoding="utf-8")))
            collected += collector.imports
    return collected


@functools.cache
def _installed() -> Mapping[str, set[str]]:
    return {top: {canonicalize_name(name) for name in names} for top, names in packages_distributions().items()}


def distributions_of(module: str) -> set[str]:
    """Return the distributions that a module may come from."""
    top, *parts = module.split(".")
    if top != "airflow":
        return _installed().get(top, {top})
    if parts[:1] != ["providers"]:
        return {"apache-airflow"}
    # Some have names of two parts, as common.sql.
    names = ["-".join(["apache-airflow-providers", *parts[1:end]]) for end in range(len(parts), 1, -1)]
    return {next((name for name in names if name in _installed()["airflow"]), names[-1])}
