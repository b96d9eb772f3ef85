"""Warnings at a limited rate, so that a flood of reports does not flood the log."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

PAUSE_SECONDS = 60.0


class ThrottledLogger:
    """Logs each kind of warning at most once a minute, with the number of warnings since the last line."""

    def __init__(self, log: logging.Logger, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._clock = clock
        self._since: dict[str, tuple[float, int]] = {}

    def warning(self, kind: str, message: str) -> None:
        """Log a warning.

        :param kind: one of a few fixed texts; warnings of one kind are throttled together
        """
        then, suppressed = self._since.get(kind, (float("-inf"), 0))
        if self._clock() - then < PAUSE_SECONDS:
            self._since[kind] = (then, suppressed + 1)
            return
        self._since[kind] = (self._clock(), 0)
        self._log.warning("%s%s", message, f" ({suppressed} more times since the last such line)" if suppressed else "")
