"""Logs the progress of a contact sync at regular intervals."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping

from cpaas_provider.api.amounts import counted
from cpaas_provider.contacts.sync.planning import Plan
from cpaas_provider.contacts.sync.results import Counts

log = logging.getLogger(__name__)

Publish = Callable[[Mapping[str, float]], None]


class SyncProgress:
    """Logs and publishes the figures of one sync.

    :param interval: seconds between progress log lines; 0 for no such lines
    :param publish: publishes the figures as metrics
    """

    def __init__(self, interval: float, publish: Publish = lambda figures: None) -> None:
        self._interval = interval
        self._publish = publish
        self._last = self._began = time.monotonic()
        self._unpublished = False

    def reading(self, plan: Plan) -> None:
        """Log the progress of reading the source, if the interval has passed."""
        now = time.monotonic()
        if not self._interval or now - self._last < self._interval:
            return
        self._last = now
        log.info(
            "Contact sync: %s of the source read in %s; %s so far.",
            counted(plan.rows, "row"),
            span(now - self._began),
            counted(plan.creates + plan.updates, "change"),
        )

    async def sending(self, counts: Counts, total: int) -> None:
        """Log the progress of the requests at each interval, until cancelled."""
        self._began = time.monotonic()
        while self._interval:
            await asyncio.sleep(self._interval)
            self.log(counts, total)

    def log(self, counts: Counts, total: int) -> None:
        """Log and publish the figures now."""
        seconds = max(time.monotonic() - self._began, 1e-6)
        rate = counts.done / seconds
        left = max(0, total - counts.done)
        log.info(
            "Contact sync: %d of %d rows done (%d %%): %d created, %d updated, %d deleted, %d rejected, %d unknown, "
            "%d not sent; %.1f rows a second, time left: %s.",
            counts.done,
            total,
            100 * counts.done // total if total else 100,
            counts.created,
            counts.updated,
            counts.deleted,
            counts.rejected,
            counts.unknown,
            counts.not_sent,
            rate,
            span(left / rate) if rate else "unknown",
        )
        self.publish(counts, left, rate)

    def publish(self, counts: Counts, left: int, rate: float) -> None:
        """Publish the figures; a failure is logged once."""
        figures = {
            "done": counts.done,
            "left": left,
            "created": counts.created,
            "updated": counts.updated,
            "deleted": counts.deleted,
            "rejected": counts.rejected,
            "unknown": counts.unknown,
            "not_sent": counts.not_sent,
            "rows_per_second": round(rate, 2),
        }
        try:
            self._publish(figures)
        except Exception as error:  # noqa: BLE001 - metrics must not end a sync
            if not self._unpublished:
                log.warning("Metrics could not be published (%s).", type(error).__name__)
            self._unpublished = True


def span(seconds: float) -> str:
    """Return a number of seconds as text for a log line, such as ``3 min``."""
    seconds = round(seconds)
    if seconds < 60:
        return f"{seconds} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
