"""How fast those who wait on a connection can be read for, and what of that is told."""

from __future__ import annotations

import logging
import math
import time

from cpaas_provider.api.errors import CpaasError
from cpaas_provider.triggers._polling.poller import backoff

LOG_INTERVAL = 60.0
"""Seconds between two log lines about the same."""
_SMOOTHING = 0.02

log = logging.getLogger(__name__)


class FailureBackoff:
    """Reads that fail in passing: how long all reading pauses for them; told now and then, not each time."""

    def __init__(self, conn_id: str) -> None:
        self.conn_id = conn_id
        self.held_until = -math.inf
        """The monotonic time before which nothing is to be read."""
        self._in_a_row = 0
        self._counted_at = -math.inf
        self._unlogged = 0
        self._told = -math.inf

    def on_failure(self, error: CpaasError, started: float) -> None:
        """Take note of a read that failed.

        One failure alone pauses nothing, and reads that were under way together count as one.

        :param began: the monotonic time at which that read began
        """
        now = time.monotonic()
        if error.retry_after:
            self.held_until = max(self.held_until, now + error.retry_after)
        elif started >= self._counted_at:
            self._counted_at = now
            self._in_a_row += 1
            if self._in_a_row > 1:
                self.held_until = max(self.held_until, now + backoff(self._in_a_row - 1))
        self._log(error, now)

    def on_success(self) -> None:
        """Take note of a read that succeeded."""
        self._in_a_row = 0

    def _log(self, error: CpaasError, now: float) -> None:
        self._unlogged += 1
        if now - self._told < LOG_INTERVAL:
            return
        log.warning(
            "%s Sensors on connection %r keep waiting. Failed reads since the last warning: %d.",
            error, self.conn_id, self._unlogged,
        )  # fmt: skip
        self._unlogged, self._told = 0, now


class OverloadReporter:
    """Tells how long a round takes where more reads are wanted than get through, and when it has doubled or halved."""

    def __init__(self, conn_id: str) -> None:
        self.conn_id = conn_id
        self._waiters = 0
        self._reads_per_second = 0.0
        self._read_seconds = 0.0
        self._told = 0.0
        self._logged_at = -math.inf

    def on_join(self, interval: float) -> None:
        """Count one who wants to be read every so many seconds."""
        self._waiters += 1
        self._reads_per_second += 1.0 / interval

    def on_leave(self, interval: float) -> None:
        """Count him no more."""
        self._waiters -= 1
        self._reads_per_second = self._reads_per_second - 1.0 / interval if self._waiters else 0.0

    def on_read(self, seconds: float) -> None:
        """Take note of how long a read took; the last few dozen count."""
        self._read_seconds += (seconds - self._read_seconds) * (_SMOOTHING if self._read_seconds else 1.0)

    def report(self, per_second: float, concurrency: int) -> None:
        """Tell it if it has changed so much, but not twice a minute, as thousands may come within one.

        :param per_second: reads that may begin in a second
        :param at_once: reads that may be under way together; slow answers let fewer through than the rate would
        """
        rate = per_second
        if self._read_seconds:
            rate = min(rate, concurrency / self._read_seconds)
        length = self._waiters / rate
        if self._reads_per_second <= rate / 2:
            self._told = 0.0
            return
        changed = self._reads_per_second > rate and not self._told / 2 < length < self._told * 2
        if changed and time.monotonic() - self._logged_at >= LOG_INTERVAL:
            self._told, self._logged_at = length, time.monotonic()
            log.warning(
                "%d sensors wait for passcodes on connection %r. At %.3g requests per second, each passcode is read "
                "every %.0f s. To read more often, raise %s, if the service permits it.",
                self._waiters, self.conn_id, rate, length,
                "requests_per_second" if rate == per_second else "max_concurrency",
            )  # fmt: skip
