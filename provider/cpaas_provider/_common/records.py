"""The base of records that hold something private."""

from __future__ import annotations

from typing import Any

from msgspec import Struct


class PrivateRecord(Struct, frozen=True):
    """A record that shows no values, because one of them is a secret, a number or a text."""

    __repr__ = object.__repr__

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """Show nothing in tracebacks of Rich either. Rich reads the fields of a struct itself, without its ``repr``."""
        return []
