"""Log lines on where a wait stands, for the sensor and the trigger alike."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any

CHANGED_EVERY = 60.0
"""Seconds between two lines if something has changed. Waits may last for days."""
UNCHANGED_EVERY = 600.0
"""The same if nothing has changed: a sign that the wait goes on."""


@dataclass
class ProgressLog:
    """Logs where one wait stands, at most once in ``CHANGED_EVERY``.

    :param log: the logger of the task
    """

    log: Any
    _line: str | None = None
    _logged_at: float = -math.inf

    def report(self, line: str | None) -> None:
        """Log where the wait stands, if it is time.

        :param line: without numbers, addresses and codes; ``None`` if nothing is known yet
        """
        pause = UNCHANGED_EVERY if line == self._line else CHANGED_EVERY
        now = time.monotonic()
        if line is not None and now - self._logged_at >= pause:
            self._line, self._logged_at = line, now
            self.log.info("%s", line)
