"""The one way in which a test waits for what happens beside it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

MOST_SECONDS = 120.0
"""Only what never comes takes so long: programs that start on a busy machine take half of it."""


def until(condition: Callable[[], T]) -> T:
    """Poll until a condition holds, and return what it gave."""
    deadline = time.monotonic() + MOST_SECONDS
    while not (found := condition()):
        assert time.monotonic() < deadline, f"did not happen within {MOST_SECONDS:g} s"
        time.sleep(0.01)
    return found
