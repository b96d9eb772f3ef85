"""How the time of a function grows with the length of its input: about 2 for twice the length where it is linear."""

from __future__ import annotations

import time
from collections.abc import Callable

ROUNDS = 5
MIN_SECONDS = 0.0005
"""Below this, the clock says nothing; such a function is fast enough at this length."""


def seconds(work: Callable[[], object], rounds: int = ROUNDS) -> float:
    """Return the least CPU time of this thread that some rounds of the work took."""
    best = float("inf")
    for _ in range(rounds):
        start = time.thread_time()
        work()
        best = min(best, time.thread_time() - start)
    return best


def growth(function: Callable[[str], object], unit: str, length: int, end: str = "") -> float:
    """Return how many times as long a function takes for twice the input.

    :param unit: what the input repeats
    :param length: the characters of the shorter input
    :param end: what follows at the end of both inputs
    """
    shorter, longer = ((unit * size)[:size] + end for size in (length, 2 * length))
    if seconds(lambda: function(longer), rounds=1) < MIN_SECONDS:
        return 0.0
    return seconds(lambda: function(longer)) / seconds(lambda: function(shorter))
