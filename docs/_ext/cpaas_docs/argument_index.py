"""Every argument of every public class, in alphabetical order, with what takes it."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

from cpaas_docs import signatures

PAGES = {
    "operators": "operators.md",
    "sensors": "sensors.md",
    "notifications": "notifiers.md",
    "task_groups": "operators.md",
}
"""The packages whose arguments a DAG author looks up, and the page that has their entries."""


def takers() -> dict[str, list[tuple[str, str]]]:
    """Return, for each argument, what takes it: the name, and the page of its entry."""
    found: dict[str, list[tuple[str, str]]] = {}
    for package, page in PAGES.items():
        for name in signatures.public_names()[package]:
            what = signatures.find(f"{signatures.PACKAGE}.{package}.{name}")
            starred = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
            for one in signatures.arguments(what):
                if one.kind not in starred:
                    found.setdefault(one.name, []).append((name, page))
    return dict(sorted(found.items()))


def arguments() -> Iterator[str]:
    """Yield a line for each argument."""
    for argument, names in takers().items():
        links = (f"[`{name}`]({page}#{signatures.argument_anchor(name, argument)})" for name, page in sorted(names))
        yield f"* `{argument}`: {', '.join(links)}"
