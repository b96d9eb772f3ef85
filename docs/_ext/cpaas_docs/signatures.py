"""The public classes and functions as Markdown: what they take, with type, default and sentence."""

from __future__ import annotations

import functools
import importlib
import inspect
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from enum import Enum
from typing import Any, Literal, get_args, get_origin

from msgspec import Struct

from cpaas_docs import docstrings
from cpaas_docs.docstrings import Docstring

PACKAGE = "cpaas_provider"
PUBLIC = ("operators", "sensors", "notifications", "task_groups", "sources", "assets", "api")
"""The packages whose ``__all__`` is public."""

SHARED_TITLES = {
    "SendOperator": "Arguments of every send, passcode and purchase",
    "CampaignOperator": "Arguments of both campaigns",
    "ContactRowOperator": "Arguments of rows that are created",
    "CpaasNotifier": "Arguments of both notifiers",
}
"""Base classes whose arguments follow those of the class itself, and the title above them."""

_ENVELOPE = re.compile(r"^Call\[(.*)\]$")


def find(path: str) -> Any:
    """Return what a dotted path names.

    :raises LookupError: when there is no such thing
    """
    module, _, name = path.rpartition(".")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise LookupError(f"The reference names {path}, which is not there.") from error


@functools.cache
def public_names() -> dict[str, tuple[str, ...]]:
    """Return the names each public package exports."""
    return {name: tuple(importlib.import_module(f"{PACKAGE}.{name}").__all__) for name in PUBLIC}


def described(path: str, level: int = 3) -> Iterator[str]:
    """Yield the entry of one public class or function."""
    what = find(path)
    doc = docstrings.read(what)
    yield from _head(what.__name__, level)
    yield f"`from {path.rpartition('.')[0]} import {what.__name__}`"
    yield ""
    if not inspect.isclass(what):
        yield from _signature(what, what.__name__)
    yield doc.text
    yield ""
    if inspect.isclass(what) and issubclass(what, Enum):
        yield "Values: " + ", ".join(f"`{member.value}`" for member in what) + "."
        yield ""
        return
    if inspect.isclass(what) or doc.params:
        for title, taken in arguments_by_class(what):
            yield from _title(title)
            yield from parameters(taken, _documentation(what), what.__name__)
    yield from _returned(doc)


def contents(*packages: str) -> Iterator[str]:
    """Yield a table of what public packages export, each with its first sentence."""
    yield "| Name | What it is |"
    yield "|---|---|"
    for package in packages:
        for name in _in_order(package):
            first = docstrings.first_sentence(find(f"{PACKAGE}.{package}.{name}"))
            yield f"| [`{name}`](#{anchor_of(name)}) | {first} |"


def package(name: str, level: int = 3) -> Iterator[str]:
    """Yield the entry of every name that a public package exports, classes first."""
    for member in _in_order(name):
        yield from described(f"{PACKAGE}.{name}.{member}", level)


def methods(path: str, level: int = 4) -> Iterator[str]:
    """Yield an entry for each public method that a class of ours defines."""
    kind = find(path)
    for name in method_names(kind):
        owner = f"{kind.__name__}.{name}"
        method = inspect.unwrap(getattr(kind, name))
        doc = docstrings.read(method)
        yield from _head(owner, level)
        yield from _signature(method, name)
        yield doc.text
        yield ""
        taken = [one for one in _parameters_of(method) if one.name in doc.params]
        yield from _title("Arguments" if taken else "")
        yield from parameters(taken, doc.params, owner)
        yield from _returned(doc)


def method_names(kind: type) -> list[str]:
    """Return the public methods a class of ours defines, in their order."""
    return [name for name, value in vars(kind).items() if not name.startswith("_") and inspect.isroutine(value)]


def options(path: str) -> Iterator[str]:
    """Yield what a data class takes."""
    kind = find(path)
    yield from parameters(_fields_of(kind), docstrings.read(kind).params, kind.__name__)


def errors(path: str, level: int = 3) -> Iterator[str]:
    """Yield an entry for each error of a tree, the base first."""
    base = find(path)
    for kind in _tree(base):
        doc = docstrings.read(kind)
        yield from _head(kind.__name__, level)
        parent = kind.__mro__[1]
        yield doc.text + (
            "" if kind is base else f"\n\nA kind of [`{parent.__name__}`](#{anchor_of(parent.__name__)})."
        )
        yield ""


def parameters(taken: Iterable[inspect.Parameter], said: dict[str, str], owner: str) -> Iterator[str]:
    """Yield a list of parameters, each with an anchor of its own.

    :raises LookupError: when one has no sentence in the docstring
    """
    for one in taken:
        if one.name not in said:
            raise LookupError(f"{owner} takes {one.name}, of which its docstring has no :param.")
        kind = "" if one.annotation is inspect.Parameter.empty else f"`{_type(one.annotation)}`, "
        default = "required" if one.default is inspect.Parameter.empty else f"default {shown(one.default)}"
        anchor = f'<a id="{argument_anchor(owner, one.name)}"></a>'
        yield f"* {anchor}`{one.name}` ({kind}{default}): {said[one.name]}"
    yield ""


def anchor_of(name: str) -> str:
    """Return the anchor of a class, function or method: the one that a Git host gives to its heading."""
    return name.lower().replace(".", "")


def argument_anchor(owner: str, name: str) -> str:
    """Return the anchor of one argument."""
    return f"{anchor_of(owner)}-{name}"


def objects(kind: str, *rest: str) -> Iterator[tuple[str, str, str]]:
    """Yield the Python objects of a generated part: dotted name, kind of object, anchor."""
    paths = rest[:1] if kind in ("class", "function") else ()
    if kind == "package":
        paths = tuple(f"{PACKAGE}.{rest[0]}.{name}" for name in _in_order(rest[0]))
    for path in paths:
        what = find(path)
        role = "function" if not inspect.isclass(what) else "exception" if issubclass(what, Exception) else "class"
        yield path, role, anchor_of(what.__name__)
    if kind == "methods":
        for name in method_names(find(rest[0])):
            yield f"{rest[0]}.{name}", "method", anchor_of(f"{find(rest[0]).__name__}.{name}")
    if kind == "errors":
        home = rest[0].rpartition(".")[0]
        for error in _tree(find(rest[0])):
            yield f"{home}.{error.__name__}", "exception", anchor_of(error.__name__)


def arguments(what: Any) -> list[inspect.Parameter]:
    """Return what a class or function takes: of a class also from its bases in this package, not from Airflow's."""
    if not inspect.isclass(what):
        return _parameters_of(what)
    found: dict[str, inspect.Parameter] = {}
    for base in what.__mro__:
        for one in own_arguments(base):
            found.setdefault(one.name, one)
    return list(found.values())


def own_arguments(kind: type) -> list[inspect.Parameter]:
    """Return what a class of ours takes by its own ``__init__``."""
    if not kind.__module__.startswith(PACKAGE):
        return []
    if issubclass(kind, Struct):
        return _with_values(_fields_of(kind), vars(sys.modules[kind.__module__]))
    if "__init__" not in kind.__dict__:
        return []
    taken = _parameters_of(kind.__dict__["__init__"])
    starred = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    return [one for one in taken if one.name != "self" and one.kind not in starred]


def _fields_of(kind: type) -> list[inspect.Parameter]:
    """Return what a struct takes, with its types as they are written."""
    written: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        written |= vars(base).get("__annotations__", {})
    return [one.replace(annotation=written[one.name]) for one in inspect.signature(kind).parameters.values()]


def _parameters_of(function: Any) -> list[inspect.Parameter]:
    """Return what a function takes, with the values of a type that is a name for them."""
    names = getattr(inspect.unwrap(function), "__globals__", {})
    return _with_values(inspect.signature(function).parameters.values(), names)


def _with_values(taken: Iterable[inspect.Parameter], names: Mapping[str, Any]) -> list[inspect.Parameter]:
    return [
        one.replace(annotation=" | ".join(_values_of(names.get(kind), kind) for kind in one.annotation.split(" | ")))
        if isinstance(one.annotation, str)
        else one
        for one in taken
    ]


def _values_of(alias: object, name: str) -> str:
    return f"Literal[{', '.join(map(repr, get_args(alias)))}]" if get_origin(alias) is Literal else name


def shown(default: object) -> str:
    """Return a default as a person would write it."""
    if isinstance(default, timedelta):
        days, rest = divmod(default, timedelta(days=1))
        if rest:
            return f"{rest.total_seconds() / 60:g} minutes"
        return f"{days} day{'s' * (days != 1)}"
    if default == "":
        return "empty"
    return f"`{default}`" if isinstance(default, str) else f"`{default!r}`"


def _documentation(what: Any) -> dict[str, str]:
    """Return the sentence of each argument; the most derived class that says one counts."""
    said: dict[str, str] = {}
    for kind in reversed(what.__mro__ if inspect.isclass(what) else [what]):
        if getattr(kind, "__module__", "").startswith(PACKAGE):
            said |= docstrings.read(kind).params
    return said


def arguments_by_class(what: Any) -> list[tuple[str, list[inspect.Parameter]]]:
    """Return all arguments under titles: those of the class itself, then those of each base that has many to share."""
    every = arguments(what)
    if not inspect.isclass(what):
        return [("Arguments", every)] if every else []
    own = docstrings.read(what).params
    groups: list[tuple[str, list[inspect.Parameter]]] = []
    placed: set[str] = set()
    for base in what.__mro__[1:]:
        shared = [one for one in own_arguments(base) if one.name not in own and one.name not in placed]
        if base.__name__ in SHARED_TITLES and shared:
            names = {one.name for one in shared}
            placed |= names
            groups.append((SHARED_TITLES[base.__name__], [one for one in every if one.name in names]))
    first = [one for one in every if one.name not in placed]
    return ([("Arguments", first)] if first else []) + groups


def _in_order(package: str) -> list[str]:
    """Return the names that a public package exports, classes first."""
    return sorted(public_names()[package], key=lambda name: not inspect.isclass(find(f"{PACKAGE}.{package}.{name}")))


def _tree(base: type[BaseException]) -> Iterator[type[BaseException]]:
    yield base
    for kind in sorted(base.__subclasses__(), key=lambda one: one.__name__):
        if kind.__module__ == base.__module__:
            yield from _tree(kind)


def _head(title: str, level: int) -> Iterator[str]:
    yield f"{'#' * level} `{title}`"
    yield ""


def _title(title: str) -> Iterator[str]:
    if title:
        yield f"**{title}**"
        yield ""


def _signature(method: Any, name: str) -> Iterator[str]:
    """Yield how a method is called, a line a parameter where one line is too short."""
    signature = inspect.signature(method)
    taken = [one for one in signature.parameters.values() if one.name != "self"]
    returned = "" if signature.return_annotation is inspect.Signature.empty else f" -> {signature.return_annotation}"
    words, starred = [], False
    for one in taken:
        if one.kind is inspect.Parameter.KEYWORD_ONLY and not starred:
            words.append("*")
        starred = starred or one.kind in (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_POSITIONAL)
        words.append(str(one).replace("'", ""))
    keyword = "async def" if inspect.iscoroutinefunction(method) else "def"
    line = f"{keyword} {name}({', '.join(words)}){returned}"
    if len(line) > 88:
        line = f"{keyword} {name}(\n" + "".join(f"    {word},\n" for word in words) + f"){returned}"
    yield "```text"
    yield line
    yield "```"
    yield ""


def _returned(doc: Docstring) -> Iterator[str]:
    if doc.returned:
        yield f"**Returns** {doc.returned}" if "\n" not in doc.returned else f"**Returns**\n\n{doc.returned}"
        yield ""
    for name, when in doc.raised.items():
        yield f"**Raises** `{name}` {when}"
        yield ""


def _type(annotation: object) -> str:
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))
    return _ENVELOPE.sub(r"\1", text)
