"""How fast those who wait on a connection can be read for, and what of that is told."""

from __future__ import annotations

import logging
import math
import time

from cpaas_provider.api.errors import CpaasError
from cpaas_provider.triggers._polling.poller import backoff

TELL_AGAIN = 60.0
"""Seconds between two log lines about the same."""
_SHARE_OF_THE_LAST = 0.02

log = logging.getLogger(__name__)


class Trouble:
    """Reads that fail in passing: how long all reading pauses for them; told now and then, not each time."""

    def __init__(self, conn_id: str) -> None:
        self.conn_id = conn_id
        self.held_until = -math.inf
        """The monotonic time before which nothing is to be read."""
        self._in_a_row = 0
        self._noted = -math.inf
        self._untold = 0
        self._told = -math.inf

    def met(self, error: CpaasError, began: float) -> None:
        """Take note of a read that failed.

        One failure alone pauses nothing, and reads that were under way together count as one.

        :param began: the monotonic time at which that read began
        """
        now = time.monotonic()
        if error.retry_after:
            self.held_until = max(self.held_until, now + error.retry_after)
        elif began >= self._noted:
            self._noted = now
            self._in_a_row += 1
            if self._in_a_row > 1:
                self.held_until = max(self.held_until, now + backoff(self._in_a_row - 1))
        self._tell(error, now)

    def over(self) -> None:
        """Take note of a read that succeeded."""
        self._in_a_row = 0

    def _tell(self, error: CpaasError, now: float) -> None:
        self._untold += 1
        if now - self._told < TELL_AGAIN:
            return
        log.warning(
            "%s Sensors on connection %r keep waiting. Failed reads since the last warning: %d.",
            error, self.conn_id, self._untold,
        )  # fmt: skip
        self._untold, self._told = 0, now


class RoundLength:
    """Tells how long a round takes where more reads are wanted than get through, and when it has doubled or halved."""

    def __init__(self, conn_id: str) -> None:
        self.conn_id = conn_id
        self._waiters = 0
        self._wanted = 0.0
        self._seconds_a_read = 0.0
        self._told = 0.0
        self._told_at = -math.inf

    def came(self, interval: float) -> None:
        """Count one who wants to be read every so many seconds."""
        self._waiters += 1
        self._wanted += 1.0 / interval

    def left(self, interval: float) -> None:
        """Count him no more."""
        self._waiters -= 1
        self._wanted = self._wanted - 1.0 / interval if self._waiters else 0.0

    def took(self, seconds: float) -> None:
        """Take note of how long a read took; the last few dozen count."""
        self._seconds_a_read += (seconds - self._seconds_a_read) * (_SHARE_OF_THE_LAST if self._seconds_a_read else 1.0)

    def tell(self, per_second: float, at_once: int) -> None:
        """Tell it if it has changed so much, but not twice a minute, as thousands may come within one.

        :param per_second: reads that may begin in a second
        :param at_once: reads that may be under way together; slow answers let fewer through than the rate would
        """
        rate = per_second
        if self._seconds_a_read:
            rate = min(rate, at_once / self._seconds_a_read)
        length = self._waiters / rate
        if self._wanted <= rate / 2:
            self._told = 0.0
            return
        changed = self._wanted > rate and not self._told / 2 < length < self._told * 2
        if changed and time.monotonic() - self._told_at >= TELL_AGAIN:
            self._told, self._told_at = length, time.monotonic()
            log.warning(
                "%d sensors wait for passcodes on connection %r. At %.3g requests per second, each passcode is read "
                "every %.0f s. To read more often, raise %s, if the service permits it.",
                self._waiters, self.conn_id, rate, length,
                "requests_per_second" if rate == per_second else "max_concurrency",
            )  # fmt: skip
