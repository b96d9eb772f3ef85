"""A masked sample of what a sync would send."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cpaas_provider.contacts.sync.spool import Spool

_MASK = "•••"


def preview(spool: Spool, count: int, names: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the first rows that differ, their cells masked.

    :param names: names of the list's columns, by id
    :return: for each row ``row`` (``None`` for one that is gone from the source), ``action`` and ``cells``
    """
    return [
        {
            "row": item.number,
            "action": item.action,
            "cells": {names.get(column, column): masked(cell) for column, cell in item.cells.items()},
        }
        for item in spool.work((-1, 0), count)
    ]


def masked(cell: Any) -> Any:
    """Return what may be shown of a cell: whether it holds something, and how that begins."""
    if cell is None or cell == "":
        return cell
    if isinstance(cell, list):
        return [masked(one) for one in cell]
    return f"{cell[0]}{_MASK}" if isinstance(cell, str) and len(cell) > 3 else _MASK
