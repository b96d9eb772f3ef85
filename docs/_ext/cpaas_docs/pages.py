"""Pages with generated parts, which lie in the repository as Markdown that every reader shows.

A page names a part in a comment. ``make reference`` writes the part below it, and a test compares both:

.. code-block:: text

    <!-- generated: class cpaas_provider.operators.SendSmsOperator -->
    ...
    <!-- end of generated -->

The list of all messages is longer than a reader needs outside of the site's search. Its page has blocks that are filled
in when the site is built:

.. code-block:: text

    ```{reference} messages sends
    ```
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from cpaas_docs import argument_index, commands, examples, layers, messages, promises, readings, signatures, tables

DOCS = Path(__file__).parents[2]
BLOCK = re.compile(r"^```\{reference\} (?P<kind>[\w-]+) ?(?P<rest>.*)\n```$", re.MULTILINE)
PART = re.compile(
    r"^<!-- generated: (?P<kind>[\w-]+) ?(?P<rest>.*?) -->\n(?P<text>.*?)^<!-- end of generated -->$",
    re.MULTILINE | re.DOTALL,
)

_MAKERS: dict[str, Callable[..., Iterator[str]]] = {
    "class": signatures.described,
    "function": signatures.described,
    "package": signatures.package,
    "methods": signatures.methods,
    "options": signatures.options,
    "errors": signatures.errors,
    "contents": signatures.contents,
    "arguments": argument_index.arguments,
    "connection": tables.connection,
    "configuration": tables.configuration,
    "metrics": tables.metrics,
    "columns": tables.columns,
    "values": tables.values,
    "commands": commands.commands,
    "examples": examples.examples,
    "example": examples.example,
    "messages": messages.section,
    "layers": layers.layers,
    "promises": promises.promises,
    "recipients": readings.recipients,
    "cells": readings.cells,
    "files": readings.files,
}


@dataclass(frozen=True)
class Part:
    """One generated part of a page.

    :param kind: which maker makes it
    :param rest: what the maker is given
    """

    kind: str
    rest: tuple[str, ...]

    def make(self) -> str:
        """Return its Markdown.

        :raises LookupError: when it names what is not there
        """
        if self.kind not in _MAKERS:
            raise LookupError(f"There is no generated part of kind {self.kind}; there are {', '.join(_MAKERS)}.")
        lines = _MAKERS[self.kind](*(int(word) if word.isdigit() else word for word in self.rest))
        return "\n".join(lines).strip("\n")


def parts_of(text: str) -> list[Part]:
    """Return the generated parts of a page."""
    return [Part(found["kind"], tuple(found["rest"].split())) for found in PART.finditer(text)]


def regenerated(text: str) -> str:
    """Return a page with its generated parts as the code has them now."""

    def part(found: re.Match[str]) -> str:
        head = found.group().partition("\n")[0]
        made = Part(found["kind"], tuple(found["rest"].split())).make()
        return f"{head}\n\n{made}\n\n<!-- end of generated -->"

    return PART.sub(part, text)


def handwritten(text: str) -> str:
    """Return a page without its generated parts; each line stays on its number."""
    return PART.sub(lambda found: "\n" * found.group().count("\n"), text)


def expanded(text: str) -> str:
    """Return a page with what is filled in when the site is built."""
    return BLOCK.sub(lambda block: Part(block["kind"], tuple(block["rest"].split())).make(), text)


def generated_pages() -> list[Path]:
    """Return every page that has generated parts."""
    return sorted(page for page in DOCS.rglob("*.md") if PART.search(page.read_text(encoding="utf-8")))


def write() -> list[Path]:
    """Write the generated parts of all pages, and return the pages that changed."""
    changed = []
    for page in generated_pages():
        before = page.read_text(encoding="utf-8")
        after = regenerated(before)
        if after != before:
            page.write_text(after, encoding="utf-8")
            changed.append(page)
    return changed


if __name__ == "__main__":
    for path in write():
        sys.stdout.write(f"Wrote {path.relative_to(DOCS.parent)}\n")
