"""Every text a user can meet: in errors, logs, help, docstrings, pages and examples."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.unit.docs import PROJECT, ROOT

from cpaas_docs.pages import handwritten  # isort: skip

PROVIDER = ROOT / "provider"

DOCUMENTED = ("assets", "cli", "hooks", "notifications", "operators", "sensors", "sources")
"""Folders of the package whose docstrings users read: in an editor, by `help()`, in the reference."""
CLIENT = ("__init__.py", "client.py", "errors.py", "models", "operations.py", "settings.py")
"""The same in `api`: its public client."""

_SQL = re.compile(r"\s*(SELECT|INSERT|UPDATE|DELETE|CREATE|ALTER|DROP|PRAGMA|WITH|BEGIN|FROM|WHERE|AND|ON) ")
_PATTERN = re.compile(r"\\[bdswS]|\(\?[:=!<P]|\[\^|<!doctype|^\w+\{|^import |^default-src ")
_MARKS = re.compile(r"[.:;!?]")
_BLOCK = re.compile(r"^ *(```|~~~|:::).*?^ *\1 *$", re.M | re.S)
_INLINE_CODE = re.compile(r"(?<!`)(`{1,2})(?!`)([^`]+?)\1(?!`)")
_LINK = re.compile(r"\]\([^)\s]*\)")
_MARK = re.compile(r"^ *(?:[*+-]|\d+\.|#+|#:|\|) |^\([\w-]+\)=$| \| | \|$|^ *:(?:param|returns?|raises)[^:]*:", re.M)


@dataclass(frozen=True)
class Text:
    """A text that a user can meet.

    :param place: its file, below the repository
    :param line: where it begins
    :param words: the text on one line, or a line for each item of a list and each cell of a table
    :param is_prose: whether it is made of sentences, rather than of code
    """

    place: str
    line: int
    words: str
    is_prose: bool = True

    @property
    def is_sentence(self) -> bool:
        """Whether it has several words, rather than being a key or a name."""
        return " " in self.words.strip()


def all_texts() -> Iterator[Text]:
    """Yield every text that a user can meet."""
    for path in sorted(PROVIDER.rglob("*")):
        if path.suffix == ".py":
            yield from in_python(path, docstrings=_is_documented(path))
        elif path.suffix in (".html", ".js"):
            yield from in_web_page(path)
    for path in sorted((ROOT / "docs" / "_ext").rglob("*.py")):
        yield from in_python(path)
    for path in sorted((ROOT / "tests" / "system").glob("demo*.py")):
        yield from in_python(path)
    for path in (
        ROOT / "README.md",
        *PROJECT,
        *sorted((ROOT / "docs").rglob("*.md")),
    ):
        yield from in_markdown(path)
    for path in sorted((ROOT / "docs").rglob("*.svg")):
        yield from in_drawing(path)
    for path in sorted((ROOT / "example_dags").rglob("*.py")):
        yield from in_example(path)
    yield from in_makefile(ROOT / "Makefile")


def in_python(path: Path, docstrings: bool = False) -> Iterator[Text]:
    """Yield the strings of a module: what is shown, logged or raised.

    :param docstrings: whether to add the docstrings of what is public
    """
    tree = ast.parse(path.read_text(encoding="utf-8"))
    seen = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if id(node) not in seen and isinstance(node, (ast.JoinedStr, ast.BinOp, ast.Constant)):
            seen.update(map(id, ast.walk(node)))
            text = _literal(node)
            if text and not _SQL.match(text) and not _PATTERN.search(text):
                yield Text(_place(path), node.lineno, _lines(_without_code(text)), bool(_MARKS.search(text)))
    for node in _public(tree) if docstrings else ():
        if docstring := ast.get_docstring(node):
            yield Text(_place(path), node.body[0].lineno, _lines(_without_code(docstring)))


def in_example(path: Path) -> Iterator[Text]:
    """Yield the comments, docstrings and strings of a file that is there to be copied from."""
    raw = path.read_text(encoding="utf-8")
    for found in re.finditer(r"(?:^ *# .*\n)+|(?<=  )# .*\n", raw, re.M):
        words = re.sub(r"^ *# ", "", found.group(), flags=re.M)
        yield Text(_place(path), raw.count("\n", 0, found.start()) + 1, _lines(_without_code(words)))
    yield from in_python(path, docstrings=True)


def in_markdown(path: Path) -> Iterator[Text]:
    """Yield the paragraphs of a page, and its blocks of code as such; what is generated is read where it is written."""
    raw = handwritten(path.read_text(encoding="utf-8"))
    for found in _BLOCK.finditer(raw):
        line = raw.count("\n", 0, found.start()) + 1
        first, _, code = found.group().partition("\n")
        is_prose = "{" in first and not any(name in first for name in ("{reference}", "{toctree}"))
        yield Text(_place(path), line, _lines(_without_code(code)) if is_prose else " ".join(code.split()), is_prose)
    prose = _BLOCK.sub(lambda found: "\n" * found.group().count("\n"), raw)
    line = 1
    for block in re.split(r"(\n\s*\n)", prose):
        yield Text(_place(path), line, _lines(_LINK.sub("]", _without_code(block))))
        line += block.count("\n")


def in_makefile(path: Path) -> Iterator[Text]:
    """Yield the help lines and what recipes print."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        for found in re.finditer(r"##(.*)|echo \"([^\"]*)", line):
            yield Text(_place(path), number, found[1] or found[2])


def in_web_page(path: Path) -> Iterator[Text]:
    """Yield the text of an HTML file, and the strings of a script."""
    raw = path.read_text(encoding="utf-8")
    shown = r"\"[^\"\n]*\"|'[^'\n]*'|`[^`]*`" if path.suffix == ".js" else r"(?<=>)[^<>]+(?=<)|\"[^\"\n]*\""
    for found in re.finditer(shown, raw):
        yield Text(_place(path), raw.count("\n", 0, found.start()) + 1, " ".join(found.group().split()), is_prose=False)


def in_drawing(path: Path) -> Iterator[Text]:
    """Yield the text of an SVG."""
    raw = path.read_text(encoding="utf-8")
    for found in re.finditer(r"(?<=>)[^<>]+(?=</)", raw):
        words = found.group().replace("&#160;", " ")
        yield Text(_place(path), raw.count("\n", 0, found.start()) + 1, words, is_prose=False)


def _is_documented(path: Path) -> bool:
    package, folder, *rest = path.relative_to(PROVIDER).parts
    if package != "cpaas_provider" or any(part.startswith("_") and part != "__init__.py" for part in rest):
        return False
    return folder in DOCUMENTED or (folder == "api" and rest[0] in CLIENT)


def _lines(text: str) -> str:
    """Join wrapped lines; an item of a list, a cell of a table and a parameter begin a line."""
    marked = _MARK.sub("\0", text).replace("\n\n", "\0")
    return "\n".join(filter(None, (" ".join(part.split()) for part in marked.split("\0"))))


def _without_code(text: str) -> str:
    """Leave a gap for what is set as code within a line, but for a name by itself."""
    return _INLINE_CODE.sub(lambda found: found[0] if re.fullmatch(r"[\w-]*_\w+", found[2]) else "…", text)


def _public(tree: ast.Module) -> Iterator[ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield a module, and the classes, functions and methods in it without an underscore."""
    yield tree
    waiting: list[ast.Module | ast.ClassDef] = [tree]
    while waiting:
        for node in waiting.pop().body:
            if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and node.name[0] != "_":
                yield node
                if isinstance(node, ast.ClassDef):
                    waiting.append(node)


def _literal(node: ast.AST) -> str:
    """Return the literal text of an expression; what is filled in is shown as ``…``."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(_literal(part) or "…" for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = _literal(node.left), _literal(node.right)
        return f"{left or '…'}{right or '…'}" if left or right else ""
    return ""


def _place(path: Path) -> str:
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else path.name
