"""Warnings that a flood of reports cannot turn into a flood of log lines."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

PAUSE_SECONDS = 60.0


class ThrottledLogger:
    """Logs each kind of warning at most once a minute, and then how often it came up meanwhile."""

    def __init__(self, log: logging.Logger, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._clock = clock
        self._since: dict[str, tuple[float, int]] = {}

    def warning(self, kind: str, message: str) -> None:
        """Log a warning.

        :param kind: one of a few fixed texts, which says with the message what it is about
        """
        then, suppressed = self._since.get(kind, (float("-inf"), 0))
        if self._clock() - then < PAUSE_SECONDS:
            self._since[kind] = (then, suppressed + 1)
            return
        self._since[kind] = (self._clock(), 0)
        self._log.warning("%s%s", message, f" ({suppressed} more times since the last such line)" if suppressed else "")
