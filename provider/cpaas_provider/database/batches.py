"""As many values at a time as one statement may ask for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

Value = TypeVar("Value")

BATCH = 500
"""SQLite takes no more than some thousand."""


def batched(values: Iterable[Value]) -> Iterator[list[Value]]:
    """Yield all values in lists of ``BATCH`` at most, none of them empty."""
    rest = iter(values)
    while batch := list(islice(rest, BATCH)):
        yield batch
