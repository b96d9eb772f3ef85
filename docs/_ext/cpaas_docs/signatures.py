"""The public classes and functions as Markdown: what they take, with type, default and sentence."""

from __future__ import annotations

import functools
import importlib
import inspect
import re
from collections.abc import Iterable, Iterator
from datetime import timedelta
from enum import Enum
from typing import Any

from cpaas_docs import docstrings
from cpaas_docs.docstrings import Docstring

PACKAGE = "cpaas_provider"
PUBLIC = ("operators", "sensors", "notifications", "sources", "assets", "api")
"""The packages whose ``__all__`` is public."""

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
    yield from _head(what.__name__, what.__name__, level)
    yield f"`from {path.rpartition('.')[0]} import {what.__name__}`"
    yield ""
    if not inspect.isclass(what):
        yield from _signature(what, what.__name__)
    yield doc.text
    yield ""
    elsewhere = _shared_by_class(what) if inspect.isclass(what) else {}
    if inspect.isclass(what) and issubclass(what, Enum):
        yield "Values: " + ", ".join(f"`{member.value}`" for member in what) + "."
        yield ""
        return
    own = [one for one in arguments(what) if one.name not in {name for names in elsewhere.values() for name in names}]
    if inspect.isclass(what) or doc.params:
        yield from parameters(own, _documentation(what), what.__name__)
    yield from _returned(doc)
    if elsewhere:
        linked = " and ".join(f"[](#shared-{base.__name__.lower()})" for base in elsewhere)
        yield f"It also takes {linked}."
        yield ""


def package(name: str, level: int = 3) -> Iterator[str]:
    """Yield the entry of every name that a public package exports, classes first."""
    paths = [f"{PACKAGE}.{name}.{one}" for one in public_names()[name]]
    for path in sorted(paths, key=lambda one: not inspect.isclass(find(one))):
        yield from described(path, level)


def shared(name: str, title: str) -> Iterator[str]:
    """Yield the arguments that a base class gives to all of its public subclasses."""
    bases = [base for base in _bases_with_arguments() if base.__name__ == name]
    if not bases:
        raise LookupError(f"The reference names the base class {name}, which no public operator has.")
    base = bases[0]
    yield f"(shared-{name.lower()})="
    yield f"### {title}"
    yield ""
    yield "Taken by " + ", ".join(f"[`{user}`](#{user.lower()})" for user in _users(base)) + "."
    yield ""
    taken = [one for one in own_arguments(base) if one.name != "cpaas_conn_id"]
    yield from parameters(taken, docstrings.read(base).params, name)


def methods(path: str, level: int = 4) -> Iterator[str]:
    """Yield an entry for each public method that a class of ours defines."""
    kind = find(path)
    for name in method_names(kind):
        method = inspect.unwrap(getattr(kind, name))
        doc = docstrings.read(method)
        yield from _head(f"{kind.__name__}.{name}", name, level)
        yield from _signature(method, name)
        yield doc.text
        yield ""
        taken = [one for one in inspect.signature(method).parameters.values() if one.name != "self"]
        yield from parameters([one for one in taken if one.name in doc.params], doc.params, f"{kind.__name__}.{name}")
        yield from _returned(doc)


def method_names(kind: type) -> list[str]:
    """Return the public methods a class of ours defines, in their order."""
    return [name for name, value in vars(kind).items() if not name.startswith("_") and inspect.isroutine(value)]


def options(path: str) -> Iterator[str]:
    """Yield what a data class takes."""
    kind = find(path)
    yield from parameters(inspect.signature(kind).parameters.values(), docstrings.read(kind).params, kind.__name__)


def errors(path: str, level: int = 3) -> Iterator[str]:
    """Yield an entry for each error of a tree, the base first."""
    base = find(path)
    for kind in _tree(base):
        doc = docstrings.read(kind)
        yield from _head(kind.__name__, kind.__name__, level)
        parent = kind.__mro__[1]
        yield doc.text + ("" if kind is base else f"\n\nA kind of [`{parent.__name__}`](#{parent.__name__.lower()}).")
        yield ""


def parameters(taken: Iterable[inspect.Parameter], said: dict[str, str], owner: str) -> Iterator[str]:
    """Yield a definition list of parameters.

    :raises LookupError: when one has no sentence in the docstring
    """
    for one in taken:
        if one.name not in said:
            raise LookupError(f"{owner} takes {one.name}, of which its docstring has no :param.")
        kind = "" if one.annotation is inspect.Parameter.empty else f" · `{_type(one.annotation)}`"
        default = "required" if one.default is inspect.Parameter.empty else f"default {shown(one.default)}"
        yield f"`{one.name}`{kind} · {default}"
        yield f": {said[one.name]}"
        yield ""


def arguments(what: Any) -> list[inspect.Parameter]:
    """Return what a class or function takes: of a class also from its bases in this package, not from Airflow's."""
    if not inspect.isclass(what):
        return list(inspect.signature(what).parameters.values())
    found: dict[str, inspect.Parameter] = {}
    for base in what.__mro__:
        for one in own_arguments(base):
            found.setdefault(one.name, one)
    return list(found.values())


def own_arguments(kind: type) -> list[inspect.Parameter]:
    """Return what a class of ours takes by its own ``__init__``."""
    if not kind.__module__.startswith(PACKAGE) or "__init__" not in kind.__dict__:
        return []
    taken = inspect.signature(kind.__dict__["__init__"]).parameters.values()
    starred = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    return [one for one in taken if one.name != "self" and one.kind not in starred]


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


def _shared_by_class(kind: type) -> dict[type, list[str]]:
    """Return which arguments of a class stand in the section of which base."""
    own = docstrings.read(kind).params
    return {
        base: names
        for base in kind.__mro__
        if base in _bases_with_arguments()
        and (names := [one.name for one in own_arguments(base) if one.name not in own and one.name != "cpaas_conn_id"])
    }


@functools.cache
def _bases_with_arguments() -> tuple[type, ...]:
    """Return the base classes of operators and notifiers whose arguments have a section of their own."""
    public = _public_operators()
    found: dict[type, None] = {}
    for kind in public:
        for base in kind.__mro__[1:]:
            shares = [one for one in own_arguments(base) if one.name != "cpaas_conn_id"]
            if shares and not base.__name__.startswith("_") and base not in public:
                found[base] = None
    return tuple(found)


def shared_bases() -> list[str]:
    """Return the names of the base classes whose arguments have a section of their own."""
    return [base.__name__ for base in _bases_with_arguments()]


def _users(base: type) -> list[str]:
    return [kind.__name__ for kind in _public_operators() if issubclass(kind, base)]


@functools.cache
def _public_operators() -> tuple[type, ...]:
    packages = ("operators", "notifications")
    found = (find(f"{PACKAGE}.{package}.{name}") for package in packages for name in public_names()[package])
    return tuple(kind for kind in found if inspect.isclass(kind))


def _tree(base: type[BaseException]) -> Iterator[type[BaseException]]:
    yield base
    for kind in sorted(base.__subclasses__(), key=lambda one: one.__name__):
        if kind.__module__ == base.__module__:
            yield from _tree(kind)


def _head(target: str, title: str, level: int) -> Iterator[str]:
    yield f"({target.lower()})="
    yield f"{'#' * level} `{title}`"
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
