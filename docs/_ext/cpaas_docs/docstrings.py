"""Docstrings as Markdown: the text, each parameter's sentence, what is returned and raised."""

from __future__ import annotations

import inspect
import re
import textwrap
from dataclasses import dataclass
from typing import Any

_FIELD = re.compile(r"^:(?P<name>param|returns?|raises?) ?(?P<what>[\w.]*): ?", re.MULTILINE)
_CODE = re.compile(r"^\.\. code-block:: (\w+)\n\n((?:(?: {2,}.*)?\n?)+)", re.MULTILINE)
_DOUBLE_TICKS = re.compile(r"(?<!`)``(?!`)")
_CONTRACT = re.compile(r"\s*\(contract\.md[^)]*\)")


@dataclass(frozen=True)
class Docstring:
    """What a docstring says, taken apart.

    :param text: everything before the first field, as Markdown
    :param params: the sentence of each parameter, on one line
    :param returned: what is returned, as Markdown; empty where nothing is said
    :param raised: when each error is raised
    """

    text: str
    params: dict[str, str]
    returned: str
    raised: dict[str, str]


def read(documented: Any) -> Docstring:
    """Take the docstring of a class, function or method apart."""
    doc = _own_doc(documented) if isinstance(documented, type) else inspect.getdoc(documented) or ""
    fields = list(_FIELD.finditer(doc))
    text = doc[: fields[0].start()] if fields else doc
    params: dict[str, str] = {}
    raised: dict[str, str] = {}
    returned = ""
    for field, following in zip(fields, [*fields[1:], None], strict=False):
        words = doc[field.end() : following.start() if following else None]
        if field["name"] == "param":
            params[field["what"]] = one_line(words)
        elif field["name"].startswith("return"):
            returned = as_markdown(inspect.cleandoc(words))
        else:
            raised[field["what"]] = one_line(words)
    return Docstring(as_markdown(text), params, returned, raised)


def as_markdown(text: str) -> str:
    """Return the text of a docstring as Markdown: code blocks fenced, double backticks single."""
    text = _CODE.sub(lambda block: f"```{block[1]}\n{textwrap.dedent(block[2]).strip()}\n```\n", text.strip() + "\n")
    return _CONTRACT.sub("", _DOUBLE_TICKS.sub("`", text)).strip()


def one_line(text: str) -> str:
    """Return a sentence of a docstring as one line of Markdown."""
    return as_markdown(" ".join(text.split()))


def first_sentence(documented: Any) -> str:
    """Return the first paragraph of a docstring as one line."""
    return one_line((inspect.getdoc(documented) or "").split("\n\n")[0])


def _own_doc(kind: type) -> str:
    """Return a class' own docstring: one that is inherited is about something else."""
    return inspect.cleandoc(kind.__dict__.get("__doc__") or "")
