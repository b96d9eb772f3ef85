"""What values are read as, from the tables of the tests, as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Any

from cpaas_docs.signatures import find

_LONGEST = 60


def recipients(path: str) -> Iterator[str]:
    """Yield values of a recipient with what each is read as, or why it is refused."""
    yield from _table(
        ("Value", "Type", "Read as"),
        (
            (
                _code(_written(cell.value)),
                type(cell.value).__name__,
                _code(cell.recipient) if cell.recipient else f"refused: {cell.reason} ...",
            )
            for cell in find(path)
            if _is_plain(cell.value)
        ),
    )


def cells(path: str, kind: str) -> Iterator[str]:
    """Yield values of a source with the contact cell that each becomes.

    :param kind: the type of the column; ``_`` stands for a blank
    """
    rows = find(path)[kind.replace("_", " ")]
    yield from _table(
        ("Value", "Type", "Cell"),
        (
            (_code(_written(value)), type(value).__name__, _code(_written(cell)))
            for value, cell in rows
            if _is_plain(value)
        ),
    )


def files(path: str) -> Iterator[str]:
    """Yield contents of CSV files with the rows after their header."""
    rows = find(path)
    yield from _table(
        ("File", "Rows"), ((_code(_written(content)), _code("; ".join(map(_row, found)))) for content, found in rows)
    )


def _table(header: tuple[str, ...], lines: Iterable[tuple[str, ...]]) -> Iterator[str]:
    yield f"| {' | '.join(header)} |"
    yield f"|{'---|' * len(header)}"
    for line in lines:
        yield f"| {' | '.join(line)} |"
    yield ""


def _code(text: str) -> str:
    """Return a text as code, which shows quotes as they are."""
    fenced = f"`` {text} ``" if "`" in text else f"`{text}`"
    return fenced.replace("|", r"\|")


def _is_plain(value: Any) -> bool:
    """Return whether a reader of the page knows the type, and its text is short."""
    return type(value) in (str, int, float, bool, Decimal, type(None)) and len(str(value)) <= _LONGEST


def _written(value: Any) -> str:
    """Return a text without what shows nothing, which would be lost on the page."""
    return str(value) if isinstance(value, Decimal) else ascii(value) if not _is_shown(value) else repr(value)


def _is_shown(value: Any) -> bool:
    return not isinstance(value, str) or value.isprintable()


def _row(values: tuple[Any, ...]) -> str:
    return ", ".join("nothing" if value is None else repr(value) for value in values)
