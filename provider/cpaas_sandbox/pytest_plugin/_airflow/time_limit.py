"""A time limit for code in the main thread, which may catch every exception."""

from __future__ import annotations

import contextlib
import math
import signal
import threading
import time
from collections.abc import Iterator

_AGAIN_SECONDS = 1.0


class TimeLimitError(BaseException):
    """The time is over. Code that catches exceptions catches no ``BaseException``, as a rule."""


class TimeLimit:
    """Whether the time is over: Airflow catches even a ``BaseException`` in a task."""

    is_over = False


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[TimeLimit]:
    """Raise ``TimeLimitError`` in the block once the time is over, and again each second until the block ends.

    The error ends with the block. pytest-timeout uses the same timer. It is still due when it would have been, in the
    block or after it. Only the main thread can be interrupted. In another one there is no limit.
    """
    limit = TimeLimit()
    if threading.current_thread() is not threading.main_thread():
        yield limit
        return
    remaining, interval = signal.getitimer(signal.ITIMER_REAL)
    handler = signal.getsignal(signal.SIGALRM)
    own_due = time.monotonic() + seconds
    other_due = time.monotonic() + remaining if remaining else math.inf

    def arm() -> None:
        # 0 would turn the timer off.
        signal.setitimer(signal.ITIMER_REAL, max(min(own_due, other_due) - time.monotonic(), 0.001))

    def ring(*_: object) -> None:
        nonlocal own_due, other_due
        if own_due <= other_due:
            own_due = time.monotonic() + _AGAIN_SECONDS
            arm()
            limit.is_over = True
            raise TimeLimitError
        other_due = time.monotonic() + interval if interval else math.inf
        signal.signal(signal.SIGALRM, handler)
        signal.raise_signal(signal.SIGALRM)
        signal.signal(signal.SIGALRM, ring)
        arm()

    signal.signal(signal.SIGALRM, ring)
    arm()
    try:
        yield limit
    except TimeLimitError:
        pass
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        if other_due < math.inf:
            signal.setitimer(signal.ITIMER_REAL, max(other_due - time.monotonic(), 0.001), interval)
