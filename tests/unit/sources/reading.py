"""What the tests of sources share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cpaas_provider.sources.base import InvalidRow, Row, Source


def read(source: Source, *wanted: str) -> list[Row | InvalidRow]:
    """Return all that a source gives."""
    with source.open() as table:
        return list(table.rows(wanted))


def columns(source: Source) -> tuple[str, ...] | None:
    with source.open() as table:
        return table.columns


def values(source: Source, *wanted: str) -> list[tuple[Any, ...]]:
    """Return the values of all rows, of which none may be bad."""
    found = read(source, *wanted)
    assert not [row for row in found if isinstance(row, InvalidRow)]
    return [row.values for row in found if isinstance(row, Row)]


def bad(found: Sequence[Row | InvalidRow]) -> dict[int, str]:
    """Return the reasons of the rows set aside by their numbers."""
    return {row.number: row.reason for row in found if isinstance(row, InvalidRow)}


def good(found: Sequence[Row | InvalidRow]) -> dict[int, tuple[Any, ...]]:
    """Return the values of the other rows by their numbers."""
    return {row.number: row.values for row in found if isinstance(row, Row)}
