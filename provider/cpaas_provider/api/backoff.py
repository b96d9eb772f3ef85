"""The delay before a retry, the same for requests, polls and writes."""

from __future__ import annotations

import math
import random
from datetime import timedelta

MAX_DEFERRAL = timedelta(hours=24)
"""Longest time a task waits for Retry-After of the service, all waits together. A longer one is left to its retries."""

_MAX_DOUBLINGS = 16


def backoff(failures: int, first: float, longest: float = math.inf, *, jitter: float = 1.0) -> float:
    """Return the seconds to wait before a retry. The delay doubles with each failure in a row.

    A part of the delay is random, so that callers that failed together do not retry together.

    :param failures: the number of failures in a row, from 1
    :param first: the delay after the first failure, in seconds
    :param longest: the longest delay, in seconds
    :param jitter: the share of the delay that is random, from 0 to 1
    """
    seconds = min(longest, first * 2 ** min(failures - 1, _MAX_DOUBLINGS))
    return random.uniform(seconds * (1 - jitter), seconds)  # noqa: S311 - no secret
