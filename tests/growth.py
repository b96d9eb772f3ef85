"""How the time of a function grows with the length of its input.

For four times the length, a linear function takes about 4 times as long, a quadratic one 16 times.
"""

from __future__ import annotations

import time
from collections.abc import Callable

ROUNDS = 5
LINEAR = 8.0
"""The middle between both, so that a busy machine does not change the verdict."""
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
    """Return how many times as long a function takes for four times the input.

    :param unit: what the input repeats
    :param length: the characters of the longer input
    :param end: what follows at the end of both inputs
    """
    shorter, longer = ((unit * size)[:size] + end for size in (length // 4, length))
    if seconds(lambda: function(longer), rounds=1) < MIN_SECONDS:
        return 0.0
    least_of_longer = least_of_shorter = float("inf")
    for _ in range(ROUNDS):
        # By turns, because a machine may be slower for a while.
        least_of_longer = min(least_of_longer, seconds(lambda: function(longer), rounds=1))
        least_of_shorter = min(least_of_shorter, seconds(lambda: function(shorter), rounds=1))
    return least_of_longer / least_of_shorter
