"""The cursor of a sync: rows of the source before it were synced by an earlier run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from cpaas_provider.api.values import is_blank

_CURSOR_TYPES = (str, int, float, Decimal, date)
"""What a cursor may be; a datetime is a date."""


@dataclass
class Cursor:
    """Skips rows before the stored value, and finds the largest value in the source.

    :param column: the cursor column
    :param stored: the largest value of the last run, ``None`` for the first run
    :param reached: the largest value so far
    :param invalid_before: the number of invalid rows below it
    """

    column: str
    stored: Any = None
    reached: Any = None
    invalid_before: int = 0
    _invalid_at: int = 0

    def is_new(self, cells: Mapping[str, Any]) -> bool:
        """Return whether a row's value is not before the stored one. Updates ``reached``.

        :raises ValueError: when the row has no value that can be compared
        """
        value = cells[self.column]
        if is_blank(value):
            raise ValueError(f"{self.column} is blank, and it is the cursor column")
        if isinstance(value, bool) or not isinstance(value, _CURSOR_TYPES) or not _is_finite(value):
            raise ValueError(f"{self.column} is no text, number, date or time, and it is the cursor column")
        try:
            if self.stored is not None and value < self.stored:
                return False
            if self.reached is None or value > self.reached:
                self.reached = value
                self.invalid_before += self._invalid_at
                self._invalid_at = 0
        except TypeError:
            raise ValueError(f"{self.column} is of another type than the cursor") from None
        return True

    def add_invalid(self, cells: Mapping[str, Any]) -> None:
        """Count an invalid row, after ``is_new`` has seen it."""
        if cells[self.column] == self.reached:
            # The next run reads the rows of this value again.
            self._invalid_at += 1
        else:
            self.invalid_before += 1


def cursor_to_json(value: Any) -> Any:
    """Return a cursor's value as it is stored."""
    if isinstance(value, datetime):
        return {"datetime": value.isoformat()}
    if isinstance(value, date):
        return {"date": value.isoformat()}
    if isinstance(value, (str, int, float)) or value is None:
        return value
    return {"number": str(value)}


def cursor_from_json(stored: Any) -> Any:
    """Return a cursor's value as the source has it."""
    if not isinstance(stored, dict):
        return stored
    ((kind, text),) = stored.items()
    if kind == "number":
        return Decimal(text)
    return datetime.fromisoformat(text) if kind == "datetime" else date.fromisoformat(text)


def _is_finite(value: Any) -> bool:
    return isinstance(value, (str, date)) or math.isfinite(value)
