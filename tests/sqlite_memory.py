"""How much memory SQLite has in use in this process, by its own count."""

from __future__ import annotations

import ctypes
import ctypes.util

import pytest


class SqliteMemory:
    """SQLite's own count of its memory, in bytes.

    A test that asks for it where Python brings a SQLite of its own, which cannot be asked, is skipped.
    """

    def __init__(self) -> None:
        import _sqlite3  # noqa: F401 - loads the library that Python uses

        name = ctypes.util.find_library("sqlite3")
        library = ctypes.CDLL(name) if name else None
        self._used = getattr(library, "sqlite3_memory_used", None)
        self._most = getattr(library, "sqlite3_memory_highwater", None)
        if self._used is None or self._most is None:
            pytest.skip("needs SQLite as a library of the system, which says how much memory it has in use")
        self._used.restype = self._most.restype = ctypes.c_longlong
        if not self._used():
            pytest.skip("needs a Python that uses SQLite as a library of the system")

    def used(self) -> int:
        """Return how much is in use now."""
        return int(self._used())

    def most(self) -> int:
        """Return how much was in use at most since the last time this was asked, and begin anew."""
        return int(self._most(1))
