"""The pause after failed reads, when failures end a wait, and the warning about a rate that is too low.

Warnings are logged once a minute at most.
"""

from __future__ import annotations

import logging
import math
import time
from dataclasses import dataclass

from cpaas_provider.api.amounts import counted
from cpaas_provider.api.errors import CpaasError
from cpaas_provider.triggers._polling.poller import backoff

LOG_INTERVAL = 60.0
"""Seconds between two log lines about the same."""
MIN_FAILURES = 3
MIN_FAILURE_SECONDS = 180.0
"""The failures in a row, and the time from the first to the last, that end a wait."""
_SMOOTHING = 0.02

log = logging.getLogger(__name__)


class LogInterval:
    """Lets a log line about the same pass once a minute at most."""

    def __init__(self) -> None:
        self._logged_at = -math.inf

    def is_over(self) -> bool:
        """Return whether the line may be logged now; then a new minute begins."""
        now = time.monotonic()
        if now - self._logged_at < LOG_INTERVAL:
            return False
        self._logged_at = now
        return True


@dataclass
class FailureStreak:
    """Failures without a success in between, of something that many waits share, such as a key or a connection.

    One response is no verdict for all of them. It may be that of a gateway, or of a key that is being replaced.

    :param count: the number of failures
    :param since: the time of the first, in seconds
    """

    count: int = 0
    since: float = 0.0

    def add(self, now: float) -> bool:
        """Count a failure; return whether the wait ends: they are several, over minutes.

        :param now: the time, by the same clock each time
        """
        if not self.count:
            self.since = now
        self.count += 1
        return self.count >= MIN_FAILURES and now - self.since >= MIN_FAILURE_SECONDS

    def reset(self) -> None:
        """Begin again, after a success."""
        self.count = 0


class FailureBackoff:
    """The state of reads that failed temporarily: how long all reads of the connection pause, logged now and then."""

    def __init__(self, conn_id: str) -> None:
        self.conn_id = conn_id
        self.held_until = -math.inf
        """The monotonic time before which no read begins."""
        self._in_a_row = 0
        self._counted_at = -math.inf
        self._unlogged = 0
        self._log_interval = LogInterval()

    def on_failure(self, error: CpaasError, started: float) -> None:
        """Count a read that failed.

        A single failure does not pause reads. Reads that were in flight together count as one failure.

        :param started: the monotonic time at which that read began
        """
        now = time.monotonic()
        if error.retry_after:
            self.held_until = max(self.held_until, now + error.retry_after)
        elif started >= self._counted_at:
            self._counted_at = now
            self._in_a_row += 1
            if self._in_a_row > 1:
                self.held_until = max(self.held_until, now + backoff(self._in_a_row - 1))
        self._unlogged += 1
        if self._log_interval.is_over():
            log.warning(
                "%s Sensors on connection %r keep waiting. Failed reads since the last warning: %d.",
                error, self.conn_id, self._unlogged,
            )  # fmt: skip
            self._unlogged = 0

    def on_success(self) -> None:
        """Reset the count of failures after a read that succeeded."""
        self._in_a_row = 0

    def end_pause(self) -> None:
        """Let reads begin at once, because the connection was edited."""
        self._in_a_row = 0
        self.held_until = -math.inf


class OverloadReporter:
    """Logs how long a round takes if the connection's rate is too low, and again when that has doubled or halved."""

    def __init__(self, conn_id: str) -> None:
        self.conn_id = conn_id
        self._waiters = 0
        self._reads_per_second = 0.0
        self._read_seconds = 0.0
        self._reported_length = 0.0
        self._log_interval = LogInterval()

    def on_join(self, interval: float) -> None:
        """Count a waiter that is to be read every ``interval`` seconds."""
        self._waiters += 1
        self._reads_per_second += 1.0 / interval

    def on_leave(self, interval: float) -> None:
        """Stop counting a waiter."""
        self._waiters -= 1
        self._reads_per_second = self._reads_per_second - 1.0 / interval if self._waiters else 0.0

    def on_read(self, seconds: float) -> None:
        """Update the average duration of a read; the last few dozen count."""
        self._read_seconds += (seconds - self._read_seconds) * (_SMOOTHING if self._read_seconds else 1.0)

    def report(self, per_second: float, concurrency: int) -> None:
        """Log the length of a round if it changed enough, once a minute at most: thousands may join within one.

        :param per_second: reads that may begin in a second
        :param concurrency: reads that may be in flight together; slow responses allow fewer reads than the rate does
        """
        rate = per_second
        if self._read_seconds:
            rate = min(rate, concurrency / self._read_seconds)
        length = self._waiters / rate
        if self._reads_per_second <= rate / 2:
            self._reported_length = 0.0
            return
        known = self._reported_length
        changed = self._reads_per_second > rate and not known / 2 < length < known * 2
        if changed and self._log_interval.is_over():
            self._reported_length = length
            log.warning(
                "%s for passcodes on connection %r. At %s per second, each passcode is read "
                "every %.0f s. To read more often, raise %s, if the service permits it.",
                counted(self._waiters, "sensor waits", "sensors wait"), self.conn_id,
                counted(float(f"{rate:.3g}"), "request"), length,
                "requests_per_second" if rate == per_second else "max_concurrency",
            )  # fmt: skip
