"""The glossary as a check of names: words that no function, class, parameter, field or constant has in its name.

The words are those that the glossary replaced. A word that has another meaning in some name is not in the table.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

INSTEAD = {
    "agenda": "queue",
    "arrival arrivals": "received report",
    "ban bans banned": "suppress, suppression list",
    "came": "on_join, added",
    "claim claimed claims": "intent, pending",
    "complain complaint complaints": "log, warn",
    "deed deeds": "send spec",
    "desk": "report writer",
    "discreet": "redacted, masked",
    "disturb": "dnd",
    "door doors": "endpoint",
    "doubt doubted doubtful doubts": "unknown, unresolved",
    "edition": "resend_epoch",
    "evidence": "probe",
    "everybody everyone": "recipients",
    "fate fates": "recipient status",
    "happening happenings": "delivery event",
    "hear heard": "on_response, received",
    "hurry": "push_first",
    "judge judged verdict verdicts": "evaluate, classify; result",
    "keeper": "journal writer",
    "kept": "stored, retained",
    "lead": "set_link",
    "ledger": "journal",
    "linger": "idle",
    "nap": "sleep",
    "news": "payload, delivery event",
    "nobody somebody anybody": "a noun",
    "noted": "recorded",
    "pack packer packs": "batch, batcher",
    "patience": "timeout, max_wait",
    "people person persons": "recipients",
    "remember recall remembered": "cache",
    "said says": "reported, shown",
    "scrub": "redact",
    "settle settled settles": "resolve, result, accepted",
    "standing standings": "recipient status, journal index",
    "strange stranger strangers": "unknown, uncached",
    "tell telling tells teller told untold": "report, publish, return",
    "ticket tickets": "callback token",
    "trouble": "failure, backoff",
    "untimely": "stale run",
    "whoever whom whose": "a noun",
}
"""Words and what to use in their place."""

WORDS = {word: instead for words, instead in INSTEAD.items() for word in words.split()}

_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


class Name(NamedTuple):
    """A name that the package gives.

    :param line: where
    """

    text: str
    line: int


def words_of(name: str) -> list[str]:
    """Return the words of a name in snake case or camel case."""
    return [part.lower() for part in _PART.findall(name)]


def names_in(path: Path) -> Iterator[Name]:
    """Yield the functions, classes, parameters, fields and constants of a file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield Name(node.name, node.lineno)
            given = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs, node.args.vararg, node.args.kwarg)
            yield from (Name(one.arg, one.lineno) for one in given if one is not None)
        if isinstance(node, ast.ClassDef):
            yield Name(node.name, node.lineno)
        if isinstance(node, (ast.ClassDef, ast.Module)):
            yield from _assigned(node)


def faults(path: Path) -> dict[str, list[Name]]:
    """Return the names of a file that have a word of the table, by word."""
    found: dict[str, list[Name]] = {}
    for name in names_in(path):
        for word in words_of(name.text):
            if word in WORDS:
                found.setdefault(word, []).append(name)
    return found


def _assigned(node: ast.ClassDef | ast.Module) -> Iterator[Name]:
    for statement in node.body:
        targets = statement.targets if isinstance(statement, ast.Assign) else []
        if isinstance(statement, ast.AnnAssign):
            targets = [statement.target]
        yield from (Name(one.id, one.lineno) for one in targets if isinstance(one, ast.Name))
