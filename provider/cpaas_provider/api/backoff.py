"""The delay before a retry, the same for requests, polls and writes."""

from __future__ import annotations

import math
import random

_MAX_DOUBLINGS = 16


def backoff(failures: int, first: float, longest: float = math.inf, *, jitter: float = 1.0) -> float:
    """Return the seconds to wait after so many failures in a row: twice as long after each.

    A part of the delay is random, so that many callers that failed together do not come back together.

    :param first: seconds after the first failure
    :param longest: seconds at most
    :param jitter: the part that is random, from 0 to 1
    """
    seconds = min(longest, first * 2 ** min(failures - 1, _MAX_DOUBLINGS))
    return random.uniform(seconds * (1 - jitter), seconds)  # noqa: S311 - no secret
