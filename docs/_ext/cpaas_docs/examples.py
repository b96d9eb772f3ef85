"""The example DAGs, each shown whole."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

FOLDER = Path(__file__).parents[3] / "example_dags"


def files() -> list[Path]:
    """Return the files that hold an example DAG."""
    return sorted(FOLDER.glob("*.py"))


def examples() -> Iterator[str]:
    """Yield a section for each example, with its own words and its code."""
    for path in files():
        first = (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or path.stem).splitlines()[0]
        yield f"(example-{path.stem.replace('_', '-')})="
        yield f"## `{path.stem}`"
        yield ""
        yield first
        yield ""
        yield f"```{{literalinclude}} ../../example_dags/{path.name}"
        yield ":language: python"
        yield "```"
        yield ""
