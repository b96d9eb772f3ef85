"""The code blocks of a page, and what can be told of them without running them."""

from __future__ import annotations

import ast
import configparser
import functools
import importlib
import inspect
import itertools
import json
import re
import shlex
import subprocess
import textwrap
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from airflow.sdk import BaseOperator, BaseSensorOperator

from cpaas_provider.tasks.idempotent_client import IdempotentClient
from tests.unit.docs import ROOT

from cpaas_docs import commands, signatures  # isort: skip

_BLOCK = re.compile(r"^(?P<indent> *)```(?P<language>[\w{}-]*)(?P<rest>[^\n]*)\n(?P<text>.*?)^ *```$", re.M | re.S)
_PROGRAMS = ("airflow", "cpaas-sandbox", "make")
# Of these the first words are all that is ours to check.
_OF_AIRFLOW = ("connections", "dags", "db", "standalone", "tasks", "config", "api-server", "triggerer", "providers")


@dataclass(frozen=True)
class Block:
    """One code block.

    :param line: where it begins on its page
    """

    language: str
    text: str
    line: int


def blocks_of(text: str) -> Iterator[Block]:
    """Yield the code blocks of a page; directives are none."""
    for found in _BLOCK.finditer(text):
        if not found["language"].startswith("{"):
            line = text.count("\n", 0, found.start()) + 1
            yield Block(found["language"], textwrap.dedent(found["text"]), line)


def check_json(text: str) -> None:
    """Parse JSON, or JSON Lines."""
    try:
        json.loads(text)
    except ValueError:
        for line in text.splitlines():
            json.loads(line)


def check_ini(text: str) -> None:
    """Parse it as Airflow's own configuration."""
    parser = configparser.ConfigParser(interpolation=None)
    parser.read_string(text)
    assert parser.sections()


def check_python(text: str) -> None:
    """Compile it; names of ours must exist, and take the arguments they are given."""
    tree = compile(text, "a page", "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    known = dict(public_names())
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("cpaas_provider"):
            module = importlib.import_module(str(node.module))
            for name in node.names:
                assert hasattr(module, name.name), f"{node.module} has no {name.name}"
                known[name.asname or name.name] = getattr(module, name.name)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            _check_call(node, known)


def check_bash(text: str) -> None:
    """Parse it as a shell does; commands of ours must take what they are given."""
    parsed = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, check=False)
    assert parsed.returncode == 0, parsed.stderr
    for command in commands_of(text):
        check_command(command)


def check_console(text: str) -> None:
    """Check the lines that are typed."""
    typed = [line.removeprefix("$ ") for line in text.splitlines() if line.startswith("$ ")]
    check_bash("\n".join(typed))


def check_command(words: list[str]) -> None:
    """Have the real parser read a command, or look whether the Makefile has the target."""
    program, *rest = words
    if program == "make":
        for target in (word for word in rest if "=" not in word and not word.startswith("-")):
            assert re.search(rf"^{re.escape(target)}:", _makefile(), re.M), f"make {target}"
    elif program == "cpaas-sandbox":
        _parse(commands.sandbox_parser(), rest)
    elif rest and rest[0] == "cpaas":
        _parse(commands.airflow_parser(), rest)
    else:
        assert rest, words
        assert rest[0] in _OF_AIRFLOW, f"airflow {rest[0]}"


def commands_of(text: str) -> Iterator[list[str]]:
    """Yield the commands of ours in a piece of shell, as words."""
    joined = re.sub(r"\\\n\s*", " ", text)
    lines = [line for line in joined.split("\n") if not line.lstrip().startswith("#")]
    lexer = shlex.shlex("\n; ".join(lines), posix=True, punctuation_chars=";&|()<>")
    lexer.whitespace_split = True
    for is_end, words in itertools.groupby(lexer, lambda word: bool(re.fullmatch(r"[;&|()]+", word))):
        command = [] if is_end else list(words)
        while command and re.match(r"[A-Za-z_]\w*=|export$|env$|exec$|sudo$|nohup$", command[0]):
            command = command[1:]
        for redirection in (">", "<", ">>"):
            if redirection in command:
                command = command[: command.index(redirection)]
        if command and Path(command[0]).name in _PROGRAMS:
            yield [Path(command[0]).name, *command[1:]]


@functools.cache
def public_names() -> dict[str, Any]:
    """Return every public name, as a snippet without imports may use it."""
    packages = signatures.public_names().items()
    found = {name: signatures.find(f"cpaas_provider.{package}.{name}") for package, names in packages for name in names}
    for path in ("hooks.cpaas.CpaasHook", "hooks.retry_policy.CpaasRetryPolicy"):
        found[path.rpartition(".")[2]] = signatures.find(f"cpaas_provider.{path}")
    return found


def _check_call(call: ast.Call, known: dict[str, Any]) -> None:
    given = [keyword.arg for keyword in call.keywords if keyword.arg]
    if isinstance(call.func, ast.Name) and call.func.id in known:
        what, name = known[call.func.id], call.func.id
    elif isinstance(call.func, ast.Attribute) and call.func.attr == "partial" and isinstance(call.func.value, ast.Name):
        what, name = known.get(call.func.value.id), f"{call.func.value.id}.partial"
    elif isinstance(call.func, ast.Attribute) and ast.unparse(call.func.value) in ("client", "self.client"):
        what, name = getattr(known["CpaasClient"], call.func.attr, None), f"client.{call.func.attr}"
        assert what is not None, f"{name} is no method"
    elif isinstance(call.func, ast.Attribute) and ast.unparse(call.func.value) == "idempotent":
        what, name = getattr(IdempotentClient, call.func.attr, None), f"idempotent.{call.func.attr}"
        assert what is not None, f"{name} is no method"
    else:
        return
    taken = _taken(what) if what is not None else None
    if taken is not None:
        assert set(given) <= taken, f"{name} takes no {sorted(set(given) - taken)}"


def _taken(what: Any) -> set[str] | None:
    """Return the names of the arguments something takes; ``None`` where it takes any."""
    if not inspect.isclass(what):
        taken = inspect.signature(what).parameters
        return None if any(one.kind is one.VAR_KEYWORD for one in taken.values()) else set(taken)
    if issubclass(what, BaseOperator):
        of_airflow = {*inspect.signature(BaseOperator.__init__).parameters, "retry_policy"}
        if issubclass(what, BaseSensorOperator):
            of_airflow |= set(inspect.signature(BaseSensorOperator.__init__).parameters)
        return {one.name for one in signatures.arguments(what)} | of_airflow
    if what.__name__.endswith("CpaasClient"):
        return set(inspect.signature(signatures.find("cpaas_provider.api.settings.ClientSettings")).parameters)
    return {one.name for one in signatures.arguments(what)}


def _parse(parser: Any, words: list[str]) -> None:
    # A shell would fill these in.
    filled = [re.sub(r"\$\{?\w+\}?|\$\(.*?\)", "1", word) for word in words]
    if "--help" in filled:
        filled = filled[: filled.index("--help")]
        if not filled or filled == ["cpaas"]:
            return
    try:
        parser.parse_args(filled)
    except SystemExit as error:
        raise AssertionError(f"{parser.prog} does not take: {' '.join(words)}") from error


@functools.cache
def _makefile() -> str:
    return (ROOT / "Makefile").read_text(encoding="utf-8")


CHECKS = {
    "python": check_python,
    "json": check_json,
    "jsonl": check_json,
    "toml": tomllib.loads,
    "yaml": lambda text: list(yaml.safe_load_all(text)),
    "ini": check_ini,
    "bash": check_bash,
    "console": check_console,
}
SHOWN_ONLY = {
    "text": "output, or what has no language",
    "nginx": "no parser of it here",
    "sql": "dialects differ",
}
"""Languages of blocks that nothing checks, and why."""
