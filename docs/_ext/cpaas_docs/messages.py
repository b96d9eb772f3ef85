"""Every message of a failure or a warning, collected from the code, and the page that has its entry.

A message is found where it is raised, where it is logged as a warning or an error, and where a sentence is kept for
one of these. What is filled in at run time is shown as ``…``. The page of troubleshooting has entries that are written
for readers, each with words of its message. All other messages have an entry on a page for the search alone.
"""

from __future__ import annotations

import ast
import builtins
import functools
import importlib
import inspect
import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from cpaas_docs import docstrings
from cpaas_docs.signatures import PACKAGE

SOURCE = Path(importlib.import_module(PACKAGE).__file__ or "").parent
GAP = "…"
TROUBLESHOOTING = Path(__file__).parents[2] / "operations" / "troubleshooting.md"
ALL_MESSAGES = "operations/all-messages"

# They hold texts that have pages of their own.
_NO_MESSAGES = (
    *("cli/__init__.py", "cli/contacts/commands.py", "cli/deliveries/commands.py"),
    *("cli/messages/commands.py", "cli/sandbox.py", "provider_info.py"),
    *("delivery/receiver/openapi.py", "hooks/metrics.py", "database/migrations/env.py"),
)

_LOGGED = {"warning": "warning", "error": "error", "exception": "error"}
_QUIET = {"info", "debug", "log"}
_INTERNAL = {"NotImplementedError", "AssertionError", "AttributeError", "RuntimeError", "TypeError", "RefusalError"}
_PERCENT = re.compile(r"%(?:\.\d+)?[sdrgf%]")
_BRACES = re.compile(r"\{[^{}]*\}")
_NOT_DONE = re.compile(r"\bNothing was (?:sent|done|changed|looked up)\b")
_WELL = re.compile(
    r"(?:[Rr]esolved as|Removed|Moved|Added|Erased|Recorded|Deleted|Connected|Checked|Planned|Campaign …, all tries|"
    r"Contact sync ended|A?\s?[Dd]ry run|Receiving|Sending|Next:|List entries|Add |Remove |Write every|Of … recipients|"
    r"The list equals|No unresolved|The task has succeeded|They are not sent again|The service accepted it|Stopping\.|"
    r"An earlier run with this --idempotency-key sent it|The import would add|The next sync (?:sends|mends)|"
    r"The database … is up to date|The contact map has no unknown|Resolve |Remove … with|Delete the record|"
    r"The task's next try sends|With results_path|The results file has each)"
)
"""What a command or a log shows while all is well, and what a command asks before it acts."""
_SHORTEST_SENTENCE = 20
_LONGEST_TITLE = 90
_FEWEST_WORDS = 3
_FEWEST_WORDS_OF_A_TITLE = 5

EFFECTS = {
    "warning": "A warning in the log. The task continues.",
    "error": "An error in the log; the failure itself follows it.",
    "text": "",
    "AirflowException": "The task failed. Airflow retries it by its `retries`.",
    "AirflowFailException": "The task failed permanently. Airflow does not retry it, because a retry would not help.",
    "AirflowSkipException": "The task was skipped. Its XCom `skip_reason` has the reason.",
    "AirflowSensorTimeout": "The sensor's `timeout` is over.",
    "SystemExit": "The command ended with an exit status other than 0.",
    "ValueError": "An argument cannot work. Correct it in the DAG file.",
    "OSError": "The operating system refused it.",
}
"""What a message does to the task, by how it is raised; errors of ours say it in their docstring."""

SUBJECTS: tuple[tuple[str, str], ...] = (
    (r"^(hooks|api/settings|api/http/transport|api/recipients/reader)", "connection"),
    (r"otp|sending/requests/phone", "passcodes"),
    (r"airtime", "airtime"),
    (r"^contacts/|(operators|tasks)/contact", "contacts"),
    (r"^cli/|by_hand|resolution", "command-line"),
    (r"^(store|database)/|tasks/database/", "database"),
    (r"^sources/|^task_groups/undelivered", "sources"),
    (r"^(delivery|assets|links|plugin)|sensors/|triggers/|tasks/delivery/|concerned|pages/", "delivery"),
    (r"^notifications/", "notifications"),
    (r"campaign|^task_groups/", "campaigns"),
    (r"^(api|operators|tasks|sending/requests)/", "sends"),
    (r"^sending/|^_common", "journal"),
)
"""Which part of the code a message comes from says which section it stands in; the first pattern that fits counts."""


@dataclass(frozen=True)
class Message:
    """One message, with what is filled in at run time left out.

    :param text: the message, on one line
    :param kind: the name of the error it is raised as, ``warning`` or ``error`` of a log, or ``text``
    :param module: the file below the package
    :param effect: what it does to the task
    """

    text: str
    kind: str
    module: str
    effect: str

    @property
    def subject(self) -> str:
        """The section of the page.

        :raises LookupError: when no pattern fits the module
        """
        for pattern, subject in SUBJECTS:
            if re.search(pattern, self.module):
                return subject
        raise LookupError(f"{self.module} has messages, and SUBJECTS has no section for it.")

    @property
    def is_sentence(self) -> bool:
        """Whether it stands by itself, rather than behind the name of a value."""
        start = self.text.lstrip(f"{GAP}'\"[`( :")
        return (
            bool(start)
            and (start[0].isupper() or self.text.rstrip().endswith("."))
            and len(self.text) > _SHORTEST_SENTENCE
            and len(self.words) >= _FEWEST_WORDS
        )

    @property
    def title(self) -> str:
        """The first words."""
        first, *others = re.split(r"(?<=[.:;]) ", self.text)
        for other in others:
            if len(re.findall(r"[A-Za-z_]{2,}", _NOT_DONE.sub("", first))) >= _FEWEST_WORDS_OF_A_TITLE:
                break
            first += f" {other}"
        first = first.rstrip(".:; ")
        if len(first) > _LONGEST_TITLE:
            first = first[:_LONGEST_TITLE].rpartition(" ")[0] + " ..."
        return first

    @property
    def target(self) -> str:
        """The anchor on the page."""
        return "message-" + "-".join(re.findall(r"[a-z0-9]+", self.text.lower())[:14])

    @property
    def words(self) -> list[str]:
        """What a search compares."""
        return re.findall(r"[a-z0-9_]+", self.text.lower())


@functools.cache
def collect() -> tuple[Message, ...]:
    """Return every message of the package, each once."""
    found: dict[str, Message] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        module = path.relative_to(SOURCE).as_posix()
        if not module.startswith(_NO_MESSAGES):
            for message in messages_of(path, module):
                found.setdefault(_spelling(message.text), message)
    return tuple(message for message in found.values() if not is_success(message))


def is_success(message: Message) -> bool:
    """Return whether a text is shown while all is well, rather than as an error or a warning."""
    return message.kind == "text" and _WELL.match(message.text.lstrip("… ")) is not None


@dataclass(frozen=True)
class Entry:
    """An entry of the page of troubleshooting.

    :param title: its heading
    :param words: words of the message, as the code has them
    """

    title: str
    words: str
    cause: str
    remedy: str

    @property
    def link(self) -> str:
        """Where it is on the site."""
        slug = re.sub(r"[^\w\- ]", "", self.title.lower()).replace(" ", "-")
        return f"operations/troubleshooting.html#{slug}"


@functools.cache
def entries() -> tuple[Entry, ...]:
    """Return the entries that are written for readers."""
    found = re.finditer(
        r"^### (.+)\n\n```text\n(.+)\n```\n\n\* \*\*Cause:\*\* (.+(?:\n  .+)*)\n\* \*\*Remedy:\*\* (.+(?:\n  .+)*)\n",
        TROUBLESHOOTING.read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    return tuple(Entry(*entry.groups()) for entry in found)


def link_of(message: Message) -> str:
    """Return where a message has its entry: the one for readers, or the one for the search."""
    for entry in entries():
        if entry.words in message.text:
            return entry.link
    return f"{ALL_MESSAGES}.html#{message.target}"


def messages_of(path: Path, module: str) -> Iterator[Message]:
    """Yield the messages of one file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    dotted = ".".join([PACKAGE, *module.removesuffix(".py").split("/")]).removesuffix(".__init__")
    reader = _Reader(importlib.import_module(dotted))
    taken: set[int] = set()
    for node in ast.walk(tree):
        for kind, expression in _spoken(node):
            taken.update(map(id, ast.walk(expression)))
            for text in reader.texts(expression):
                shown = _PERCENT.sub(GAP, text) if kind in _LOGGED.values() else text
                if _says_something(shown):
                    yield Message(shown, kind, module, reader.effect(kind))
    for text in filter(_says_something, reader.sentences(tree, taken)):
        yield Message(text, "text", module, "")


def section(subject: str) -> Iterator[str]:
    """Yield the entries of one section: sentences first, then what is said of values."""
    chosen = sorted((one for one in collect() if one.subject == subject), key=lambda one: _alphabetical(one.text))
    anchors: set[str] = set()
    for message in (one for one in chosen if one.is_sentence):
        if message.target not in anchors:
            yield f"({message.target})="
        anchors.add(message.target)
        yield f"### {_escaped(message.title)}"
        yield ""
        yield "```text"
        yield message.text
        yield "```"
        yield ""
        if message.effect:
            yield message.effect
            yield ""
    fragments = [one for one in chosen if not one.is_sentence]
    if fragments:
        yield f"### Refused values ({subject.replace('-', ' ')})"
        yield ""
        yield "The message begins with the argument, field or column it is about:"
        yield ""
        for message in fragments:
            yield f"- {_escaped(message.text)}"
        yield ""


def subjects() -> list[str]:
    """Return the sections there are."""
    return list(dict.fromkeys(subject for _, subject in SUBJECTS))


class _Reader:
    """Reads the texts an expression can come to, as far as they stand in the code."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module

    def texts(self, expression: ast.expr | None) -> list[str]:
        """Return the texts an expression can come to; what is filled in is a gap."""
        return [" ".join(text.split()) for text in self._read(expression)]

    def sentences(self, tree: ast.AST, taken: Iterable[int]) -> Iterator[str]:
        """Yield sentences that are kept elsewhere than where they are raised or logged."""
        skipped = {*taken, *_not_messages(tree)}
        inner: set[int] = set()
        for node in ast.walk(tree):
            if id(node) in skipped or id(node) in inner or not isinstance(node, (ast.JoinedStr, ast.Constant)):
                continue
            inner.update(map(id, ast.walk(node)))
            for found in self.texts(node):
                text = " ".join(_PERCENT.sub(GAP, _BRACES.sub(GAP, found)).split())
                if len(text) > _SHORTEST_SENTENCE and text[0].isupper() and text.endswith(".") and " " in text:
                    yield text

    def effect(self, kind: str) -> str:
        """Return what a message of this kind does: by the error's own docstring, or as the table says."""
        known = EFFECTS.get(kind)
        if known is not None:
            return known
        found = getattr(self._module, kind, None) or getattr(builtins, kind, None)
        if inspect.isclass(found) and found.__module__.startswith(PACKAGE):
            return f"`{kind}`: {docstrings.first_sentence(found)}"
        return ""

    def _read(self, node: ast.expr | None) -> list[str]:
        if isinstance(node, ast.Constant):
            return [node.value] if isinstance(node.value, str) else []
        if isinstance(node, ast.JoinedStr):
            return _joined([self._read(part) or [GAP] for part in node.values])
        if isinstance(node, ast.FormattedValue):
            return self._read(node.value) if isinstance(node.value, ast.Name) else [GAP]
        if isinstance(node, ast.IfExp):
            return [*self._read(node.body), *self._read(node.orelse)]
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            return _joined([self._read(node.left) or [GAP], self._read(node.right) or [GAP]])
        if isinstance(node, ast.Name):
            value = getattr(self._module, node.id, None)
            return [value] if isinstance(value, str) else []
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
            table = getattr(self._module, node.value.id, None)
            return [one for one in table.values() if isinstance(one, str)] if isinstance(table, dict) else []
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "format":
            return [_BRACES.sub(GAP, text) for text in self._read(node.func.value)]
        return []


def _spoken(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """Yield what a statement says, and how: as which error, or at which level of a log."""
    if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args:
        kind = _name(node.exc.func)
        if kind not in _INTERNAL:
            yield kind, node.exc.args[0]
    elif isinstance(node, ast.Return) and isinstance(node.value, ast.Call) and node.value.args:
        kind = _name(node.value.func)
        if kind.endswith("Error") and kind not in _INTERNAL:
            yield kind, node.value.args[0]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
        level = _LOGGED.get(node.func.attr)
        if level and "log" in ast.unparse(node.func.value).lower():
            said = node.args[1] if _is_bare(node.args[0]) and len(node.args) > 1 else node.args[0]
            yield level, said


def _not_messages(tree: ast.AST) -> Iterator[int]:
    """Yield the ids of nodes that hold no message: docstrings, and what is logged while all is well."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield id(node.value)
        if isinstance(node, ast.Raise) or (
            isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _QUIET
        ):
            yield from map(id, ast.walk(node))


def _is_bare(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value == "%s"


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else "text"


def _joined(parts: list[list[str]]) -> list[str]:
    return ["".join(choice) for choice in itertools.islice(itertools.product(*parts), 8)]


def _says_something(text: str) -> bool:
    """Return whether a text has words of its own; one that only adds what was not done wraps another message."""
    return len(re.findall(r"[A-Za-z_]{2,}", _NOT_DONE.sub("", text))) > 1


def _spelling(text: str) -> str:
    return re.sub(rf"[{GAP}\W]+", " ", text).strip().lower()


def _alphabetical(text: str) -> str:
    return text.lstrip(f"{GAP}'\"[`( :").lower()


def _escaped(text: str) -> str:
    return re.sub(r"([\\`*_{}\[\]<>#|$])", r"\\\1", text)


def as_json() -> list[dict[str, Any]]:
    """Return what the site's search knows of messages."""
    return [{"title": one.title, "link": link_of(one), "words": one.words} for one in collect() if one.is_sentence]
