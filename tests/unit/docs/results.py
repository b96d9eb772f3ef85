"""The keys of a task's result, as the docstring of its operator or sensor lists them."""

from __future__ import annotations

import re

import tests.unit.docs  # noqa: F401 - it adds the folder of the next import to the path

from cpaas_docs import docstrings  # isort: skip

_KEY = re.compile(r"^\| `(\w+)` \| \S.*\|$", re.MULTILINE)


def documented_keys(kind: type) -> set[str]:
    """Return the keys in the table of what a class returns, each of which has a line of its own."""
    keys: list[str] = _KEY.findall(docstrings.read(kind).returned)
    assert keys, f"{kind.__name__} has no table of its result"
    assert len(keys) == len(set(keys)), f"{kind.__name__} lists a key twice"
    return set(keys)
