"""The example DAGs, whole or a part of one."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator
from pathlib import Path

FOLDER = Path(__file__).parents[3] / "example_dags"


def files() -> list[Path]:
    """Return the files that hold an example DAG."""
    return sorted(FOLDER.glob("*.py"))


def examples() -> Iterator[str]:
    """Yield a section for each example, with its own words and its code."""
    for path in files():
        text = path.read_text(encoding="utf-8")
        first = (ast.get_docstring(ast.parse(text)) or path.stem).splitlines()[0]
        yield f"## `{path.stem}`"
        yield ""
        yield f"{first} File: [`{path.name}`](../../example_dags/{path.name})."
        yield ""
        yield "```python"
        yield text.rstrip()
        yield "```"
        yield ""


def example(name: str, mark: str = "") -> Iterator[str]:
    """Yield the code of one example.

    :param mark: show what is between ``[start mark]`` and ``[end mark]``
    :raises LookupError: when there is no such example, or it has no such marks
    """
    path = FOLDER / f"{name}.py"
    if path not in files():
        raise LookupError(f"There is no example DAG {name}.")
    lines = path.read_text(encoding="utf-8").splitlines()
    if mark:
        begin, end = (
            [number for number, line in enumerate(lines) if f"[{word} {mark}]" in line] for word in ("start", "end")
        )
        if len(begin) != 1 or len(end) != 1:
            raise LookupError(f"The example DAG {name} has no single part {mark}.")
        lines = lines[begin[0] + 1 : end[0]]
    yield "```python"
    yield textwrap.dedent("\n".join(lines)).strip("\n")
    yield "```"
