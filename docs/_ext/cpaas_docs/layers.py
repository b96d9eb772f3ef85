"""The layers of the package, from the contract that CI checks and the packages' own docstrings."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

from cpaas_docs import docstrings
from cpaas_docs.messages import SOURCE

PYPROJECT = Path(__file__).parents[3] / "pyproject.toml"


def contract() -> list[list[str]]:
    """Return the packages of each layer, the highest first."""
    config = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["tool"]["importlinter"]
    (layered,) = [
        one for one in config["contracts"] if one["type"] == "layers" and "cpaas_provider" in one["containers"]
    ]
    return [re.findall(r"\w+", layer) for layer in layered["layers"]]


def layers() -> Iterator[str]:
    """Yield a table of the layers and what each package holds."""
    yield "| Layer | Package | What it holds |"
    yield "|---|---|---|"
    packages = contract()
    for number, names in zip(range(len(packages), 0, -1), packages, strict=True):
        for name in names:
            if said := _first_sentence(name):
                yield f"| {number} | `{name}` | {said} |"
    yield ""


def _first_sentence(name: str) -> str:
    """Return what a package says of itself; nothing where the contract allows for one that is not there yet."""
    for path in (SOURCE / name / "__init__.py", SOURCE / f"{name}.py"):
        if path.is_file():
            doc = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
            return docstrings.one_line(doc.split("\n\n")[0])
    return ""
