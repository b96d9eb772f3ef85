"""The sandbox's contact list, as a test reads it."""

from __future__ import annotations

from typing import Any

from tests.sandbox import Sandbox

NAME, PHONE, EMAIL, BIRTHDAY, PLAN, TAGS, WEBSITE, POINTS = (f"col_7f3a0{n}" for n in range(1, 9))
_PAGE = 1000


def listed(sandbox: Sandbox) -> dict[str, dict[str, Any]]:
    """Return the cells of all rows that hold something, by row id and column id."""
    rows: dict[str, dict[str, Any]] = {}
    while True:
        page = sandbox.inbox("contacts", limit=_PAGE, offset=len(rows))["items"]
        rows |= {row["id"]: {id_: cell for id_, cell in row["columns"].items() if cell is not None} for row in page}
        if len(page) < _PAGE:
            return rows
