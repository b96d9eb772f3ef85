"""The changes of one line that a mutation test makes."""

from __future__ import annotations

import ast
import difflib
import itertools
import re
from collections.abc import Sequence
from typing import NamedTuple

_OPERATORS: dict[type[ast.AST], tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: (r"\bis\b", "is not"),
    ast.IsNot: (r"\bis\s+not\b", "is"),
    ast.In: (r"\bin\b", "not in"),
    ast.NotIn: (r"\bnot\s+in\b", "in"),
    ast.And: (r"\band\b", "or"),
    ast.Or: (r"\bor\b", "and"),
    ast.Add: (r"\+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: (r"\*", "//"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "+"),
    ast.BitAnd: ("&", "|"),
    ast.BitOr: (r"\|", "&"),
}
"""By kind: how to find an operator, and what to write for it."""
_SWAPPED = {"min": "max", "max": "min", "any": "all", "all": "any", "and_": "or_", "or_": "and_"}
_CONDITIONS = {"where", "filter", "having", "and_", "or_", "on_conflict_do_update", "values"}
_LOGS = {"log", "logger", "_log", "warnings"}


class Mutant(NamedTuple):
    """One change: the bytes from ``start`` to ``end`` of a file become ``text``."""

    path: str
    line: int
    start: int
    end: int
    text: str

    def apply(self, source: bytes) -> bytes:
        return source[: self.start] + self.text.encode() + source[self.end :]

    def diff(self, source: bytes) -> str:
        texts = [text.decode().splitlines() for text in (source, self.apply(source))]
        return "\n".join(list(difflib.unified_diff(*texts, lineterm="", n=1))[2:])


class _Finder(ast.NodeVisitor):
    """Collects the mutants of a file."""

    def __init__(self, path: str, source: bytes) -> None:
        self._path, self._source = path, source
        self._starts = [0, *itertools.accumulate(len(line) for line in source.splitlines(keepends=True))]
        self.mutants: set[Mutant] = set()

    def _start(self, node: ast.AST) -> int:
        return self._starts[node.lineno - 1] + node.col_offset  # type: ignore[attr-defined]  # expressions have both

    def _end(self, node: ast.AST) -> int:
        return self._starts[node.end_lineno - 1] + node.end_col_offset  # type: ignore[attr-defined]  # as above

    def _add(self, start: int, end: int, text: str) -> None:
        line = self._source.count(b"\n", 0, start) + 1
        self.mutants.add(Mutant(self._path, line, start, end, text))

    def _replace(self, node: ast.AST, text: str) -> None:
        self._add(self._start(node), self._end(node), text)

    def _swap(self, before: ast.AST, after: ast.AST, operator: ast.AST) -> None:
        """Replace the operator between two operands."""
        pattern, text = _OPERATORS.get(type(operator), ("$^", ""))
        start = self._end(before)
        if found := re.search(pattern, self._source[start : self._start(after)].decode()):
            self._add(start + found.start(), start + found.end(), text)

    def _drop_each(self, nodes: Sequence[ast.AST], ends: Sequence[ast.AST]) -> None:
        """Remove each of some arguments or entries."""
        for number, node in enumerate(nodes):
            if number + 1 < len(nodes):
                self._add(self._start(node), self._start(nodes[number + 1]), "")
            elif number:
                self._add(self._end(ends[number - 1]), self._end(ends[number]), "")

    def _condition(self, test: ast.expr) -> None:
        # Comparisons, "and", "or" and "not" have mutants of their own.
        if not isinstance(test, (ast.Compare, ast.BoolOp, ast.UnaryOp)):
            text = self._source[self._start(test) : self._end(test)].decode()
            self._replace(test, f"(not ({text}))")

    def generic_visit(self, node: ast.AST) -> None:
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list", "type_params"):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    self.visit(child)

    def visit(self, node: ast.AST) -> None:
        match node:
            case ast.If(test=ast.Name(id="TYPE_CHECKING")) | ast.Expr(value=ast.Constant()) | ast.JoinedStr():
                return
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name)))) if name in _LOGS:
                return
            case ast.Raise():
                self._replace(node, "pass")
                return  # its arguments are words
            case ast.If() | ast.While() | ast.IfExp():
                self._condition(node.test)
            case ast.comprehension(ifs=conditions):
                for condition in conditions:
                    self._replace(condition, "True")
            case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
                self._replace(node, "return None")
            case ast.Continue() | ast.Break() | ast.AugAssign() | ast.Delete() | ast.Expr():
                self._replace(node, "pass")
            case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
                self._replace(node, "pass")
            case ast.Compare():
                for (before, after), operator in zip(
                    itertools.pairwise([node.left, *node.comparators]), node.ops, strict=True
                ):
                    self._swap(before, after, operator)
            case ast.BoolOp():
                for before, after in itertools.pairwise(node.values):
                    self._swap(before, after, node.op)
                for value in node.values:
                    self._replace(value, str(isinstance(node.op, ast.And)))
            case ast.BinOp():
                self._swap(node.left, node.right, node.op)
            case ast.UnaryOp(op=ast.Not()):
                self._add(self._start(node), self._start(node.operand), "")
            case ast.Constant(value=bool(value)):
                self._replace(node, str(not value))
            case ast.Constant(value=int(value)):
                self._replace(node, str(value + 1))
                self._replace(node, str(value - 1))
            case ast.Dict(keys=keys) if len(keys) > 1 and None not in keys:
                self._drop_each([key for key in keys if key], node.values)
            case ast.Call():
                self._call(node)
        self.generic_visit(node)

    def _call(self, node: ast.Call) -> None:
        name = getattr(node.func, "id", getattr(node.func, "attr", ""))
        if name in _SWAPPED:
            self._add(self._end(node.func) - len(name), self._end(node.func), _SWAPPED[name])
        is_whole = len(node.args) == 1 and name in ("where", "filter", "having")
        if isinstance(node.func, ast.Attribute) and (is_whole or name == "with_for_update"):
            self._add(self._end(node.func.value), self._end(node), "")
        if name in _CONDITIONS:
            arguments = [*node.args, *node.keywords]
            self._drop_each(arguments, arguments)


def mutants_of(path: str, source: bytes) -> list[Mutant]:
    """Return the mutants of a file in the order of their lines. A few are no Python: see ``is_python``."""
    finder = _Finder(path, source)
    finder.visit(ast.parse(source))
    return sorted(finder.mutants)


def is_python(source: bytes) -> bool:
    """Return whether a mutant can be run at all."""
    try:
        ast.parse(source)
    except SyntaxError:
        return False
    return True
