"""Pages with generated parts: what a page names in a ``reference`` block is put in its place as Markdown.

.. code-block:: text

    ```{reference} class cpaas_provider.operators.SendSmsOperator
    ```
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from cpaas_docs import commands, examples, layers, messages, readings, signatures, tables

BLOCK = re.compile(r"^```\{reference\} (?P<kind>[\w-]+) ?(?P<rest>.*)\n```$", re.MULTILINE)

_MAKERS: dict[str, Callable[..., Iterator[str]]] = {
    "class": signatures.described,
    "function": signatures.described,
    "package": signatures.package,
    "shared": lambda name, *title: signatures.shared(name, " ".join(title)),
    "methods": signatures.methods,
    "options": signatures.options,
    "errors": signatures.errors,
    "connection": tables.connection,
    "configuration": tables.configuration,
    "metrics": tables.metrics,
    "columns": tables.columns,
    "values": tables.values,
    "commands": commands.commands,
    "examples": examples.examples,
    "messages": messages.section,
    "layers": layers.layers,
    "recipients": readings.recipients,
    "cells": readings.cells,
    "files": readings.files,
}


def expanded(text: str) -> str:
    """Return a page with its generated parts in place.

    :raises LookupError: when a block names what is not there
    """
    return BLOCK.sub(lambda block: "\n".join(_made(block["kind"], block["rest"].split())), text)


def _made(kind: str, rest: list[str]) -> Iterator[str]:
    if kind not in _MAKERS:
        raise LookupError(f"There is no reference block of kind {kind}; there are {', '.join(_MAKERS)}.")
    return _MAKERS[kind](*(int(word) if word.isdigit() else word for word in rest))
